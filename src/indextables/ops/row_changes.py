"""What DELETE, UPDATE and MERGE share: finding rows of splits, deleting them in one commit, and searching again.

    find rows on snapshot v ──▶ write vectors or splits ──▶ commit on v, or on a newer version ──▶ done
              ▲                                                      │
              │                                      a split that loses rows has changed
              └───────────── on the newest snapshot ◀────────────────┘

Splits that concurrent commits appended meanwhile are not searched: the rows were chosen before they existed.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.registry import (
    DELETE_MODE,
    MERGE_PARALLELISM,
    READ_PARALLELISM,
    TRANSACTION_RETRY_MAX_ATTEMPTS,
)
from indextables.errors import (
    CommitConflictError,
    IndexTablesError,
    SplitCorruptedError,
    UnsupportedSplitError,
)
from indextables.log.actions import AddAction
from indextables.log.deletion_vectors import (
    IN_FILE,
    DeletionVector,
    inline_vector,
    read_vector,
    write_vectors,
)
from indextables.log.fields import DELETION_VECTOR
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.operation import read_for_rewrite
from indextables.ops.merge.task import MergeSource, MergeTask
from indextables.ops.read import SplitRef, open_again, split_refs
from indextables.ops.runner import TaskStore, local_runner, parallel_map, results
from indextables.ops.search import SearchRequest, check_query, matching_rows_of
from indextables.ops.write import add_of, check_uploads, delete_quietly, undoing_unless_landed
from indextables.predicates import columns_of
from indextables.split.split import SplitFile
from indextables.table import CommitResult, Operation, Snapshot, commit
from indextables.table.changes import actions_since
from indextables.table.commit import no_check
from indextables.table.intent import ChangeRows
from indextables.table.load import catch_up
from indextables.table.plan import RowsMovedError
from indextables.table.snapshot import files_of_partitions
from indextables.table.split_protocol import check_accepts_splits

REWRITE: Final = "rewrite"

# The operations that add a split again without new rows in it: it has lost some.
ROW_OPERATIONS: Final = frozenset({"DELETE", "UPDATE", "MERGE ROWS"})

# The rows that are read at a time.
_ROWS_AT_A_TIME: Final = 65_536

RowNumbers: TypeAlias = npt.NDArray[np.int64]

# A split with its deletion vector: what is found in one is found there again.
_SplitKey: TypeAlias = tuple[str, DeletionVector | None]


class FoundRows(msgspec.Struct, frozen=True, eq=False):
    """The rows of a split that match; None for `rows` means all that are left."""

    ref: SplitRef
    rows: RowNumbers | None

    @property
    def count(self) -> int | None:
        """The number of rows; None if they are all that are left, and the log does not record how many."""
        return self.ref.num_live_records if self.rows is None else len(self.rows)


class RowFinder:
    """Finds the rows that match a request, and remembers what it has found in a split."""

    def __init__(self, request: SearchRequest) -> None:
        self._request = request
        self._known: dict[_SplitKey, RowNumbers] = {}

    def find(self, snapshot: Snapshot, skipped: Sequence[str] = ()) -> list[FoundRows]:
        """The splits with matching rows, without those at the paths `skipped`.

        Splits of partitions that match as a whole are not opened. Raises InvalidQueryError, InvalidPredicateError, and
        the errors of unreadable splits.
        """
        where = self._request.where
        check_query(snapshot, self._request)
        if self._is_about_partitions(snapshot):
            assert where is not None
            entries = _whole_partitions(snapshot, self._request)
            return [FoundRows(ref, None) for ref in split_refs(_without(entries, skipped))]
        refs = split_refs(_without(snapshot.select(where).entries, skipped))
        found = parallel_map(partial(self._rows, snapshot), refs, snapshot.context.settings[READ_PARALLELISM])
        return [
            FoundRows(ref, None if len(rows) == ref.num_live_records else rows)
            for ref, rows in zip(refs, found, strict=True)
            if len(rows)
        ]

    def _is_about_partitions(self, snapshot: Snapshot) -> bool:
        where = self._request.where
        return (
            self._request.query is None
            and where is not None
            and columns_of(where) <= frozenset(snapshot.partition_columns)
        )

    def _rows(self, snapshot: Snapshot, ref: SplitRef) -> RowNumbers:
        key = (ref.path, ref.deletion_vector)
        if key not in self._known:
            self._known[key] = matching_rows_of(snapshot, self._request, open_again(snapshot, ref))
        return self._known[key]


class NewRows(msgspec.Struct, frozen=True):
    """Splits that a change adds: uploaded, and not committed yet."""

    files: tuple[SplitFile, ...] = ()


Change: TypeAlias = Callable[[Snapshot, Sequence[FoundRows]], NewRows]


class RowChange(msgspec.Struct, frozen=True):
    """A commit that deleted rows, where it found them, and what it added; `result` is None if it found none."""

    found: tuple[FoundRows, ...]
    new: NewRows
    result: CommitResult | None
    snapshot: Snapshot


def no_new_rows(_: Snapshot, __: Sequence[FoundRows]) -> NewRows:
    """The change of a delete."""
    return NewRows()


def change_rows(
    snapshot: Snapshot,
    find: Callable[[Snapshot, Sequence[str]], Sequence[FoundRows]],
    operation: Callable[[Sequence[FoundRows]], Operation],
    change: Change = no_new_rows,
    *,
    intent: type[ChangeRows] = ChangeRows,
    before_each_try: Callable[[Snapshot], None] = no_check,
) -> RowChange:
    """Delete the rows that `find` finds, and add those of `change`, in one commit.

    `find` gets a snapshot and the paths to leave out. After a concurrent commit that changed a split with such rows,
    or if `before_each_try` raises RowsMovedError, it is called again, with the newest snapshot. Raises
    CommitConflictError if that happens too often, and what `commit` raises.
    """
    context, start = snapshot.context, snapshot.version
    skipped: Sequence[str] = ()
    attempts = context.settings[TRANSACTION_RETRY_MAX_ATTEMPTS]
    for _ in range(attempts):
        found = tuple(find(snapshot, skipped))
        new = change(snapshot, found)
        if not found and not new.files:
            return RowChange(found, new, None, snapshot)
        try:
            with _committable(snapshot, found, new, intent) as prepared:
                checks = (before_each_try, prepared.check_uploads)
                result = commit(
                    snapshot, prepared.intent, operation(found), before_each_try=partial(_check_all, checks)
                )
        except RowsMovedError:
            snapshot = catch_up(snapshot).snapshot
            skipped = _appended_since(snapshot, start)
            continue
        return RowChange(found, new, result, after_commit(result.snapshot))
    raise CommitConflictError(
        f"{context.url}: nothing was committed, because concurrent commits moved or deleted rows of the same splits in "
        f"each of {attempts} attempts; start again, or raise {TRANSACTION_RETRY_MAX_ATTEMPTS.key}"
    )


def _check_all(checks: Sequence[Callable[[Snapshot], None]], snapshot: Snapshot) -> None:
    for check in checks:
        check(snapshot)


class _Prepared(msgspec.Struct, frozen=True):
    """A transaction, and when the files that it adds were uploaded."""

    intent: ChangeRows
    uploaded_ms: Mapping[str, int]

    def check_uploads(self, snapshot: Snapshot) -> None:
        check_uploads(self.uploaded_ms, snapshot)


@contextlib.contextmanager
def _committable(
    snapshot: Snapshot, found: Sequence[FoundRows], new: NewRows, intent: type[ChangeRows]
) -> Iterator[_Prepared]:
    """The transaction. If it provably does not land, its files are deleted."""
    uploaded = {file.path: file.modification_time_ms for file in new.files}
    undo = partial(_delete_uploads, snapshot, uploaded)
    with undoing_unless_landed(undo):
        try:
            prepared = _prepare(snapshot, found, new, intent, uploaded)
        except BaseException:
            undo()  # before the commit begins, no log can refer to them
            raise
        yield prepared


def _delete_uploads(snapshot: Snapshot, uploaded: Mapping[str, int]) -> None:
    delete_quietly(snapshot.context.store, list(uploaded))


def _prepare(
    snapshot: Snapshot,
    found: Sequence[FoundRows],
    new: NewRows,
    intent: type[ChangeRows],
    uploaded: dict[str, int],
) -> _Prepared:
    """Write what the transaction needs, and note it in `uploaded`."""
    partly = [each for each in found if each.rows is not None]
    if partly or new.files:
        check_accepts_splits(snapshot)
    entries = read_for_rewrite(snapshot).entries
    before = entries.filter(pc.is_in(entries["path"], value_set=_paths(found)))
    rewritten: list[SplitFile] = []
    adds: list[AddAction] = []
    after = before.slice(0, 0)
    if partly and snapshot.context.settings[DELETE_MODE] == REWRITE:
        for merge_ops, files in _rewrite(snapshot, partly, before):
            uploaded |= {file.path: file.modification_time_ms for file in files}
            rewritten += files
            adds += [msgspec.structs.replace(add_of(file), num_merge_ops=merge_ops) for file in files]
    elif partly:
        after = before.filter(pc.is_in(before["path"], value_set=_paths(partly)))
        after = _with_vectors(snapshot, after, partly, uploaded)
    files = (*rewritten, *new.files)
    return _Prepared(
        intent(
            before,
            after,
            (*adds, *(add_of(file) for file in new.files)),
            {file.doc_mapping_ref: file.doc_mapping_json for file in files},
        ),
        uploaded,
    )


def _with_vectors(
    snapshot: Snapshot, entries: pa.Table, found: Sequence[FoundRows], uploaded: dict[str, int]
) -> pa.Table:
    """The entries with new deletion vectors, which are written to the store."""
    store = snapshot.context.store
    deleted = {each.ref.path: all_deleted(snapshot, each) for each in found}
    paths = entries["path"].to_pylist()
    vectors = write_vectors(store, [deleted[path] for path in paths])
    now_ms = store.clock.now_ms()
    uploaded |= {vector.path_or_inline_dv: now_ms for vector in vectors if vector.storage_type == IN_FILE}
    column = pa.array([msgspec.to_builtins(vector) for vector in vectors], DELETION_VECTOR)
    index = entries.schema.get_field_index("deletionVector")
    return entries.set_column(index, entries.schema.field(index), column)


def _rewrite(
    snapshot: Snapshot, found: Sequence[FoundRows], entries: pa.Table
) -> Iterator[tuple[int | None, tuple[SplitFile, ...]]]:
    """Write the rows that are left of each split to a new split; yields the merges of the old one, and the new ones."""
    context = snapshot.context
    merge_ops = dict(zip(entries["path"].to_pylist(), entries["numMergeOps"].to_pylist(), strict=True))
    tags = dict(zip(entries["path"].to_pylist(), entries["splitTags"].to_pylist(), strict=True))
    store = TaskStore.of(context)
    sources = [
        MergeSource(
            msgspec.structs.replace(each.ref, deletion_vector=inline_vector(all_deleted(snapshot, each))),
            split_tags=tuple(tags[each.ref.path] or ()),
        )
        for each in found
    ]
    tasks = [MergeTask(store, snapshot.shape, context.settings, (source,)) for source in sources]
    runner = local_runner(context, MERGE_PARALLELISM)
    for group in results(runner, "rewriting splits", tasks):
        for bad in group.bad_sources:
            raise SplitCorruptedError(f"{context.url}: {bad.path} cannot be rewritten: {bad.reason}")
        yield merge_ops[group.sources[0].path], group.files


def rows_at(snapshot: Snapshot, found: FoundRows) -> Iterator[pa.Table]:
    """The rows that were found in a split, some at a time. Raises UnsupportedSplitError if it does not store them."""
    split = open_again(snapshot, found.ref)
    if split.unreadable_columns:
        raise UnsupportedSplitError(
            f"{snapshot.context.url}: {split.path} has columns that are indexed but not stored "
            f"({', '.join(split.unreadable_columns)}); a change of its rows would lose them"
        )
    if found.rows is None:
        for batch in split.scan():
            yield pa.Table.from_batches([batch])
        return
    for start in range(0, len(found.rows), _ROWS_AT_A_TIME):
        yield split.take(found.rows[start : start + _ROWS_AT_A_TIME])


def all_deleted(snapshot: Snapshot, found: FoundRows) -> RowNumbers:
    """The rows of a split that are deleted afterwards: those that were before, and those that were found."""
    assert found.rows is not None
    ref, store = found.ref, snapshot.context.store
    if ref.deletion_vector is None:
        return found.rows
    before = read_vector(store, ref.deletion_vector, f"{store.url}: {ref.path}")
    return np.union1d(before, found.rows)


def _whole_partitions(snapshot: Snapshot, request: SearchRequest) -> pa.Table:
    assert request.where is not None
    return files_of_partitions(snapshot, request.where, snapshot.entries.column_names)


def _without(entries: pa.Table, paths: Sequence[str]) -> pa.Table:
    if not paths:
        return entries
    return entries.filter(pc.invert(pc.is_in(entries["path"], value_set=pa.array(paths, pa.string()))))


def _paths(found: Sequence[FoundRows]) -> pa.Array:
    return pa.array([each.ref.path for each in found], pa.string())


def _appended_since(snapshot: Snapshot, version: int) -> list[str]:
    """The paths that commits after a version only added: none if the log no longer has them all."""
    try:
        tail = actions_since(snapshot, version)
    except IndexTablesError:
        return []
    if tail is None:
        return []
    removing = pc.unique(tail.removes["version"])
    is_appended = pc.invert(pc.is_in(tail.adds["addedAtVersion"], value_set=removing))
    paths: list[str] = tail.adds["path"].filter(is_appended).to_pylist()
    return paths
