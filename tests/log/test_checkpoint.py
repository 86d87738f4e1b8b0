import json

import pytest

from indextables.errors import LogCorruptedError
from indextables.log.checkpoint import build_checkpoint, header_lines
from indextables.log.decode import UnknownContent, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.replay import EMPTY_HEADER, LogHeader, replay_header
from support.log_samples import METADATA, PROTOCOL, log_bytes, log_file

FULL_TABLE = [
    log_file(
        0,
        {"protocol": {**PROTOCOL["protocol"], "future": 1}},
        {
            "metaData": {
                **METADATA["metaData"],
                "configuration": {"docMappingSchema.h1": "[1]"},
                "future": [2],
            }
        },
        {"cdc": {"a": 1.50}},
    ),
    log_file(1, METADATA, {"txn": {"appId": "s", "version": 4}}),
    log_file(
        2,
        {
            "mergeskip": {
                "path": "a",
                "skipTimestamp": 1,
                "reason": "\u2028",
                "operation": "merge",
                "skipCount": 3,
                "future": {"x": None},
            }
        },
        {"commitInfo": {"commitId": "c2", "timestamp": 70, "operation": "WRITE"}},
    ),
]


def full_header() -> LogHeader:
    return replay_header(EMPTY_HEADER, decode_tail(FULL_TABLE, UnknownContent.KEEP).versions, {})


def test_everything_in_a_header_survives_a_checkpoint():
    header = full_header()
    assert header.doc_mappings == {"h1": "[1]"}  # which the newest metaData does not have any more
    lines = header_lines(header, 0)
    tail = decode_tail([log_bytes(2, lines)], UnknownContent.KEEP)
    checkpoint = build_checkpoint(tail.versions, empty_entries(), 2, "a checkpoint")
    assert checkpoint.header == header
    assert header_lines(checkpoint.header, 0) == lines


def test_header_lines_are_json_lines_and_the_checkpoint_info_comes_first():
    actions = [json.loads(line) for line in header_lines(full_header(), 5).split(b"\n")[:-1]]
    names = [next(iter(action)) for action in actions]
    assert names == ["checkpointInfo", "protocol", "metaData", "mergeskip", "txn", "cdc"]
    assert actions[0]["checkpointInfo"] == {
        "version": 2,
        "timestamp": 70,
        "numAdds": 5,
        "recentCommits": {"2": "c2"},
        "knownSchemas": ["h1"],
    }
    # Where other readers look for it.
    assert actions[2]["metaData"]["configuration"]["docMappingSchema.h1"] == "[1]"


def test_a_checkpoint_with_entries_missing_is_refused():
    tail = decode_tail([log_bytes(2, header_lines(full_header(), 5))])
    with pytest.raises(LogCorruptedError, match="a checkpoint: has 0 of its 5 file entries"):
        build_checkpoint(tail.versions, empty_entries(), 2, "a checkpoint")


def test_a_checkpoint_of_another_version_is_refused():
    tail = decode_tail([log_bytes(3, header_lines(full_header(), 0))])
    with pytest.raises(LogCorruptedError, match="a checkpoint: the checkpoint holds version 2, not 3"):
        build_checkpoint(tail.versions, empty_entries(), 3, "a checkpoint")


def test_a_checkpoint_without_metadata_is_refused():
    for files in ([], [log_file(2, PROTOCOL)]):
        with pytest.raises(LogCorruptedError, match="a checkpoint: the checkpoint has no metaData"):
            build_checkpoint(decode_tail(files).versions, empty_entries(), 2, "a checkpoint")


def test_a_checkpoint_of_another_writer_has_no_checkpoint_info():
    tail = decode_tail([log_file(2, PROTOCOL, METADATA, modified_ms=33)])
    header = build_checkpoint(tail.versions, empty_entries(), 2, "a checkpoint").header
    assert (header.version, header.timestamp_ms, header.recent_commits) == (2, 33, {})
