import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import LogCorruptedError
from indextables.log.decode import LogFile, Tail, UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, REMOVE_SCHEMA
from support.log_samples import (
    FULL_ADD,
    FULL_REMOVE,
    METADATA,
    PROTOCOL,
    add,
    add_actions,
    json_lines,
    log_bytes,
    log_file,
    paths,
    remove,
    remove_actions,
    rows,
    versions_of,
)


def without_order(tail: Tail) -> tuple[pa.Table, pa.Table]:
    return tail.adds.drop_columns(["sequence"]), tail.removes.drop_columns(["sequence"])


def in_log_order(tail: Tail) -> list[tuple[str, str]]:
    """The kind and the path of every action, by sequence."""
    actions = [
        (sequence, kind, path)
        for kind, table in (("add", tail.adds), ("remove", tail.removes))
        for sequence, path in zip(table["sequence"].to_pylist(), paths(table), strict=True)
    ]
    return [(kind, path) for _, kind, path in sorted(actions)]


def test_every_field_of_an_add_becomes_a_column():
    tail = decode_tail([log_file(3, {"add": FULL_ADD}, modified_ms=9)])
    (entry,) = rows(tail.adds)
    # The version has no commitInfo, so its time is that of its newest add.
    when = FULL_ADD["modificationTime"]
    assert entry == {**FULL_ADD, "addedAtVersion": 3, "addedAtTimestamp": when, "sequence": 0}
    assert set(FULL_ADD) | {"addedAtVersion", "addedAtTimestamp", "unknownFields"} == set(
        FILE_ENTRY_SCHEMA.names
    )
    assert tail.adds.schema.remove(len(FILE_ENTRY_SCHEMA)) == FILE_ENTRY_SCHEMA


def test_every_field_of_a_remove_becomes_a_column():
    tail = decode_tail([log_file(3, PROTOCOL, {"remove": FULL_REMOVE})])
    assert rows(tail.removes) == [{**FULL_REMOVE, "version": 3, "sequence": 1}]
    assert tail.removes.schema.remove(len(REMOVE_SCHEMA)) == REMOVE_SCHEMA


def test_fields_that_older_writers_omit_take_their_defaults():
    tail = decode_tail(
        [log_file(3, {"add": {"path": "a", "size": 7}}, {"remove": {"path": "b"}}, modified_ms=9)]
    )
    assert rows(tail.adds) == [
        {
            "path": "a",
            "partitionValues": {},
            "size": 7,
            "modificationTime": 0,
            "dataChange": True,
            "hasFooterOffsets": False,
            "addedAtVersion": 3,
            "addedAtTimestamp": 9,
            "sequence": 0,
        }
    ]
    assert rows(tail.removes) == [{"path": "b", "version": 3, "sequence": 1}]


def test_explicit_nulls_are_treated_as_missing():
    nulls = dict.fromkeys([*FULL_ADD, "addedAtVersion", "addedAtTimestamp"])
    explicit = decode_tail(
        [log_file(0, {"add": {**nulls, "path": "a", "size": 1}, "remove": None, "protocol": None})]
    )
    implicit = decode_tail([log_file(0, {"add": {"path": "a", "size": 1}})])
    assert explicit == implicit


def test_null_partition_values_and_null_statistics_are_absent_keys():
    values = {"a": "1", "b": None, "c": ""}
    tail = decode_tail(
        [
            log_file(
                0,
                add("x", partitionValues=values, minValues=values, maxValues=None),
                add("y", partitionValues={"b": None}, minValues={}, maxValues=values),
            )
        ]
    )
    present = [("a", "1"), ("c", "")]
    assert tail.adds["partitionValues"].to_pylist() == [present, []]
    assert tail.adds["minValues"].to_pylist() == [present, []]
    assert tail.adds["maxValues"].to_pylist() == [None, present]


def test_an_add_in_a_checkpoint_carries_its_own_version_and_time():
    tail = decode_tail(
        [log_file(9, add("a", addedAtVersion=4, addedAtTimestamp=44), add("b"), modified_ms=99)]
    )
    assert tail.adds["addedAtVersion"].to_pylist() == [4, 9]
    assert tail.adds["addedAtTimestamp"].to_pylist() == [44, 1]


def test_no_files_decode_to_an_empty_tail():
    for files in ([], [log_bytes(4, b"")], [log_bytes(4, b"\n \r\n"), log_file(5, PROTOCOL)]):
        tail = decode_tail(files)
        assert [version.version for version in tail.versions] == [file.version for file in files]
        assert tail.adds.num_rows == tail.removes.num_rows == 0
        assert tail.adds.column_names[-1] == tail.removes.column_names[-1] == "sequence"


