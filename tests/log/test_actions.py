import json
import pickle
import re

import msgspec
import pytest

from indextables.log.actions import (
    ACTION_NAMES,
    AddAction,
    CheckpointInfo,
    CommitInfo,
    Format,
    Metadata,
    ProtocolAction,
    RemoveAction,
    SkipAction,
    TransactionAction,
    encode_actions,
    new_commit_id,
    parse_action,
)
from support.log_samples import FULL_ADD, FULL_REMOVE

FULL_ACTIONS = {
    ProtocolAction: {
        "minReaderVersion": 3,
        "minWriterVersion": 3,
        "readerFeatures": ["footerOffsets", "tantivy4java"],
        "writerFeatures": ["conditionalWrites", "checkpoints"],
    },
    Metadata: {
        "id": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
        "name": "logs",
        "description": "all of them\u2028and more",
        "format": {"provider": "indextables", "options": {"a": "b"}},
        "schemaString": '{"type":"struct","fields":[]}',
        "partitionColumns": ["year", "month"],
        "configuration": {"docMappingSchema.ab12cd34ef56gh78": '[{"name":"title"}]'},
        "createdTime": 1696000000000,
    },
    AddAction: FULL_ADD,
    RemoveAction: FULL_REMOVE,
    SkipAction: {
        "path": "corrupted-file.split",
        "skipTimestamp": 1696000000000,
        "reason": "Failed to merge: corrupted split metadata",
        "operation": "merge",
        "partitionValues": {"year": "2024", "month": "10"},
        "size": 102400,
        "retryAfter": 1696086400000,
        "skipCount": 2,
    },
    TransactionAction: {"appId": "stream-1", "version": 7, "lastUpdated": 1696000000000},
    CommitInfo: {
        "commitId": "c0ffee",
        "timestamp": 1696000000000,
        "operation": "WRITE",
        "readVersion": 3,
        "operationParameters": {"mode": "append"},
        "operationMetrics": {"numAddedFiles": 2},
        "engineInfo": "indextables-python/1.0",
        "isExact": True,
    },
    CheckpointInfo: {
        "version": 10,
        "timestamp": 1696000000000,
        "numAdds": 3,
        "recentCommits": {"9": "c0ffee", "10": "decaf"},
        "knownSchemas": ["hash"],
    },
}


def one_line(action: object) -> dict:
    lines = encode_actions([action]).splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


@pytest.mark.parametrize("kind", ACTION_NAMES)
def test_every_field_survives_reading_and_writing(kind):
    on_disk = FULL_ACTIONS[kind]
    assert one_line(parse_action(on_disk, kind)) == {ACTION_NAMES[kind]: on_disk}


@pytest.mark.parametrize("kind", ACTION_NAMES)
def test_actions_pickle(kind):
    action = parse_action({**FULL_ACTIONS[kind], "fromTheFuture": {"a": [1]}}, kind)
    assert pickle.loads(pickle.dumps(action)) == action


@pytest.mark.parametrize("kind", ACTION_NAMES)
def test_actions_cannot_be_changed(kind):
    action = parse_action(FULL_ACTIONS[kind], kind)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(action, action.__struct_fields__[0], "x")


@pytest.mark.parametrize("kind", [ProtocolAction, Metadata, SkipAction, TransactionAction])
@pytest.mark.parametrize(
    "unknown", [{"fromTheFuture": {"deep": [1, None, 2.5]}}, {"unknown": 5}, {"unknown": {"a": 1}}]
)
def test_unknown_fields_survive_reading_and_writing(kind, unknown):
    on_disk = {**FULL_ACTIONS[kind], **unknown}
    assert one_line(parse_action(on_disk, kind)) == {ACTION_NAMES[kind]: on_disk}


@pytest.mark.parametrize("kind", [AddAction, RemoveAction, CommitInfo, CheckpointInfo])
def test_unknown_fields_are_ignored_in_actions_that_are_not_rewritten(kind):
    on_disk = FULL_ACTIONS[kind]
    assert parse_action({**on_disk, "fromTheFuture": 1}, kind) == parse_action(on_disk, kind)


def test_fields_are_snake_case_in_python_and_camel_case_on_disk():
    for kind in ACTION_NAMES:
        for field in msgspec.structs.fields(kind):
            camel = re.sub(r"_(\w)", lambda match: match[1].upper(), field.name)
            assert field.encode_name == camel
            assert field.name == field.name.lower()


