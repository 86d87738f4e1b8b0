import pytest

from indextables.errors import LogCorruptedError
from indextables.log.actions import CommitInfo, ProtocolAction, SmallActions, TransactionAction, scan_lines
from support.log_samples import METADATA, PROTOCOL, add, json_lines, remove


def test_small_actions_are_found_among_adds():
    lines = json_lines(
        add("a"),
        {"txn": {"appId": "s1", "version": 3}},
        {"mergeskip": {"path": "a", "skipTimestamp": 1, "reason": "r", "operation": "merge"}},
        PROTOCOL,
        {"commitInfo": {"commitId": "c", "timestamp": 5, "operation": "WRITE"}},
        remove("b"),
        METADATA,
        {"txn": {"appId": "s2", "version": 4}},
        {"checkpointInfo": {"version": 1, "timestamp": 2, "numAdds": 1}},
    )
    scanned = scan_lines("a file", lines)
    actions = scanned.actions
    assert scanned.num_objects == 9
    assert actions.protocol == ProtocolAction(min_reader_version=4, min_writer_version=4)
    assert actions.metadata is not None
    assert actions.metadata.id == "a1b2c3d4"
    assert actions.commit_info == CommitInfo(commit_id="c", timestamp=5, operation="WRITE")
    assert actions.checkpoint_info is not None
    assert [skip.path for skip in actions.skips] == ["a"]
    assert actions.transactions == (
        TransactionAction(app_id="s1", version=3),
        TransactionAction(app_id="s2", version=4),
    )


def test_the_last_of_several_small_actions_wins():
    later = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    actions = scan_lines("a file", json_lines(PROTOCOL, METADATA, later)).actions
    assert actions.protocol == ProtocolAction(min_reader_version=1, min_writer_version=2)
    assert (actions.protocol_count, actions.metadata_count) == (2, 1)


def test_action_names_inside_other_values_are_ignored():
    texts = {"protocol": "tcp", "metaData": "x", "txn": "1"}
    lines = json_lines(
        add("a", minValues=texts, tags=texts, stats='{"protocol":{"minReaderVersion":9}}'),
        {"future": {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}}},
        {"protocol": None, "txn": None},
    )
    scanned = scan_lines("a file", lines)
    assert scanned.num_objects == 3
    assert scanned.actions == SmallActions()


def test_the_commit_info_of_other_writers_is_ignored():
    theirs = {"commitInfo": {"timestamp": 5, "operationMetrics": {"numFiles": "2"}, "isBlindAppend": True}}
    assert scan_lines("a file", json_lines(theirs)).actions == SmallActions()


def test_unknown_fields_of_small_actions_are_kept():
    actions = scan_lines("a file", json_lines({"protocol": {**PROTOCOL["protocol"], "future": [1]}})).actions
    assert actions.protocol is not None
    assert actions.protocol.unknown == {"future": [1]}


def test_an_empty_file_has_no_small_actions():
    for lines in (b"", b"\n\n", b" \r\n"):
        scanned = scan_lines("a file", lines)
        assert (scanned.num_objects, scanned.actions) == (0, SmallActions())


@pytest.mark.parametrize(
    "bad",
    [
        b'{"protocol":{"minReaderVersion":"x","minWriterVersion":1}}',
        b'{"metaData":{"id":1,"schemaString":"{}"}}',
        b'{"mergeskip":{}}',
        b'{"txn":[]}',
        b'{"checkpointInfo":{"version":1}}',
        b'{"commitInfo":"\xff"}',
        b'{"commitInfo":{',
    ],
)
def test_an_invalid_small_action_is_named(bad):
    with pytest.raises(LogCorruptedError, match="a file: line 2 is not a valid action"):
        scan_lines("a file", json_lines(PROTOCOL) + bad + b"\n" + json_lines(METADATA))