@settings(max_examples=60)
@given(versions_of(add_actions | remove_actions))
@example([[{"add": {"path": "\x00", "size": 0, "stats": "\x00"}}]])
@example([[{"add": {"path": "\u2028\x85\x1e", "size": 0}}], [{"remove": {"path": "\u2028\x85\x1e"}}]])
def test_fast_and_slow_decoding_agree(versions):
    plain = [log_file(number, *actions) for number, actions in enumerate(versions)]
    # The native decoder does not accept arrays of actions.
    arrays = [
        log_file(number, *({kind: [fields]} for action in actions for kind, fields in action.items()))
        for number, actions in enumerate(versions)
    ]
    fast, slow = decode_tail(plain), decode_tail(arrays)
    assert without_order(fast) == without_order(slow)
    assert fast.versions == slow.versions
    assert in_log_order(fast) == in_log_order(slow)
    fast.adds.validate(full=True)
    slow.adds.validate(full=True)


@settings(max_examples=30)
@given(versions_of(add_actions | remove_actions))
def test_keeping_unknown_content_changes_nothing_else(versions):
    plain = [log_file(number, *actions) for number, actions in enumerate(versions)]
    odd = [*plain, log_file(len(plain), {"fromTheFuture": {"a": 1}})]
    ignoring, keeping = decode_tail(odd), decode_tail(odd, UnknownContent.KEEP)
    assert without_order(ignoring) == without_order(keeping)
    assert in_log_order(ignoring) == in_log_order(keeping)
    assert keeping.versions[-1].unknown_actions == ('{"fromTheFuture":{"a":1}}',)
    assert ignoring.versions[-1].unknown_actions == ()


def test_layout_of_the_lines_does_not_matter():
    actions = [PROTOCOL, add("a"), remove("b"), add("c", minValues={"text": "}\n{"})]
    expected = decode_tail([log_file(1, *actions), log_file(2, add("d"))])
    texts = [json.dumps(action) for action in actions]
    for lines in (
        "\n".join(texts),
        "\r\n".join(texts) + "\r\n",
        "\n\n".join(["", *texts, " ", ""]),
        "".join(texts),
        "\n".join(json.dumps(action, indent=2) for action in actions),
    ):
        tail = decode_tail([log_bytes(1, lines.encode()), log_bytes(2, json_lines(add("d")).rstrip())])
        assert tail == expected


def test_blank_lines_in_one_file_do_not_shift_the_actions_of_the_next():
    one_line_too_many = log_bytes(1, b"\n" + json_lines(add("a")))
    one_line_too_few = log_bytes(2, json_lines(add("b"), add("c")).replace(b"\n", b""))
    tail = decode_tail([one_line_too_many, one_line_too_few, log_file(3, add("d"))])
    assert tail.adds["addedAtVersion"].to_pylist() == [1, 2, 2, 3]


def test_a_file_that_ends_in_the_middle_is_not_completed_by_the_next():
    whole = json_lines(add("a"))
    halves = [log_bytes(1, whole[:20]), log_bytes(2, whole[20:])]
    with pytest.raises(LogCorruptedError, match=r"1\.json: line 1 "):
        decode_tail(halves)


def test_adds_in_an_array_as_in_the_first_checkpoints_are_read():
    lines = json.dumps({**PROTOCOL, **METADATA, "add": [add("a")["add"], add("b")["add"]]}, indent=1)
    tail = decode_tail([log_bytes(10, lines.encode())])
    assert paths(tail.adds) == ["a", "b"]
    actions = tail.versions[0].actions
    assert actions.protocol is not None
    assert actions.metadata is not None


def test_an_add_and_a_remove_in_one_line_keep_their_order():
    add_last = {**remove("a"), **add("a")}
    remove_last = {**add("b"), **remove("b")}
    tail = decode_tail([log_file(1, add_last, remove_last)])
    assert in_log_order(tail) == [("remove", "a"), ("add", "a"), ("add", "b"), ("remove", "b")]


def test_bare_numbers_in_maps_become_text_with_their_spelling():
    fields = (
        '{"add":{"path":"a","size":1,"minValues":{"a":1,"b":-1.50,"c":1e3,"d":"x","e":true,"f":null,'
        '"g":123456789012345678901234567890},"partitionValues":{"n":9}}}'
    )
    tail = decode_tail([log_bytes(1, fields.encode())])
    (entry,) = rows(tail.adds)
    assert entry["minValues"] == {
        "a": "1",
        "b": "-1.50",
        "c": "1e3",
        "d": "x",
        "e": "true",
        "g": "123456789012345678901234567890",
    }
    assert entry["partitionValues"] == {"n": "9"}


