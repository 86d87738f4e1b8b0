"""The interface of an open split, whichever writer wrote it, and its rows in the table's schema."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import tantivy

from indextables._arrow import arrow_from_numpy
from indextables._caching import lazy_property, shared_memo
from indextables.errors import DeletionVectorCorruptedError, InvalidSchemaError, InvalidValueError
from indextables.predicates import BoundPredicate, columns_of, to_arrow_filter
from indextables.pruning import parse_values
from indextables.schema import TableShape, find_column, names_in_file, type_in_table
from indextables.schema.stored_names import with_type
from indextables.split.cold_search import CachedIndex, HasRoom, Warmed
from indextables.split.deleted_rows import DeletedRows
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_cache import IndexCache, cache_key
from indextables.split.index_opener import open_index
from indextables.split.needs import Needs
from indextables.storage import ObjectStore

_ONE_ROW = pa.table({"row": arrow_from_numpy(np.zeros(1, np.int64))})

T = TypeVar("T")


class NumberedRows(NamedTuple):
    """Rows of a split, and their numbers, ascending."""

    numbers: npt.NDArray[np.int64]
    rows: pa.Table


RowNumbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


class Split(ABC):
    """An open split: its footer has been read, its rows and its index are read on demand.

    Rows are numbered from 0 in scan order; the index stores these numbers. All reads raise storage errors, and
    SplitCorruptedError for a damaged file.
    """

    def __init__(
        self, store: ObjectStore, key: str, table: "TableColumns", deleted: DeletedRows | None = None
    ) -> None:
        self._store = store
        self._key = key
        self._table = table
        self._place = f"{store.url}: {key}"
        self._deleted = deleted

    @property
    def path(self) -> str:
        """The split's key, relative to the table's root."""
        return self._key

    @property
    def schema(self) -> pa.Schema:
        """The schema of returned rows: the table's."""
        return self._table.shape.schema

    @lazy_property
    def partition_row(self) -> pa.Table:
        """The typed partition values, as a table of one row."""
        return self._table.assemble(_ONE_ROW, self._table.shape.partition_columns, {})

    @property
    @abstractmethod
    def memory_bytes(self) -> int:
        """About how much memory the split takes while it is open, once it has been searched."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """The number of rows in the file, with the deleted ones."""

    @property
    def num_deleted(self) -> int:
        """The number of deleted rows, which scans and searches leave out."""
        return 0 if self._deleted is None else len(self._deleted)

    def check_deleted(self) -> None:
        """Raise DeletionVectorCorruptedError if a deleted row is not one of the split."""
        if self._deleted is not None and int(self._deleted.rows[-1]) >= self.num_records:
            raise DeletionVectorCorruptedError(
                f"{self._place}: row {int(self._deleted.rows[-1])} is deleted, but the split has only "
                f"{self.num_records} rows; restore the version before the delete"
            )

    @property
    @abstractmethod
    def mapping(self) -> DocMapping:
        """How the index that is searched was built."""

    @property
    def unreadable_columns(self) -> tuple[str, ...]:
        """The indexed columns whose values the split does not store."""
        return ()

    def scan(
        self, columns: Sequence[str] | None = None, predicate: BoundPredicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows for which the predicate is true, in order, with these columns (None: all).

        Deleted rows are left out. Raises InvalidPredicateError and InvalidSchemaError if an argument does not fit the
        table's schema.
        """
        return self._scan(self._table.names(columns), predicate, self._deleted)

    def scan_numbered(
        self, columns: Sequence[str] | None = None, predicate: BoundPredicate | None = None
    ) -> Iterator[NumberedRows]:
        """Return what `scan` returns, with the number of each row. Raises what `scan` raises."""
        return self._scan_numbered(self._table.names(columns), predicate, self._deleted)

    def take(self, row_numbers: RowNumbers, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows with these numbers, in the given order; a repeated number repeats its row.

        A deleted row is returned, too: searches do not find it.
        """
        return self._take(row_numbers, self._table.names(columns))

    def search_index(self, cache: IndexCache, needs: Needs, function: Callable[[tantivy.Searcher], T]) -> T:
        """Return what a function finds in the index, of which it reads no more than `needs`.

        The function may be called several times; it returns its whole answer. Raises what it raises, and
        IndexCacheError.
        """
        return self._search(self._cached(cache), needs, function)

    def warm_index(self, cache: IndexCache, needs: Needs, has_room: HasRoom) -> Warmed:
        """Put what `needs` names of the index into the cache, so that searches need not fetch it.

        What the cache has no room for is left out. Raises IndexCacheError.
        """
        return self._warm(self._cached(cache), needs, has_room)

    @lazy_property
    def index_key(self) -> str:
        """The key of the index in a cache."""
        return cache_key(self._index_parts())

    @abstractmethod
    def verify(self) -> None:
        """Read the whole split. Raises SplitCorruptedError if anything differs from what was written."""

    @abstractmethod
    def _scan(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _scan_numbered(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[NumberedRows]: ...

    @abstractmethod
    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table: ...

    @abstractmethod
    def _index_parts(self) -> list[str | bytes]:
        """Return everything that the content of the index depends on."""

    @abstractmethod
    def _search(self, cached: CachedIndex, needs: Needs, function: Callable[[tantivy.Searcher], T]) -> T:
        """Search the index through the cache."""

    @abstractmethod
    def _warm(self, cached: CachedIndex, needs: Needs, has_room: HasRoom) -> Warmed:
        """Fetch a part of the index into the cache."""

    def _cached(self, cache: IndexCache) -> CachedIndex:
        variant = "" if self._deleted is None else self._deleted.id
        return CachedIndex(cache, self.index_key, self._open, self._store.url, variant)

    def _open(self, directory: Path) -> tantivy.Searcher:
        return open_index(directory, self.mapping, self._place, self._deleted)

    def _identity(self) -> list[str | bytes]:
        """Return what identifies this file, whatever its content."""
        return [self._store.url, self._key]


class SplitFile(msgspec.Struct, frozen=True):
    """An uploaded split, with the fields of its add action. The path is relative to the table."""

    path: str
    partition_values: dict[str, str | None]
    size: int
    modification_time_ms: int
    num_records: int
    min_values: dict[str, str]
    max_values: dict[str, str]
    footer_start_offset: int
    footer_end_offset: int
    uncompressed_size_bytes: int
    doc_mapping_ref: str
    doc_mapping_json: str
    split_tags: tuple[str, ...] = ()


class TableColumns(msgspec.Struct, frozen=True):
    """The columns of the table, and the partition values of one split as the log records them."""

    shape: TableShape
    partition_values: Mapping[str, str | None] | None = None

    def names(self, columns: Sequence[str] | None) -> list[str]:
        """Return the columns in the schema's spelling; all of them for None. Raises InvalidSchemaError."""
        if columns is None:
            return list(self.shape.schema.names)
        fields = [(name, find_column(self.shape.schema, name)) for name in columns]
        for name, field in fields:
            if field is None:
                raise InvalidSchemaError(
                    f"column {name!r} does not exist; the columns are {', '.join(self.shape.schema.names)}"
                )
        return [field.name for _, field in fields if field is not None]

    def stored(self, names: Sequence[str]) -> list[str]:
        """Return the columns that are not partition columns."""
        return [name for name in names if name not in self.shape.partition_columns]

    def names_in_file(self, file_schema: pa.Schema, names: Sequence[str]) -> dict[str, str]:
        """Return the name in a file of each of these columns that it has: found by field id, or else by name."""
        stored, wanted = self.shape.stored_names, self.shape.stored.schema_with_ids
        columns = {stored[name]: name for name in self.stored(names)}
        found = names_in_file(file_schema, [wanted.field(name) for name in columns])
        return {columns[name]: in_file for name, in_file in found.items()}

    def partition_texts(self) -> dict[str, str | None]:
        """Return the recorded text of every partition column; None where the log has no value."""
        values = {name.lower(): value for name, value in (self.partition_values or {}).items()}
        return {name: values.get(name.lower()) for name in self.shape.partition_columns}

    def assemble(self, rows: pa.Table, names: Sequence[str], in_file: Mapping[str, str]) -> pa.Table:
        """Build these columns, in the table's types, from rows of the split, whose columns have the names `in_file`.

        Columns that were added to the table later have their default; partition columns are constant.
        """
        texts = {**self.shape.defaults, **self.partition_texts()}
        stored, with_ids = self.shape.stored_names, self.shape.stored.schema_with_ids
        arrays = []
        for name in names:
            field = self.shape.schema.field(name)
            if name in in_file:
                stored_type = self.shape.stored.type_of(stored[name])
                column = _column(rows, in_file[name], with_ids.field(stored[name]), stored_type)
                arrays.append(with_type(column, field.type))
            elif name in texts:
                arrays.append(pa.repeat(_constant(texts[name], field), rows.num_rows))
            else:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
        schema = pa.schema([self.shape.schema.field(name) for name in names])
        # An empty selection keeps the row count.
        return pa.Table.from_arrays(arrays, schema=schema) if names else rows.select([])


def matching(rows: pa.Table, bound: BoundPredicate | None) -> pa.Table:
    """Return the rows for which a bound predicate is true."""
    return rows if bound is None else rows.filter(to_arrow_filter(bound))


def numbered(
    rows: pa.Table,
    numbers: npt.NDArray[np.int64],
    bound: BoundPredicate | None,
    deleted: DeletedRows | None,
) -> NumberedRows:
    """Return the rows with these numbers that are not deleted, and for which a bound predicate is true."""
    if deleted is not None:
        is_left = deleted.are_left(numbers)
        if not is_left.all():
            rows, numbers = rows.filter(arrow_from_numpy(is_left)), numbers[is_left]
    if bound is None:
        return NumberedRows(numbers, rows)
    name = "~".join(["row", *rows.column_names])  # longer than any of the names
    found = rows.append_column(name, arrow_from_numpy(numbers)).filter(to_arrow_filter(bound))
    return NumberedRows(found[name].to_numpy(), found.drop_columns([name]))


def rows_of_ranges(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows in these ranges (ends exclusive), one range after the other."""
    lengths = ends - starts
    skipped = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    numbers: npt.NDArray[np.int64] = np.arange(len(skipped)) + skipped
    return numbers


def needed_columns(names: Sequence[str], bound: BoundPredicate | None) -> list[str]:
    """Return the selected columns and those of the predicate."""
    return list(dict.fromkeys([*names, *(sorted(columns_of(bound)) if bound is not None else ())]))


@shared_memo("split.split.constants", "partition values and defaults by their text", max_entries=1024)
def _constant(text: str | None, field: pa.Field) -> pa.Scalar:
    parsed = parse_values(pa.array([text], pa.string()), field.type)
    if not parsed.understood[0].as_py():
        raise InvalidValueError(
            f"column {field.name!r} has the value {text!r} in the log, which is not a valid {field.type}; "
            f"the log is corrupt"
        )
    return parsed.values[0]


def _column(rows: pa.Table, name: str, wanted: pa.Field, data_type: pa.DataType) -> pa.ChunkedArray:
    """Return the column `name` of a file in the table's type; `wanted` is the same type with field ids."""
    column = rows.column(name)
    if pa.types.is_nested(column.type):
        # A view replaces the names of members and their ids, and copies nothing.
        in_table = type_in_table(column.type, wanted.type)
        column = pa.chunked_array([chunk.view(in_table) for chunk in column.chunks], in_table)
    if column.type.equals(data_type):
        return column
    try:
        return pc.cast(column, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidSchemaError(
            f"column {wanted.name!r} is {column.type} in the split and {data_type} in the table: {error}"
        ) from error
