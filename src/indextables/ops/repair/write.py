"""Writing the log that a repair made: one version that holds everything, and its state."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.config.registry import TRANSACTION_COMPRESSION_ENABLED
from indextables.errors import CommitConflictError, SplitWriteError
from indextables.log.actions import (
    ENGINE_INFO,
    AnyAction,
    CommitInfo,
    TransactionAction,
    encode_actions,
    new_commit_id,
)
from indextables.log.checkpoint import LastCheckpoint
from indextables.log.entries import add_lines, remove_lines
from indextables.log.paths import LAST_CHECKPOINT_KEY, state_dir
from indextables.log.replay import RECENT_COMMITS, LogHeader
from indextables.log.segment import BaseFormat
from indextables.log.version_file import Conflict, compress, write_version_file
from indextables.ops.repair.evidence import REPAIR_OPERATION
from indextables.ops.repair.identity import Identity
from indextables.ops.repair.plan import RepairPlan
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore
from indextables.schema import TableShape, from_spark_json
from indextables.split.builder import mapped
from indextables.state.writer import StateTarget, write_full_state
from indextables.storage import ObjectStore
from indextables.table import TableContext

_CHUNK_BYTES: Final = 8 * 1024**2


def write_log(context: TableContext, plan: RepairPlan, identity: Identity, before: LogHeader) -> None:
    """Write the version of a plan, then its state and the hint at it.

    The version is written if it is absent, which keeps other writers out. It holds the whole table, and removes what
    the old log had beyond that: replayed on top of the old log, or read by its state alone, it is the same table.

    Raises CommitConflictError, with nothing changed, if another writer has committed that version meanwhile.
    """
    context = context.with_properties(identity.metadata)
    info = _commit_info(context.store, plan, before)
    header = _header(plan, identity, before, info)
    lines = _lines(plan, header, info)
    data = compress(lines) if context.settings[TRANSACTION_COMPRESSION_ENABLED] else lines
    if isinstance(write_version_file(context.store, plan.version, data), Conflict):
        raise CommitConflictError(
            f"{context.url}: version {plan.version} was committed by another writer while the log was being repaired; "
            f"nothing was changed. Stop the writers, and repair again"
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
    # Whatever the old hint said: it may be damaged, or point beyond.
    context.store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(hint))


def copy_splits(source: TableContext, target: TableContext, entries: pa.Table, runner: Runner) -> None:
    """Copy the splits of entries to the same paths below another root. Raises storage errors and SplitWriteError."""
    stores = TaskStore.of(source), TaskStore.of(target)
    columns = (entries[name].to_pylist() for name in ("path", "size"))
    tasks = [CopySplit(*stores, path, size) for path, size in zip(*columns, strict=True)]
    for outcome in runner.run("copying splits", tasks):
        if isinstance(outcome, Failed):
            raise outcome.error


@dataclass(frozen=True, slots=True)
class CopySplit(Task[None]):
    """Copies one split, by way of a local file: it may be larger than memory."""

    source: TaskStore
    target: TaskStore
    key: str
    size: int

    def run(self, interruption: Interruption) -> None:
        """Read the split in pieces, and write it as a whole."""
        with _scratch_file() as path:
            with path.open("wb") as file:
                for start in range(0, self.size, _CHUNK_BYTES):
                    interruption.check()
                    end = min(start + _CHUNK_BYTES, self.size)
                    file.write(self.source.store.get_range(self.key, start, end))
            self.target.store.put(self.key, cast("bytes", mapped(path)))


@contextmanager
def _scratch_file() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="indextables-", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "split"
    except OSError as error:
        raise SplitWriteError(f"a split cannot be copied by way of the local disk: {error}") from error


def _commit_info(store: ObjectStore, plan: RepairPlan, before: LogHeader) -> CommitInfo:
    return CommitInfo(
        commit_id=new_commit_id(),
        timestamp=max(store.clock.now_ms(), before.timestamp_ms),
        operation=REPAIR_OPERATION,
        operation_metrics={
            "numAddedFiles": plan.entries.num_rows,
            "numAddedBytes": plan.total_bytes,
            "numAddedRows": pc.sum(plan.entries["numRecords"]).as_py() or 0,
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
        schema_registry=identity.schema_registry,
        skips={path: skip for path, skip in before.skips.items() if path in paths},
        recent_commits=dict(sorted(commits.items())[-RECENT_COMMITS:]),
    )


def _lines(plan: RepairPlan, header: LogHeader, info: CommitInfo) -> bytes:
    assert header.protocol is not None  # both come from the identity
    assert header.metadata is not None
    actions: list[AnyAction] = [info, header.protocol, header.metadata]
    actions += _batches(header)
    actions += header.skips.values()
    removes = remove_lines(plan.removed, info.timestamp, True) if plan.removed.num_rows else b""
    unknown = "".join(f"{line}\n" for line in header.unknown_actions)
    return encode_actions(actions) + unknown.encode() + removes + add_lines(plan.entries)


def _batches(header: LogHeader) -> Sequence[TransactionAction]:
    return [TransactionAction(app_id=app, version=version) for app, version in header.transactions.items()]
