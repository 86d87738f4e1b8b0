"""Checks of the splits: each one is there, has its size, and can be opened; deeply, every byte is as written."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import READ_PARALLELISM
from indextables.errors import AccessDeniedError, IndexTablesError, TransientStorageError, UnsafePathError
from indextables.log.version_file import find_object
from indextables.ops.fsck.report import Finding, Severity
from indextables.ops.read import SplitRef, split_refs
from indextables.ops.references import among, key_or_path, normalised_paths, split_files
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore, parallel_map
from indextables.split.reader import open_split
from indextables.storage import relative_key
from indextables.table import Snapshot, TableContext

_SPLITS_PER_TASK: Final = 16

_LOST: Final = "restore the file from a backup, or remove it from the table and write its rows again"


def check_presence(head: Snapshot, stored: pa.Table, history: pa.Array) -> Iterator[Finding]:
    """Live splits, and those that older versions show, are in the store; live ones with the size that the log says.

    `stored` may be older than the log: what it lacks is asked for once more.
    """
    context = head.context
    entries = head.select(columns=["path", "size"]).entries
    keys = normalised_paths(entries["path"].combine_chunks(), context.url, key_or_path)
    place = pc.index_in(keys, value_set=stored["path"].combine_chunks())
    missing = _confirmed_missing(context, keys.filter(place.is_null()))
    for key in missing:
        yield Finding(Severity.ERROR, "split-missing", key, "a live split is not there", _LOST)
    sizes = pa.table(
        {"key": keys, "log": entries["size"], "store": stored["size"].combine_chunks().take(place)}
    )
    wrong = sizes.filter(pc.fill_null(pc.not_equal(sizes["log"], sizes["store"]), False))
    for row in wrong.to_pylist():
        message = f"it has {row['store']} bytes, and the log says {row['log']}"
        yield Finding(Severity.ERROR, "split-size", row["key"], message, _LOST)
    older = history.filter(pc.invert(among(history, keys)))
    absent = older.filter(pc.invert(among(older, stored["path"].combine_chunks())))
    for key in _confirmed_missing(context, absent):
        message = "older versions need this split, which is not there: time travel to them fails"
        yield Finding(
            Severity.ERROR,
            "old-split-missing",
            key,
            message,
            "TRUNCATE INDEXTABLES TIME TRAVEL ends the promise",
        )


def count_orphans(stored: pa.Table, referred: pa.Array, remedy: str) -> Iterator[Finding]:
    """How many splits no version refers to; `remedy` is what becomes of them."""
    splits = split_files(stored)
    loose = splits.filter(pc.invert(among(splits["path"], referred)))
    if loose.num_rows:
        size = pc.sum(loose["size"]).as_py() or 0
        message = f"{loose.num_rows} splits of {size} bytes are referred to by no version that can be read"
        yield Finding(Severity.INFO, "orphaned-splits", loose["path"][0].as_py(), message, remedy)


def check_contents(head: Snapshot, *, deep: bool, runner: Runner) -> Iterator[Finding]:
    """Every live split can be opened and has as many rows as the log says; with `deep`, all bytes are right."""
    refs = split_refs(head.entries)
    tasks = [
        SplitCheck(
            TaskStore.of(head.context),
            tuple(refs[start : start + _SPLITS_PER_TASK]),
            head.schema,
            head.partition_columns,
            deep,
        )
        for start in range(0, len(refs), _SPLITS_PER_TASK)
    ]
    for outcome in runner.run("checking splits", tasks):
        if isinstance(outcome, Failed):
            raise outcome.error
        yield from outcome.result


@dataclass(frozen=True, slots=True)
class SplitCheck(Task[tuple[Finding, ...]]):
    """Opens some splits and, if it is a deep check, reads all of them."""

    store: TaskStore
    refs: tuple[SplitRef, ...]
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    is_deep: bool

    def run(self, interruption: Interruption) -> tuple[Finding, ...]:
        """What is wrong with these splits."""
        found = []
        for ref in self.refs:
            interruption.check()
            finding = self._check(ref)
            if finding is not None:
                found.append(finding)
        return tuple(found)

    def _check(self, ref: SplitRef) -> Finding | None:
        store = self.store.store
        try:
            split = open_split(
                store,
                relative_key(ref.path, store.url),
                ref.size,
                ref.footer_start_offset,
                ref.footer_end_offset,
                schema=self.schema,
                partition_columns=self.partition_columns,
                partition_values=ref.partition_values,
            )
            num_records = split.num_records
            if self.is_deep:
                split.verify()
        except (AccessDeniedError, TransientStorageError):
            raise  # says nothing about the split
        except IndexTablesError as error:
            return Finding(Severity.ERROR, "split-unreadable", ref.path, str(error), _LOST)
        if ref.num_records not in (None, num_records):
            message = f"it has {num_records} rows, and the log says {ref.num_records}"
            return Finding(Severity.ERROR, "split-rows", ref.path, message, _LOST)
        return None


def _confirmed_missing(context: TableContext, keys: pa.Array) -> list[str]:
    """Those of the keys under which there is nothing now."""
    names: list[str] = keys.to_pylist()
    is_there = parallel_map(partial(_is_there, context), names, context.settings[READ_PARALLELISM])
    return [name for name, found in zip(names, is_there, strict=True) if not found]


def _is_there(context: TableContext, key: str) -> bool:
    try:
        return find_object(context.store, key) is not None
    except UnsafePathError:
        return False  # the log names a file outside of the table, which nobody reads
