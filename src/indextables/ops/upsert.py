"""MERGE INTO: updates, deletes and inserts rows by the rows of a source with the same keys, in one commit.

    keys of the source ──▶ splits that may have them ──▶ rows with one of the keys: matched, the others: not matched
                                                             │                                │
                                  first clause that holds: update or delete                 insert
                                                             └───────────▶ one commit ◀───────┘

Two upserts of the same key never both insert it. Before each try to commit, splits that are new since the rows were
found are searched for the keys of the source; if they have one, the rows are found again, on the newest version.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables._arrow import arrow_from_numpy
from indextables._results import MESSAGE, TABLE_PATH, Column, Columns, Status
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidOptionError, InvalidValueError
from indextables.log.actions import check_writable
from indextables.log.deletion_vectors import DeletionVector
from indextables.ops.read import SplitRef, open_again, split_refs
from indextables.ops.row_changes import FoundRows, NewRows, change_rows, rows_at
from indextables.ops.row_counts import PARTITION_ROWS, Counted, PartitionCount, partition_counts, total_rows
from indextables.ops.runner import parallel_map
from indextables.ops.source_keys import Numbers, SourceKeys, joined
from indextables.ops.upsert_clauses import Clause, WhenMatched, WhenNotMatched
from indextables.ops.write import write_splits
from indextables.schema import find_column
from indextables.schema.conversion import without_views
from indextables.split.writer import conform, rows_by_partition
from indextables.table import CommitResult, Operation, Snapshot
from indextables.table.intent import Upsert
from indextables.table.plan import RowsMovedError

# Rows of a split are looked up together until they are this many.
_ROWS_AT_A_TIME = 65_536


class UpsertRequest(msgspec.Struct, frozen=True, eq=False):
    """What to merge into a table, and how.

    Attributes:
        source: The rows.
        on: The key columns of the table, and the columns of the source that they equal.
        matched: The clauses for matched rows; the first one whose condition is true applies.
        not_matched: The clauses for other rows of the source, likewise.
        target_name: What expressions call the row of the table.
        source_name: What expressions call the row of the source.
        dry_run: Whether to only count the rows.
    """

    source: pa.Table
    on: Mapping[str, str]
    matched: tuple[WhenMatched, ...] = (WhenMatched(),)
    not_matched: tuple[WhenNotMatched, ...] = (WhenNotMatched(),)
    target_name: str = "target"
    source_name: str = "source"
    dry_run: bool = False


class UpsertResult(CommitResult, frozen=True, kw_only=True):
    """What an upsert did, or with `dry_run` would do."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: nothing to change, or `DRY_RUN`"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("updated_rows", pa.int64(), "the rows of the table that got new values"),
        Column("deleted_rows", pa.int64(), "the rows of the table that were deleted"),
        Column("inserted_rows", pa.int64(), "the rows that were added"),
        Column("partitions", pa.list_(PARTITION_ROWS), "the partitions, and how many rows changed in each"),
        MESSAGE,
    )

    updated_rows: int = 0
    deleted_rows: int = 0
    inserted_rows: int = 0
    partitions: tuple[PartitionCount, ...] = ()
    is_dry_run: bool = False

    @property
    def status(self) -> Status:
        """NO_ACTION if there was nothing to change."""
        return Status.DRY_RUN if self.is_dry_run else super().status

    @property
    def message(self) -> str:
        """A one-line summary."""
        rows = (
            f"{self.updated_rows} rows updated, {self.deleted_rows} deleted and {self.inserted_rows} inserted"
        )
        if self.is_dry_run:
            return f"{rows} by a run without DRY RUN"
        return f"{rows} in version {self.version}" if self.is_committed else "nothing to change"


def upsert(snapshot: Snapshot, request: UpsertRequest) -> UpsertResult:
    """Merge the rows of a source into the table by key, in one commit. If nothing changes, nothing is committed.

    After a concurrent commit that changed a split with rows to change, or added a row with a key of the source, the
    rows are found again. Rows with a null in their key match nothing.

    Raises InvalidOptionError, InvalidSchemaError, InvalidValueError and InvalidExpressionError for requests that do not
    fit the table, InvalidValueError if several rows of the source match the same row, the errors of unreadable splits,
    ProtocolUpgradeError if the table holds splits of the JVM and the settings do not allow ours, and the errors of
    `commit`.
    """
    check_writable(snapshot.protocol, snapshot.context.url)
    work = _Work(snapshot, request)
    if request.dry_run:
        return work.result(snapshot, None, work.find(snapshot), is_dry_run=True)
    change = change_rows(
        snapshot, work.find, work.operation, work.write, intent=Upsert, before_each_try=work.check
    )
    return work.result(change.snapshot, change.result, change.found)


