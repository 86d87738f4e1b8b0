"""The peer deltalake: the same files in a Delta log, and the measured operations."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties

from benchmarks.files import PARTITION_COLUMN, SCHEMA, DataFile

_SCHEMA = Schema.from_arrow(SCHEMA)
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_PATIENT = CommitProperties(max_commit_retries=1_000)


def create_table(path: Path) -> DeltaTable:
    """An empty table."""
    return DeltaTable.create(str(path), _SCHEMA, partition_by=[PARTITION_COLUMN])


def build_table(path: Path, files: Iterable[DataFile]) -> None:
    """Build a table with these files in one version, with a checkpoint."""
    create_table(path)
    with _version_file(path, 1).open("w") as stream:
        stream.writelines(_add_line(file) for file in files)
    DeltaTable(str(path)).create_checkpoint()


def build_versions(path: Path, files: Sequence[DataFile], versions: int) -> None:
    """Build a table with one file per version and no checkpoint."""
    create_table(path)
    for version in range(1, versions):
        _version_file(path, version).write_text(_add_line(files[version]))


def list_files(path: str | Path) -> pa.Table:
    """Open a table and list all files."""
    return pa.table(DeltaTable(str(path)).get_add_actions(flatten=False))


def list_partition(path: str | Path, value: str) -> list[str]:
    """Open a table and list one partition."""
    return DeltaTable(str(path)).file_uris(file_pruning_predicate=[(PARTITION_COLUMN, "=", value)])


def compact(path: str | Path) -> range:
    """Write a checkpoint; returns the number of entries."""
    table = DeltaTable(str(path))
    table.create_checkpoint()
    return range(len(table.file_uris()))


def commit(table: DeltaTable, adds: Sequence[AddAction]) -> None:
    """Commit metadata only, without a checkpoint. The table object stays at its version."""
    table.create_write_transaction(
        list(adds),
        "append",
        _SCHEMA,
        [PARTITION_COLUMN],
        commit_properties=_PATIENT,
        post_commithook_properties=_NO_HOOKS,
    )


def add_action(file: DataFile) -> AddAction:
    """A file as an add action of deltalake."""
    return AddAction(**_add_fields(file))


def _version_file(path: Path, version: int) -> Path:
    return path / "_delta_log" / f"{version:020d}.json"


def _add_line(file: DataFile) -> str:
    fields = _add_fields(file)
    return (
        json.dumps(
            {
                "add": {
                    "path": fields["path"],
                    "partitionValues": fields["partition_values"],
                    "size": fields["size"],
                    "modificationTime": fields["modification_time"],
                    "dataChange": fields["data_change"],
                    "stats": fields["stats"],
                }
            }
        )
        + "\n"
    )


def _add_fields(file: DataFile) -> dict[str, Any]:
    stats = {
        "numRecords": file.num_records,
        "minValues": {"id": file.min_id, "score": file.min_score, "name": file.min_name},
        "maxValues": {"id": file.max_id, "score": file.max_score, "name": file.max_name},
        "nullCount": {"id": 0, "score": 0, "name": 0},
    }
    return {
        "path": file.path,
        "size": file.size,
        "partition_values": {PARTITION_COLUMN: file.date.isoformat()},
        "modification_time": file.modified_ms,
        "data_change": True,
        "stats": json.dumps(stats),
    }
