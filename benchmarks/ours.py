"""Our side: building tables of generated files, and the measured operations."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.files import PARTITION_COLUMN, SCHEMA, DataFile, in_chunks
from indextables import AddAction, IndexTable
from indextables.log.actions import encode_actions
from indextables.log.paths import SHARED_MANIFEST_PREFIX, state_manifest_key, version_key
from indextables.log.version_file import compress

# Peers have no caches that outlive a table object.
NO_CACHE = {"spark.indextables.transaction.cache.enabled": "false"}
NO_CHECKPOINTS = {**NO_CACHE, "spark.indextables.checkpoint.enabled": "false"}
CHECKPOINT_EVERY_COMMIT = {**NO_CACHE, "spark.indextables.checkpoint.interval": "1"}
PATIENT = {**NO_CHECKPOINTS, "spark.indextables.transaction.retry.maxAttempts": "1000"}

_STATE_FORMAT = "spark.indextables.state.format"
_VERSION_FILES = 100_000


def create_table(path: Path, options: Mapping[str, str] = NO_CHECKPOINTS) -> IndexTable:
    """An empty table."""
    return IndexTable.create(str(path), SCHEMA, partition_by=[PARTITION_COLUMN], options=options)


def build_table(path: Path, files: Iterable[DataFile], state_format: str) -> None:
    """Build a table with these files and a checkpoint (avro, json, parquet) at its newest version."""
    table = create_table(path, {**NO_CHECKPOINTS, _STATE_FORMAT: state_format})
    for version, chunk in enumerate(in_chunks(iter(files), _VERSION_FILES), start=1):
        (path / version_key(version)).write_bytes(encode_actions([add_action(file) for file in chunk]))
    table.checkpoint()


def build_versions(path: Path, files: Sequence[DataFile], versions: int) -> None:
    """Build a table with one file per version and no checkpoint."""
    create_table(path)
    for version in range(1, versions):
        lines = encode_actions([add_action(files[version])])
        (path / version_key(version)).write_bytes(compress(lines))


def open_table(path: str | Path, options: Mapping[str, str] = NO_CACHE) -> IndexTable:
    """Open the newest version, without caches."""
    return IndexTable(str(path), options=options)


def list_files(path: str | Path) -> pa.Table:
    """Open a table and list all files."""
    return open_table(path).files()


def list_partition(path: str | Path, value: str) -> pa.Table:
    """Open a table and list one partition."""
    return open_table(path).files(where=f"{PARTITION_COLUMN} = '{value}'")


def compact(path: str | Path) -> range:
    """Rewrite the state; returns the number of entries."""
    return range(open_table(path, NO_CHECKPOINTS).compact().num_files)


def build_manifests(path: Path, files: Iterable[DataFile], per_manifest: int) -> None:
    """Build a table whose state has a manifest per chunk of files."""
    table = create_table(path)
    for chunk in in_chunks(iter(files), per_manifest):
        table.commit(adds=[add_action(file) for file in chunk])
        table.checkpoint()


def version_bytes(path: Path, version: int) -> bytes:
    """A version file on disk."""
    return (path / version_key(version)).read_bytes()


def state_bytes(path: Path, version: int) -> int:
    """The size of a table's state with its manifests, for a table with only one state."""
    files = [path / state_manifest_key(version), *(path / SHARED_MANIFEST_PREFIX).iterdir()]
    return sum(file.stat().st_size for file in files)


def add_action(file: DataFile) -> AddAction:
    """A file as an add action, with the footer offsets and the size of the rows that every split has."""
    return AddAction(
        path=file.path,
        partition_values={PARTITION_COLUMN: file.date.isoformat()},
        size=file.size,
        modification_time=file.modified_ms,
        data_change=True,
        num_records=file.num_records,
        min_values={"id": str(file.min_id), "score": str(file.min_score), "name": file.min_name},
        max_values={"id": str(file.max_id), "score": str(file.max_score), "name": file.max_name},
        footer_start_offset=file.size - 4_096,
        footer_end_offset=file.size,
        has_footer_offsets=True,
        uncompressed_size_bytes=2 * file.size,
    )
