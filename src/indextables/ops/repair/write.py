"""The writes of a repair: back up the old log, write the new one, delete the old one, copy splits.

The new log is a single version that holds the whole table, and the state of that version.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import READ_PARALLELISM, TRANSACTION_COMPRESSION_ENABLED
from indextables.errors import CommitConflictError, ObjectNotFoundError, SplitWriteError, StorageError
from indextables.log.actions import (
    ENGINE_INFO,
    AnyAction,
    CommitInfo,
    TransactionAction,
    encode_actions,
    new_commit_id,
)
from indextables.log.deletion_vectors import live_counts, vector_files
from indextables.log.entries import add_lines, remove_lines
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    STATE_PREFIX,
    VersionFile,
    parse_log_path,
    state_dir,
)
from indextables.log.replay import RECENT_COMMITS, LogHeader
from indextables.log.segment import BaseFormat, LastCheckpoint, build_listing
from indextables.log.version_file import Conflict, compress, write_version_file
from indextables.ops.repair.evidence import REPAIR_OPERATION
from indextables.ops.repair.identity import Identity
from indextables.ops.repair.plan import RepairPlan
from indextables.ops.runner import Interruption, Runner, Task, TaskStore, parallel_map, results
from indextables.schema import TableShape, from_spark_json
from indextables.split.builder import memory_mapped
from indextables.state.writer import StateTarget, write_full_state
from indextables.storage import ObjectMeta, ObjectStore
from indextables.table import TableContext

_CHUNK_BYTES: Final = 8 * 1024**2
_CHECKSUM_SUFFIX: Final = ".crc"


def back_up_log(context: TableContext, metas: Sequence[ObjectMeta]) -> str:
    """Copy every file of the log to a new folder, and return that folder.

    Raises StorageError if a copy fails or does not match. The log is unchanged then; a partial copy may remain.
    """
    folder = _new_backup_folder(context.store)
    copy = partial(_copy_to_backup, context.store, folder)
    parallel_map(copy, metas, context.settings[READ_PARALLELISM])
    copied_sizes = {meta.key: meta.size for meta in context.store.list(folder)}
    for meta in metas:
        copied_size = copied_sizes.get(_backup_key(meta.key, folder))
        if copied_size != meta.size and _exists(context.store, meta.key):
            found = "is missing there" if copied_size is None else f"has {copied_size} bytes there"
            raise StorageError(
                f"{context.url}: {meta.key} ({meta.size} bytes) was copied to {folder}, but {found}; the log was not "
                f"changed. Repair again"
            )
    return folder


def write_log(context: TableContext, plan: RepairPlan, identity: Identity, before: LogHeader) -> None:
    """Write the version of a plan, then its state, then the hint that points at the state.

    The version is written only if absent, which fences off concurrent writers. It adds the whole table and removes
    every other file of the old log, so a reader gets the same table whether it replays this version on top of the old
    log or loads its state alone.

    Raises CommitConflictError, with nothing changed, if another writer committed that version first.
    """
    context = context.with_properties(identity.metadata)
    info = _commit_info(context.store, plan, before)
    header = _header(plan, identity, before, info)
    lines = _lines(plan, header, info)
    data = compress(lines) if context.settings[TRANSACTION_COMPRESSION_ENABLED] else lines
    if isinstance(write_version_file(context.store, plan.version, data), Conflict):
        raise CommitConflictError(
            f"{context.url}: another writer committed version {plan.version} during the repair; nothing was changed. "
            f"Stop all writers and repair again"
        )
    schema = from_spark_json(identity.metadata.schema_string)
    target = StateTarget.from_settings(
        context.store, TableShape(schema, identity.metadata.partition_columns), context.settings
    )
    state = write_full_state(target, header, plan.entries).state
    hint = LastCheckpoint(
        version=plan.version,
        size=state.num_files,
        size_in_bytes=state.total_bytes,
        num_files=state.num_files,
        created_time=context.store.clock.now_ms(),
        format=BaseFormat.AVRO_STATE.value,
        state_dir=state_dir(plan.version),
        protocol_version=identity.protocol.min_reader_version,
    )
    # Overwrite the old hint unconditionally: it may be damaged, or point past the new version.
    context.store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(hint))


def delete_old_log(context: TableContext, metas: Sequence[ObjectMeta]) -> None:
    """Delete the files of the old log, and keep files in its folder that are not log files.

    A file is deleted before the files that it refers to, so that no reader follows a dangling reference.
    """
    bases = {base.meta.key for base in build_listing(metas).bases_newest_first()}
    old = [meta.key for meta in metas if _is_log_file(meta.key) and meta.key != LAST_CHECKPOINT_KEY]
    context.store.delete_many(sorted(old, key=lambda key: _deletion_rank(key, bases)))
    context.store.remove_empty_folders(STATE_PREFIX)
    context.cache.invalidate(context.store)


def copy_splits(source: TableContext, target: TableContext, entries: pa.Table, runner: Runner) -> None:
    """Copy the splits and deletion vectors of entries to the same paths under another root.

    Raises StorageError and SplitWriteError.
    """
    stores = TaskStore.of(source), TaskStore.of(target)
    columns = (entries[name].to_pylist() for name in ("path", "size"))
    tasks = [CopySplit(*stores, path, size) for path, size in zip(*columns, strict=True)]
    vectors = vector_files(entries["deletionVector"]).to_pylist()
    tasks += [
        CopySplit(*stores, path, source.store.head(path).size)
        for path in vectors
        if _exists(source.store, path)
    ]
    for _ in results(runner, "copying splits", tasks):
        pass


@dataclass(frozen=True, slots=True)
class CopySplit(Task[None]):
    """Copies one split through a local file, because a split may be larger than memory."""

    source: TaskStore
    target: TaskStore
    key: str
    size: int

    def run(self, interruption: Interruption) -> None:
        with _scratch_file() as path:
            with path.open("wb") as file:
                for start in range(0, self.size, _CHUNK_BYTES):
                    interruption.check()
                    end = min(start + _CHUNK_BYTES, self.size)
                    file.write(self.source.store.get_range(self.key, start, end))
            self.target.store.put(self.key, cast("bytes", memory_mapped(path)))


@contextmanager
def _scratch_file() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="indextables-", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "split"
    except OSError as error:
        raise SplitWriteError(
            f"cannot copy a split through the temporary folder {tempfile.gettempdir()}: {error}; free disk space, or "
            f"set TMPDIR to another folder"
        ) from error


def _is_log_file(key: str) -> bool:
    """Whether a key is a log file, or Hadoop's checksum of one, which is stale once the log file is replaced."""
    folder, _, name = key.rpartition("/")
    is_checksum = name.startswith(".") and name.endswith(_CHECKSUM_SUFFIX)
    checked_key = f"{folder}/{name.removeprefix('.').removesuffix(_CHECKSUM_SUFFIX)}" if is_checksum else key
    return parse_log_path(checked_key) is not None


