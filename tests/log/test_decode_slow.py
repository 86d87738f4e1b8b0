import json

import pytest
from hypothesis import given, settings

from indextables.errors import LogCorruptedError
from indextables.log.decode_slow import canonical_lines, has_unknown
from support.log_samples import (
    FULL_ADD,
    FULL_REMOVE,
    METADATA,
    PROTOCOL,
    add,
    add_actions,
    json_lines,
    remove,
    remove_actions,
    versions_of,
)


def parsed(lines: bytes) -> list[dict]:
    return [json.loads(line) for line in lines.split(b"\n")[:-1]]


def without_nulls(action: dict) -> dict:
    return {
        kind: {name: field for name, field in fields.items() if field is not None}
        for kind, fields in action.items()
    }


@settings(max_examples=50)
@given(versions_of(add_actions | remove_actions, max_versions=1))
def test_canonical_lines_are_equivalent_to_the_original(versions):
    actions = versions[0] if versions else []
    canonical = canonical_lines("a file", json_lines(PROTOCOL, *actions, METADATA))
    assert parsed(canonical.lines) == [without_nulls(action) for action in actions]
    assert canonical.num_lines == len(actions)
    assert canonical.unknown_actions == ()


def test_canonicalization_is_idempotent():
    once = canonical_lines("a file", json_lines({"add": FULL_ADD}, {"remove": FULL_REMOVE}))
    assert canonical_lines("a file", once.lines) == once


def test_only_control_characters_are_escaped():
    odd = "ü𠀀😀"
    canonical = canonical_lines(
        "a file", json_lines(add(odd, tags={odd: odd}, splitTags=[odd], stats="\x00"))
    )
    assert canonical.lines.count(odd.encode()) == 4
    assert canonical.lines.count(b"\\") == canonical.lines.count(rb"\u0000") == 1


def test_arrays_of_actions_become_lines():
    lines = json_lines(
        {"add": [add("a")["add"], add("b")["add"]], "remove": [{"path": "c"}]}, {"add": []}, remove("d")
    )
    canonical = canonical_lines("a file", lines)
    assert [next(iter(action.values()))["path"] for action in parsed(canonical.lines)] == ["a", "b", "c", "d"]
    assert canonical.num_lines == 4


@pytest.mark.parametrize(
    "action",
    [
        {"future": {}},
        {"future": None},
        {**PROTOCOL, "future": 1},
        {"add": {**FULL_ADD, "future": None}},
        {"add": [FULL_ADD]},
        {"unknownFields": "{}"},
        add("a", unknownFields="{}"),
    ],
)
def test_unknown_content_is_detected(action):
    assert has_unknown(json_lines(METADATA, add("a"), action))


def test_known_actions_and_fields_are_not_unknown():
    assert not has_unknown(
        json_lines(
            PROTOCOL,
            METADATA,
            {"add": {**FULL_ADD, "addedAtVersion": 1, "addedAtTimestamp": 2}},
            {"remove": FULL_REMOVE},
            {"mergeskip": {}},
            {"txn": {}},
            {"commitInfo": {}},
            {"checkpointInfo": {}},
        )
    )
    assert not has_unknown(b"")


def test_invalid_json_counts_as_unknown():
    for lines in (b"{", b'{"add":' + b"[" * 100_000, b'{"\xff":1}', b"[]"):
        assert has_unknown(lines)
        with pytest.raises(LogCorruptedError, match="a file: line 1 is not a valid action"):
            canonical_lines("a file", lines)