def test_defaults_are_left_out_unless_other_readers_need_them():
    add = AddAction(path="a", partition_values={}, size=1, modification_time=2, data_change=True)
    assert one_line(add) == {
        "add": {
            "path": "a",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 2,
            "dataChange": True,
            "hasFooterOffsets": False,
        }
    }
    skip = SkipAction(path="a", skip_timestamp=1, reason="r", operation="merge")
    assert one_line(skip)["mergeskip"]["skipCount"] == 1
    assert one_line(ProtocolAction(min_reader_version=1, min_writer_version=2)) == {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 2}
    }


def test_a_null_partition_value_is_an_absent_key():
    values = {"date": None, "region": "eu", "text": ""}
    add = AddAction(path="a", partition_values=values, size=1, modification_time=2, data_change=True)
    remove = RemoveAction(path="a", data_change=True, partition_values=values)
    skip = SkipAction(path="a", skip_timestamp=1, reason="r", operation="o", partition_values=values)
    for action in (add, remove, skip):
        (fields,) = one_line(action).values()
        assert fields["partitionValues"] == {"region": "eu", "text": ""}


def test_the_examples_of_the_specification_parse():
    basic_protocol = parse_action({"minReaderVersion": 1, "minWriterVersion": 2}, ProtocolAction)
    assert basic_protocol == ProtocolAction(min_reader_version=1, min_writer_version=2)

    real_protocol = parse_action(
        {"minReaderVersion": 4, "minWriterVersion": 4, "readerFeatures": None, "writerFeatures": None},
        ProtocolAction,
    )
    assert real_protocol == ProtocolAction(min_reader_version=4, min_writer_version=4)

    metadata = parse_action(
        {
            "id": "uuid",
            "name": None,
            "description": None,
            "format": {"provider": "indextables"},
            "schemaString": "...",
            "partitionColumns": [],
            "configuration": {},
            "createdTime": None,
        },
        Metadata,
    )
    assert metadata == Metadata(id="uuid", schema_string="...", format=Format(provider="indextables"))

    first_skip = parse_action(
        {
            "path": "s3://bucket/corrupted.split",
            "skipTimestamp": 1696000000002,
            "reason": "Corrupted file",
            "operation": "merge",
            "retryAfter": 1696086400000,
        },
        SkipAction,
    )
    assert first_skip.skip_count == 1
    assert first_skip.retry_after == 1696086400000

    first_add = parse_action(
        {
            "path": "s3://bucket/table/part-00000.split",
            "partitionValues": {},
            "size": 1048576,
            "modificationTime": 1696000000000,
            "dataChange": True,
            "stats": "{...}",
            "tags": {},
        },
        AddAction,
    )
    assert first_add.path == "s3://bucket/table/part-00000.split"
    assert first_add.tags == {}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"minReaderVersion": 1}, ProtocolAction),
        ({"minReaderVersion": "one", "minWriterVersion": 1}, ProtocolAction),
        ({"minReaderVersion": 2**40, "minWriterVersion": 1}, ProtocolAction),
        ({"id": "a"}, Metadata),
        ({"id": "a", "schemaString": "{}", "createdTime": 2**70}, Metadata),
        ({"id": "a", "schemaString": "{}", "configuration": {"key": ["list"]}}, Metadata),
        ({**FULL_ADD, "size": 2**70}, AddAction),
        ({**FULL_ADD, "path": None}, AddAction),
        ({"appId": "a", "version": -(2**70)}, TransactionAction),
        ({"version": 1, "timestamp": 1, "numAdds": 1, "recentCommits": {"first": "a"}}, CheckpointInfo),
        ([], ProtocolAction),
        ("text", Metadata),
        (None, SkipAction),
    ],
)
def test_a_mistyped_or_missing_field_is_refused(value, kind):
    with pytest.raises(msgspec.ValidationError):
        parse_action(value, kind)


def test_commit_ids_are_unique():
    assert len({new_commit_id() for _ in range(100)}) == 100


def test_each_action_is_one_line():
    lines = encode_actions([parse_action(FULL_ACTIONS[kind], kind) for kind in ACTION_NAMES])
    assert lines.endswith(b"\n")
    assert [next(iter(json.loads(line))) for line in lines.split(b"\n")[:-1]] == list(ACTION_NAMES.values())
    assert encode_actions([]) == b""