class _Matches(msgspec.Struct, frozen=True, eq=False):
    """The rows of a split that a clause changes, with their rows of the source and their clauses; and all matched keys.

    Rows are ascending.
    """

    rows: Numbers
    source: Numbers
    clauses: Numbers
    keys: Numbers


class _Work:
    """One upsert: what was found last, on which splits."""

    def __init__(self, snapshot: Snapshot, request: UpsertRequest) -> None:
        request = msgspec.structs.replace(request, source=without_views(request.source))
        url, schema, source = snapshot.context.url, snapshot.schema, request.source
        if not request.matched and not request.not_matched:
            raise InvalidOptionError(
                f"{url}: the merge neither updates, deletes nor inserts; say what it does"
            )
        if request.target_name.lower() == request.source_name.lower():
            raise InvalidOptionError(
                f"{url}: the table and the source are both called {request.source_name!r}; name one differently"
            )
        self._url, self._request, self._schema = url, request, schema
        self._keys = SourceKeys(url, schema, source, request.on)
        both = {request.target_name: schema, request.source_name: source.schema}
        self._matched = [Clause.of_matched(snapshot, each, both) for each in request.matched]
        alone = {request.source_name: source.schema}
        self._not_matched = [Clause.of_not_matched(snapshot, each, alone) for each in request.not_matched]
        takes_source = any(clause.takes_source for clause in [*self._matched, *self._not_matched])
        self._own_rows = conform(source, _all_nullable(schema)) if takes_source else None
        self._check_complete(source.schema)
        self._set = [name for name in schema.names if find_column(source.schema, name) is not None]
        self._found: dict[str, _Matches] = {}
        self._inserted: list[pa.Table] = []
        self._searched: set[tuple[str, DeletionVector | None]] = set()

    def find(self, snapshot: Snapshot, _: Sequence[str] = ()) -> list[FoundRows]:
        """The rows of each split that a clause changes. Splits that were appended meanwhile are searched, too."""
        refs = self._refs(snapshot)
        found = self._matches_of(snapshot, refs)
        self._searched = {_identity(ref) for ref in refs}
        self._found = {ref.path: each for ref, each in zip(refs, found, strict=True)}
        self._inserted = list(self._insertions())
        return [
            FoundRows(ref, None if len(each.rows) == ref.num_live_records else each.rows)
            for ref, each in zip(refs, found, strict=True)
            if len(each.rows)
        ]

    def check(self, snapshot: Snapshot) -> None:
        """Raise RowsMovedError if a split that is new since the rows were found has a key of the source."""
        new = [ref for ref in self._refs(snapshot) if _identity(ref) not in self._searched]
        for ref, found in zip(new, self._matches_of(snapshot, new), strict=True):
            if len(found.keys):
                raise RowsMovedError(
                    f"{self._url}: nothing was committed, because concurrent commits added a row with "
                    f"{self._keys.value_text(int(found.keys[0]))}; start again from the newest version"
                )
            self._searched.add(_identity(ref))

    def write(self, snapshot: Snapshot, found: Sequence[FoundRows]) -> NewRows:
        """Write the updated and the inserted rows to new splits."""
        if not self._inserted and not any(self._is_update(each).any() for each in self._found.values()):
            return NewRows()
        batches = (
            batch
            for rows in chain(self._updates(snapshot, found), self._inserted)
            for batch in rows.to_batches()
        )
        return NewRows(write_splits(snapshot, pa.RecordBatchReader.from_batches(self._schema, batches)))

    def operation(self, found: Sequence[FoundRows]) -> Operation:
        """How the commit appears in the history."""
        updated = self._num_updated()
        metrics = {
            "numUpdatedRows": updated,
            "numDeletedRows": (total_rows(found) or 0) - updated,
            "numInsertedRows": sum(rows.num_rows for rows in self._inserted),
        }
        return Operation("MERGE ROWS", {"keys": ", ".join(self._keys.columns)}, metrics)

    def result(
        self,
        snapshot: Snapshot,
        result: CommitResult | None,
        found: Sequence[FoundRows],
        *,
        is_dry_run: bool = False,
    ) -> UpsertResult:
        """The result, by what was found last."""
        changed = sum(len(each.rows) for each in self._found.values())
        return UpsertResult(
            snapshot,
            is_committed=result is not None and result.is_committed,
            tries=1 if result is None else result.tries,
            updated_rows=self._num_updated(),
            deleted_rows=changed - self._num_updated(),
            inserted_rows=sum(rows.num_rows for rows in self._inserted),
            partitions=partition_counts(found, _counted(snapshot, self._inserted)),
            is_dry_run=is_dry_run,
        )

    # --- finding rows ---

    def _refs(self, snapshot: Snapshot) -> list[SplitRef]:
        """The splits that may have a key of the source."""
        if not self._keys.num_keys:
            return []
        return split_refs(snapshot.select(self._keys.predicate()).entries)

    def _matches_of(self, snapshot: Snapshot, refs: Sequence[SplitRef]) -> list[_Matches]:
        return parallel_map(
            partial(self._matches, snapshot), refs, snapshot.context.settings[READ_PARALLELISM]
        )

    def _matches(self, snapshot: Snapshot, ref: SplitRef) -> _Matches:
        known = self._found.get(ref.path) if _identity(ref) in self._searched else None
        if known is not None:
            return known
        split = open_again(snapshot, ref)
        found_rows, found_keys = [], []
        pieces: list[tuple[Numbers, pa.Table]] = []
        # Every look-up hashes all keys of the source, so it looks up at least as many rows.
        enough = max(_ROWS_AT_A_TIME, self._keys.num_keys)
        for piece in split.scan_numbered(self._keys.columns, self._keys.predicate()):
            pieces.append(piece)
            if sum(len(numbers) for numbers, _ in pieces) >= enough:
                rows, keys = self._look_up(pieces)
                found_rows.append(rows)
                found_keys.append(keys)
                pieces = []
        rows, keys = self._look_up(pieces)
        rows, keys = joined([*found_rows, rows]), joined([*found_keys, keys])
        self._check_single(np.unique(keys))
        return self._choose(snapshot, ref, rows, keys)

    def _look_up(self, pieces: Sequence[tuple[Numbers, pa.Table]]) -> tuple[Numbers, Numbers]:
        if not pieces:
            return joined([]), joined([])
        keys = self._keys.find(pa.concat_tables([rows for _, rows in pieces]))
        is_found = keys >= 0
        return joined([numbers for numbers, _ in pieces])[is_found], keys[is_found]

    def _check_single(self, keys: Numbers) -> None:
        """Several rows of the source must not change the same row: which of them would count?"""
        if all(clause.is_delete and clause.condition is None for clause in self._matched):
            return
        repeated = keys[self._keys.rows_of_key[keys] > 1]
        if len(repeated):
            count = int(self._keys.rows_of_key[repeated[0]])
            raise InvalidValueError(
                f"{self._url}: {count} rows of the source match the same row, with "
                f"{self._keys.value_text(int(repeated[0]))}; leave one row for each key in the source"
            )

    def _choose(self, snapshot: Snapshot, ref: SplitRef, rows: Numbers, keys: Numbers) -> _Matches:
        """The clause of each matched row; rows that no clause changes are left out."""
        source = self._keys.first_row_of_key[keys]
        chosen = np.full(len(rows), -1, np.int64)
        for place, clause in enumerate(self._matched):
            open_ = np.flatnonzero(chosen < 0)
            if clause.condition is None:
                chosen[open_] = place
                break
            if not len(open_):
                break
            start = 0
            for target in rows_at(snapshot, FoundRows(ref, rows[open_])):
                portion = open_[start : start + target.num_rows]
                start += target.num_rows
                pair = self._pair(target, source[portion])
                chosen[portion[clause.holds(len(portion), pair)]] = place
        is_chosen = chosen >= 0
        return _Matches(rows[is_chosen], source[is_chosen], chosen[is_chosen], np.unique(keys))

    def _pair(self, target: pa.Table, source_rows: Numbers) -> dict[str, pa.Table]:
        source = self._request.source.take(arrow_from_numpy(source_rows))
        return {self._request.target_name: target, self._request.source_name: source}

    # --- new rows ---

    def _is_update(self, matches: _Matches) -> npt.NDArray[np.bool_]:
        return np.array([not clause.is_delete for clause in self._matched], np.bool_)[matches.clauses]

    def _num_updated(self) -> int:
        return sum(int(self._is_update(each).sum()) for each in self._found.values())

    def _updates(self, snapshot: Snapshot, found: Sequence[FoundRows]) -> Iterator[pa.Table]:
        for each in found:
            matches = self._found[each.ref.path]
            for place, clause in enumerate(self._matched):
                is_here = matches.clauses == place
                if not clause.is_delete and is_here.any():
                    rows, source = matches.rows[is_here], matches.source[is_here]
                    yield from self._updated(snapshot, each.ref, rows, source, clause)

    def _updated(
        self, snapshot: Snapshot, ref: SplitRef, rows: Numbers, source: Numbers, clause: Clause
    ) -> Iterator[pa.Table]:
        if clause.values is None and self._own_rows is not None and len(self._set) == len(self._schema):
            yield self._typed(
                self._own_rows.take(arrow_from_numpy(source)).columns
            )  # nothing of the old row is left
            return
        start = 0
        for target in rows_at(snapshot, FoundRows(ref, rows)):
            of_source = source[start : start + target.num_rows]
            start += target.num_rows
            if clause.values is None:
                assert self._own_rows is not None
                own = self._own_rows.select(self._set).take(arrow_from_numpy(of_source))
                values = dict(zip(self._set, own.columns, strict=True))
            else:
                values = clause.values.values(target.num_rows, self._pair(target, of_source))
            yield self._typed([values.get(name, target.column(name)) for name in self._schema.names])

    def _insertions(self) -> Iterator[pa.Table]:
        """The rows to insert."""
        matched = joined([each.keys for each in self._found.values()])
        left = np.flatnonzero(~np.isin(self._keys.number_of_row, matched))
        for clause in self._not_matched:
            rows = {self._request.source_name: self._request.source.take(arrow_from_numpy(left))}
            holds = clause.holds(len(left), rows)
            places, left = left[holds], left[~holds]
            if len(places):
                yield self._inserted_by(clause, places)

    def _inserted_by(self, clause: Clause, places: Numbers) -> pa.Table:
        if clause.values is None:
            assert self._own_rows is not None
            return self._typed(self._own_rows.take(arrow_from_numpy(places)).columns)
        source = self._request.source.take(arrow_from_numpy(places))
        values = clause.values.values(len(places), {self._request.source_name: source})
        columns = [
            values[field.name] if field.name in values else pa.nulls(len(places), field.type)
            for field in self._schema
        ]
        return self._typed(columns)

    def _typed(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Table:
        for field, column in zip(self._schema, columns, strict=True):
            if column.null_count and not field.nullable:
                raise InvalidValueError(f"{self._url}: column {field.name!r} cannot be null")
        return pa.Table.from_arrays(list(columns), schema=self._schema)

    def _check_complete(self, source: pa.Schema) -> None:
        """Raise InvalidSchemaError if rows of the source are inserted, and lack a required column."""
        if any(clause.values is None for clause in self._not_matched):
            conform(source.empty_table(), self._schema)


def _all_nullable(schema: pa.Schema) -> pa.Schema:
    """The schema for rows of which some columns may be missing: an update leaves those as they are."""
    return pa.schema([field.with_nullable(True) for field in schema])


def _identity(ref: SplitRef) -> tuple[str, DeletionVector | None]:
    return (ref.path, ref.deletion_vector)


def _counted(snapshot: Snapshot, inserted: Sequence[pa.Table]) -> Iterator[Counted]:
    for rows in inserted:
        for group in rows_by_partition(rows, snapshot.partition_columns):
            yield dict(zip(snapshot.partition_columns, group.values, strict=True)), group.rows.num_rows