def test_numbers_as_text_are_accepted():
    tail = decode_tail(
        [log_bytes(1, b'{"add":[{"path":"a","size":"7","numMergeOps":"2","modificationTime":3.0}]}')]
    )
    (entry,) = rows(tail.adds)
    assert (entry["size"], entry["numMergeOps"], entry["modificationTime"]) == (7, 2, 3)


def test_unknown_fields_and_actions_are_kept_verbatim():
    lines = (
        b'{"cdc":{"path" : "x", "big": 123456789012345678901234567890, "exact": 1.50}}\n'
        b'{"add":{"path":"a","size":1,"future":{"x": [1,  2.0]},"other":"\xc3\xbc\xe2\x80\xa8"}}\n'
        b'{"add":{"path":"b","size":1}}\n'
        b'{"add":{"path":"c","size":1,"unknownFields":5}}\n'
    )
    tail = decode_tail([log_bytes(1, lines), log_file(2, {"domainMetadata": None})], UnknownContent.KEEP)
    assert tail.adds["unknownFields"].to_pylist() == [
        '{"future":{"x":[1,2.0]},"other":"ü\u2028"}',
        None,
        '{"unknownFields":5}',
    ]
    assert [version.unknown_actions for version in tail.versions] == [
        ('{"cdc":{"path":"x","big":123456789012345678901234567890,"exact":1.50}}',),
        ('{"domainMetadata":null}',),
    ]


def test_an_unknown_field_cannot_pose_as_an_internal_column():
    lines = b'{"add":{"path":"a","size":1,"unknownFields":"{\\"path\\":\\"b\\"}"},"unknownFields":"{}"}'
    assert decode_tail([log_bytes(1, lines)]).adds["unknownFields"].to_pylist() == [None]
    kept = decode_tail([log_bytes(1, lines)], UnknownContent.KEEP).adds["unknownFields"].to_pylist()
    assert [json.loads(text) for text in kept] == [{"unknownFields": '{"path":"b"}'}]


COMMIT_INFO = {"commitInfo": {"commitId": "c", "timestamp": 50, "operation": "WRITE"}}
CREATED = {"metaData": {**METADATA["metaData"], "createdTime": 40}}
DATED_ADD = add("a", modificationTime=30)
DATED_REMOVE = remove("a", deletionTimestamp=35)


@pytest.mark.parametrize(
    ("version", "actions", "expected"),
    [
        (0, [CREATED, DATED_ADD, DATED_REMOVE, COMMIT_INFO], 50),
        (0, [CREATED, DATED_ADD, DATED_REMOVE], 40),
        (7, [CREATED, DATED_ADD, DATED_REMOVE], 35),  # a later metaData repeats when the table was created
        (0, [METADATA, DATED_ADD, add("b", modificationTime=20)], 30),
        (1, [DATED_REMOVE], 35),
        (1, [remove("a")], 20),
        (0, [METADATA], 20),
        (1, [{"commitInfo": {"operation": "from another writer", "timestamp": 50}}, DATED_ADD], 30),
    ],
)
def test_the_commit_time_comes_from_the_best_source(version, actions, expected):
    tail = decode_tail([log_file(version, *actions, modified_ms=20)])
    assert tail.versions[0].timestamp_ms == expected
    assert set(tail.adds["addedAtTimestamp"].to_pylist()) <= {expected}


def test_each_version_has_its_own_time():
    tail = decode_tail(
        [log_file(1, DATED_ADD), log_file(2, COMMIT_INFO, add("b")), log_file(3, modified_ms=7)]
    )
    assert [version.timestamp_ms for version in tail.versions] == [30, 50, 7]
    assert tail.adds["addedAtTimestamp"].to_pylist() == [30, 50]


def test_thousands_of_small_versions_decode_in_one_call():
    count = 10_000
    commit = {"commitId": "c", "operation": "WRITE"}
    files = [
        log_file(
            number,
            {"commitInfo": {**commit, "timestamp": number}},
            add(f"part-{number}"),
            remove(f"{number}"),
        )
        for number in range(count)
    ]
    tail = decode_tail(files)
    assert tail.adds["addedAtVersion"].to_pylist() == list(range(count))
    assert tail.removes["version"].to_pylist() == list(range(count))
    assert [version.timestamp_ms for version in tail.versions] == list(range(count))


