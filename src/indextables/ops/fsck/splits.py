"""FSCK checks of the splits: each one exists, has the recorded size and opens; a deep check verifies every byte."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import (
    AccessDeniedError,
    DeletionVectorCorruptedError,
    IndexTablesError,
    TransientStorageError,
    UnsafePathError,
)
from indextables.log.deletion_vectors import vector_files
from indextables.log.file_keys import key_or_path, normalised_paths
from indextables.log.version_file import find_object
from indextables.ops.fsck.report import Finding, Severity
from indextables.ops.read import SplitRef, split_refs
from indextables.ops.references import among, data_files
from indextables.ops.runner import Interruption, Runner, Task, TaskStore, parallel_map, results
from indextables.schema import TableShape
from indextables.table import Snapshot, TableContext

_SPLITS_PER_TASK: Final = 16

_UNDELETE: Final = "restore the version before the delete, and delete the rows again"
_LOST: Final = "restore the file from a backup, or remove it from the table and write its rows again"


def check_presence(head: Snapshot, stored: pa.Table, history: pa.Array) -> Iterator[Finding]:
    """Check that the splits of all versions are stored, and that live ones have the size that the log records.

    `stored` may be older than the log, so a split that it lacks is looked up once more.
    """
    context = head.context
    entries = head.select(columns=["path", "size"]).entries
    keys = normalised_paths(entries["path"].combine_chunks(), context.url, key_or_path)
    rows = pc.index_in(keys, value_set=stored["path"].combine_chunks())
    for key in _confirmed_missing(context, keys.filter(rows.is_null())):
        yield Finding(Severity.ERROR, "split-missing", key, "this live split does not exist", _LOST)
    sizes = pa.table(
        {"key": keys, "log": entries["size"], "store": stored["size"].combine_chunks().take(rows)}
    )
    wrong = sizes.filter(pc.fill_null(pc.not_equal(sizes["log"], sizes["store"]), False))
    for row in wrong.to_pylist():
        message = f"the file has {row['store']} bytes, but the log records {row['log']}"
        yield Finding(Severity.ERROR, "split-size", row["key"], message, _LOST)
    # The check of the contents reads the deletion vectors of live splits.
    used = pa.concat_arrays([keys, vector_files(head.entries["deletionVector"])])
    older = history.filter(pc.invert(among(history, used)))
    absent = older.filter(pc.invert(among(older, stored["path"].combine_chunks())))
    for key in _confirmed_missing(context, absent):
        yield Finding(
            Severity.ERROR,
            "old-split-missing",
            key,
            "older versions need this file, which does not exist: time travel to them fails",
            "restore the file from a backup, or drop the old versions with TRUNCATE INDEXTABLES TIME TRAVEL",
        )


def count_orphans(stored: pa.Table, referred: pa.Array, remedy: str) -> Iterator[Finding]:
    """Count the splits and deletion vectors that no version refers to. `remedy` is what to do about them."""
    splits = data_files(stored)
    orphans = splits.filter(pc.invert(among(splits["path"], referred)))
    if orphans.num_rows:
        size_bytes = pc.sum(orphans["size"]).as_py() or 0
        message = f"no readable version refers to {orphans.num_rows} splits or deletion vectors of {size_bytes} bytes"
        yield Finding(Severity.INFO, "orphaned-splits", orphans["path"][0].as_py(), message, remedy)


def check_contents(head: Snapshot, *, deep: bool, runner: Runner) -> Iterator[Finding]:
    """Check that every live split opens and has the recorded number of rows; with `deep`, verify all bytes."""
    refs = split_refs(head.entries)
    tasks = [
        SplitCheck(
            TaskStore.of(head.context),
            tuple(refs[start : start + _SPLITS_PER_TASK]),
            head.shape,
            deep,
        )
        for start in range(0, len(refs), _SPLITS_PER_TASK)
    ]
    for findings in results(runner, "checking splits", tasks):
        yield from findings


@dataclass(frozen=True, slots=True)
class SplitCheck(Task[tuple[Finding, ...]]):
    """Opens a batch of splits and, in a deep check, reads every byte of them."""

    store: TaskStore
    refs: tuple[SplitRef, ...]
    shape: TableShape
    is_deep: bool

    def run(self, interruption: Interruption) -> tuple[Finding, ...]:
        findings = []
        for ref in self.refs:
            interruption.check()
            finding = self._check(ref)
            if finding is not None:
                findings.append(finding)
        return tuple(findings)

    def _check(self, ref: SplitRef) -> Finding | None:
        try:
            split = ref.open(self.store.store, self.shape)
            num_records = split.num_records
            if self.is_deep:
                split.verify()
        except (AccessDeniedError, TransientStorageError):
            raise  # the store failed: no evidence about the split
        except DeletionVectorCorruptedError as error:
            return Finding(Severity.ERROR, "deletion-vector", ref.path, str(error), _UNDELETE)
        except IndexTablesError as error:
            return Finding(Severity.ERROR, "split-unreadable", ref.path, str(error), _LOST)
        if ref.num_records not in (None, num_records):
            message = f"the split has {num_records} rows, but the log records {ref.num_records}"
            return Finding(Severity.ERROR, "split-rows", ref.path, message, _LOST)
        return None


def _confirmed_missing(context: TableContext, keys: pa.Array) -> list[str]:
    """The keys without an object, looked up one by one."""
    names: list[str] = keys.to_pylist()
    are_stored = parallel_map(partial(_is_stored, context), names, context.settings[READ_PARALLELISM])
    return [name for name, is_stored in zip(names, are_stored, strict=True) if not is_stored]


def _is_stored(context: TableContext, key: str) -> bool:
    try:
        return find_object(context.store, key) is not None
    except UnsafePathError:
        return False  # the log names a file outside of the table, which no reader opens
