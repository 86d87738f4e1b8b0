import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.actions import (
    CommitInfo,
    Metadata,
    ProtocolAction,
    SkipAction,
    SmallActions,
    TransactionAction,
)
from indextables.log.decode import VersionSummary, decode_tail
from indextables.log.replay import (
    EMPTY_HEADER,
    RECENT_COMMITS,
    registered_doc_mappings,
    removed_paths,
    replay_header,
)
from support.log_samples import METADATA, PROTOCOL, add, log_file, remove


def summary(version: int, timestamp_ms: int = 0, unknown: tuple[str, ...] = (), **actions) -> VersionSummary:
    return VersionSummary(version, timestamp_ms, SmallActions(**actions), unknown)


def metadata(**configuration: str) -> Metadata:
    return Metadata(id="m", schema_string="{}", configuration=configuration)


def skip(path: str, count: int = 1) -> SkipAction:
    return SkipAction(path=path, skip_timestamp=1, reason="r", operation="merge", skip_count=count)


def skip_line(path: str, count: int = 1) -> dict:
    fields = {"path": path, "skipTimestamp": 1, "reason": "r", "operation": "merge", "skipCount": count}
    return {"mergeskip": fields}


def test_timestamps_never_decrease():
    header = replay_header(EMPTY_HEADER, [summary(0, 50), summary(1, 30), summary(2, 40)], {})
    assert (header.version, header.timestamp_ms) == (2, 50)
    assert replay_header(header, [summary(3, 45)], {}).timestamp_ms == 50
    assert replay_header(header, [summary(3, 60)], {}).timestamp_ms == 60


def test_the_last_protocol_and_metadata_win():
    first = ProtocolAction(min_reader_version=1, min_writer_version=1)
    second = ProtocolAction(min_reader_version=4, min_writer_version=4)
    header = replay_header(
        EMPTY_HEADER,
        [summary(0, protocol=first, metadata=metadata(a="1")), summary(1, protocol=second), summary(2)],
        {},
    )
    assert header.protocol == second
    assert header.metadata == metadata(a="1")
    assert replay_header(header, [summary(3, metadata=metadata(b="2"))], {}).metadata == metadata(b="2")


def test_no_versions_leave_the_header_unchanged():
    assert replay_header(EMPTY_HEADER, [], {}) is EMPTY_HEADER


def test_doc_mappings_come_from_the_configuration_of_every_metadata():
    versions = [
        summary(0, metadata=metadata(**{"docMappingSchema.h1": "[1]", "other": "x"})),
        summary(1, metadata=metadata(**{"docMappingSchema.h2": "[2]"})),
        summary(2, metadata=metadata()),
    ]
    expected = {"h1": "[1]", "h2": "[2]"}
    assert replay_header(EMPTY_HEADER, versions, {}).doc_mappings == expected
    first = replay_header(EMPTY_HEADER, versions[:1], {})
    assert replay_header(first, versions[1:], {}).doc_mappings == expected


def test_registered_doc_mappings_are_a_part_of_the_configuration():
    assert registered_doc_mappings(None) == {}
    assert registered_doc_mappings(metadata(**{"docMappingSchema.ab": "[]", "docMappingSchema": "x"})) == {
        "ab": "[]"
    }


def test_the_last_transaction_of_each_application_wins():
    versions = [
        summary(
            0,
            transactions=(
                TransactionAction(app_id="a", version=1),
                TransactionAction(app_id="b", version=5),
            ),
        ),
        summary(1, transactions=(TransactionAction(app_id="a", version=2),)),
    ]
    header = replay_header(EMPTY_HEADER, versions, {})
    assert header.transactions == {"a": 2, "b": 5}
    assert replay_header(header, [summary(2)], {}).transactions == {"a": 2, "b": 5}


def test_a_skip_is_open_until_its_path_is_removed():
    header = replay_header(
        EMPTY_HEADER, [summary(0, skips=(skip("a"), skip("b"))), summary(1, skips=(skip("a", 2),))], {}
    )
    assert header.skips == {"a": skip("a", 2), "b": skip("b")}
    assert replay_header(header, [summary(2)], {"b": 2, "c": 2}).skips == {"a": skip("a", 2)}


def test_a_remove_closes_only_the_skips_before_it():
    tail = decode_tail(
        [
            log_file(0, skip_line("a"), skip_line("b")),
            log_file(1, remove("a"), remove("b")),
            log_file(2, add("a"), skip_line("a", 7)),
        ]
    )
    header = replay_header(EMPTY_HEADER, tail.versions, removed_paths(tail))
    assert {path: found.skip_count for path, found in header.skips.items()} == {"a": 7}


def test_only_the_newest_commits_are_kept():
    versions = [
        summary(number, commit_info=CommitInfo(commit_id=f"c{number}", timestamp=0, operation="WRITE"))
        for number in range(RECENT_COMMITS + 50)
    ]
    header = replay_header(EMPTY_HEADER, versions, {})
    assert header.recent_commits == {n: f"c{n}" for n in range(50, RECENT_COMMITS + 50)}
    later = replay_header(header, [summary(RECENT_COMMITS + 50)], {})
    assert later.recent_commits == header.recent_commits


def test_unknown_actions_are_collected():
    header = replay_header(
        EMPTY_HEADER, [summary(0, unknown=('{"x":1}',)), summary(1, unknown=('{"y":2}',))], {}
    )
    assert header.unknown_actions == ('{"x":1}', '{"y":2}')


some_paths = st.sampled_from("abc")
some_actions = (
    st.builds(add, some_paths)
    | st.builds(remove, some_paths)
    | st.builds(skip_line, some_paths, st.integers(1, 9))
    | st.builds(
        lambda app, version: {"txn": {"appId": app, "version": version}},
        st.sampled_from("xy"),
        st.integers(0, 9),
    )
    | st.builds(
        lambda key: {"metaData": {**METADATA["metaData"], "configuration": {f"docMappingSchema.{key}": key}}},
        st.sampled_from("pqr"),
    )
    | st.just(PROTOCOL)
    | st.builds(
        lambda time: {"commitInfo": {"commitId": f"c{time}", "timestamp": time, "operation": "WRITE"}},
        st.integers(0, 100),
    )
)


@settings(max_examples=80)
@given(st.lists(st.lists(some_actions, max_size=4), min_size=1, max_size=6), st.data())
def test_replay_in_two_steps_is_replay_in_one(versions, data):
    files = [log_file(number, *actions) for number, actions in enumerate(versions)]
    cut = data.draw(st.integers(0, len(files)))
    at_once = decode_tail(files)
    expected = replay_header(EMPTY_HEADER, at_once.versions, removed_paths(at_once))
    header = EMPTY_HEADER
    for part in (files[:cut], files[cut:]):
        tail = decode_tail(part)
        header = replay_header(header, tail.versions, removed_paths(tail))
    assert header == expected


def test_headers_pickle():
    header = replay_header(EMPTY_HEADER, [summary(0, metadata=metadata(a="b"), skips=(skip("a"),))], {})
    assert pickle.loads(pickle.dumps(header)) == header