def _deletion_rank(key: str, bases: set[str]) -> int:
    """Checkpoints first, then versions, then the manifests and parts that checkpoints refer to."""
    if key in bases:
        return 0
    return 1 if isinstance(parse_log_path(key), VersionFile) else 2


def _new_backup_folder(store: ObjectStore) -> str:
    moment = datetime.fromtimestamp(store.clock.now_ms() / 1000, UTC)
    name = f"{LOG_PREFIX.rstrip('/')}.damaged-{moment:%Y%m%dT%H%M%S}Z"
    number = 1
    folder = f"{name}/"
    while next(iter(store.list(folder)), None) is not None:
        number += 1
        folder = f"{name}-{number}/"
    return folder


def _backup_key(key: str, folder: str) -> str:
    return folder + key.removeprefix(LOG_PREFIX)


def _copy_to_backup(store: ObjectStore, folder: str, meta: ObjectMeta) -> None:
    try:
        store.put(_backup_key(meta.key, folder), store.get(meta.key))
    except ObjectNotFoundError:
        return  # a concurrent cleanup deleted it after the listing


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except ObjectNotFoundError:
        return False
    return True


def _commit_info(store: ObjectStore, plan: RepairPlan, before: LogHeader) -> CommitInfo:
    return CommitInfo(
        commit_id=new_commit_id(),
        timestamp=max(store.clock.now_ms(), before.timestamp_ms),
        operation=REPAIR_OPERATION,
        operation_metrics={
            "numAddedFiles": plan.entries.num_rows,
            "numAddedBytes": plan.total_bytes,
            "numAddedRows": pc.sum(live_counts(plan.entries)).as_py() or 0,
            "numRemovedFiles": plan.removed.num_rows,
        },
        engine_info=ENGINE_INFO,
    )


def _header(plan: RepairPlan, identity: Identity, before: LogHeader, info: CommitInfo) -> LogHeader:
    paths = frozenset(plan.entries["path"].to_pylist()) if before.skips else frozenset()
    commits = {**before.recent_commits, plan.version: info.commit_id}
    return replace(
        before,
        version=plan.version,
        timestamp_ms=info.timestamp,
        protocol=identity.protocol,
        metadata=identity.metadata,
        doc_mappings=identity.doc_mappings,
        skips={path: skip for path, skip in before.skips.items() if path in paths},
        recent_commits=dict(sorted(commits.items())[-RECENT_COMMITS:]),
    )


def _lines(plan: RepairPlan, header: LogHeader, info: CommitInfo) -> bytes:
    assert header.protocol is not None  # _header takes both from the identity
    assert header.metadata is not None
    actions: list[AnyAction] = [info, header.protocol, header.metadata]
    actions += _transactions(header)
    actions += header.skips.values()
    removes = remove_lines(plan.removed, info.timestamp, True) if plan.removed.num_rows else b""
    unknown = "".join(f"{line}\n" for line in header.unknown_actions)
    return encode_actions(actions) + unknown.encode() + removes + add_lines(plan.entries)


def _transactions(header: LogHeader) -> Sequence[TransactionAction]:
    return [TransactionAction(app_id=app, version=version) for app, version in header.transactions.items()]