DEEP = b"[" * 100_000 + b"]" * 100_000
VERY_DEEP = b"[" * 2_000_000 + b"]" * 2_000_000

BAD_LINES = {
    "cut off": b'{"add":{"path":"a","size":1',
    "not JSON": b"not json",
    "not an object": b"[1]",
    "a number": b"5",
    "null": b"null",
    "trailing comma": b'{"add":null},',
    "NUL": b"\x00",
    "NUL in a text": b'{"add":{"path":"a\x00","size":1}}',
    "NUL in a number": b'{"add":{"path":"a","size":"1\\u0000"}}',
    "invalid UTF-8": b'{"add":{"path":"\xff","size":1}}',
    "invalid UTF-8 in what is unknown": b'{"add":{"path":"a","size":1},"future":"\xff"}',
    "invalid UTF-8 in a small action": b'{"protocol":{"minReaderVersion":1,"minWriterVersion":1,"a":"\xff"}}',
    "lone surrogate": b'{"add":{"path":"\\ud800","size":1}}',
    "byte order mark": b'\xef\xbb\xbf{"add":{"path":"a","size":1}}',
    "huge size": b'{"add":{"path":"a","size":%d}}' % 2**70,
    "huge time": b'{"mergeskip":{"path":"a","reason":"r","operation":"o","skipTimestamp":%d}}' % 2**70,
    "huge batch": b'{"txn":{"appId":"a","version":%d}}' % 2**70,
    "huge merge count": b'{"add":{"path":"a","size":1,"numMergeOps":%d}}' % 2**31,
    "size is no number": b'{"add":{"path":"a","size":true}}',
    "size is broken": b'{"add":[{"path":"a","size":1.5}]}',
    "no path": b'{"add":{"size":1}}',
    "null path": b'{"add":{"path":null,"size":1}}',
    "no size": b'{"add":{"path":"a"}}',
    "remove without path": b'{"remove":{"size":1}}',
    "path is no text": b'{"add":{"path":5,"size":1}}',
    "tags are no map": b'{"add":{"path":"a","size":1,"tags":["a"]}}',
    "add is a text": b'{"add":"a"}',
    "add is an array of numbers": b'{"add":[1]}',
    "protocol is a text": b'{"protocol":"4"}',
    "protocol is incomplete": b'{"protocol":{"minReaderVersion":4}}',
    "metadata without schema": b'{"metaData":{"id":"a"}}',
    "deep nesting": DEEP,
    "deep nesting in an add": b'{"add":' + DEEP + b"}",
    "deep nesting in what is unknown": b'{"future":' + DEEP + b"}",
    "deep nesting in a protocol": b'{"protocol":' + DEEP + b"}",
    "very deep nesting in an add": b'{"add":' + VERY_DEEP + b"}",
    "deep nesting in a map": b'{"add":{"path":"a","size":1,"tags":{"a":' + DEEP + b"}}}",
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("unknown", UnknownContent)
@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_with_its_file_and_number(bad, unknown):
    good = json_lines(METADATA, add("a"))
    files = [log_bytes(4, good), log_bytes(5, good + bad + b"\n" + good), log_bytes(6, good)]
    with pytest.raises(LogCorruptedError, match=r"5\.json: line 3 is not a valid action"):
        decode_tail(files, unknown)


def test_a_bad_object_that_spans_lines_is_named_by_its_number():
    lines = json.dumps(add("a"), indent=1) + json.dumps({"add": {"size": 1}}, indent=1)
    with pytest.raises(LogCorruptedError, match=r"4\.json: action 2 is not a valid action"):
        decode_tail([log_bytes(4, lines.encode())])


SEED_LINES = json_lines(
    PROTOCOL, METADATA, {"add": FULL_ADD}, {"remove": FULL_REMOVE}, add("b", minValues={"a": 1})
)
FRAGMENTS = [b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"null", b"1e999", b"-", b"\\ud800", b"\\u0000", b"\n",
             b"\xff", b"\x00", b"99999999999999999999", b'"add":', b'"path":null,']  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SEED_LINES)), st.integers(0, 30), st.sampled_from(FRAGMENTS)), max_size=4
    ),
    st.sampled_from(UnknownContent),
)
def test_damaged_lines_are_read_or_raise_log_corrupted(changes, unknown):
    lines = SEED_LINES
    for position, length, fragment in changes:
        lines = lines[:position] + fragment + lines[position + length :]
    try:
        tail = decode_tail([LogFile(1, "a file", lines, 0)], unknown)
    except LogCorruptedError:
        return
    tail.adds.validate(full=True)
    tail.removes.validate(full=True)
