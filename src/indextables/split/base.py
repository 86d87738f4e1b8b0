"""The face of a split: what can be asked of it, whoever wrote it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tantivy

from indextables._arrow import arrow_from_numpy
from indextables._caching import lazy_property
from indextables.errors import SplitCorruptedError
from indextables.predicates import Predicate, bind
from indextables.split.bundle import Bundle
from indextables.split.cache import IndexCache, cache_key
from indextables.split.index_reader import open_index
from indextables.split.mapping import DocMapping
from indextables.split.table_columns import TableColumns
from indextables.storage import ObjectStore

_ONE_ROW = pa.table({"row": arrow_from_numpy(np.zeros(1, np.int64))})

RowNumbers: TypeAlias = Sequence[int] | npt.NDArray[np.int64]


class Split(ABC):
    """An open split: its footer is read, its rows and its index are when they are asked for.

    Rows are numbered from 0 in the order of a scan; the index knows these numbers. Everything that reads
    raises storage errors, and SplitCorruptedError for a file that is damaged.
    """

    def __init__(self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns) -> None:
        self._store = store
        self._key = key
        self._bundle = bundle
        self._table = table
        self._place = f"{store.url}: {key}"

    @property
    def path(self) -> str:
        """The split's key, relative to the table's root."""
        return self._key

    @property
    def schema(self) -> pa.Schema:
        """The table's schema, which rows are returned in."""
        return self._table.schema

    @property
    def partition_row(self) -> pa.Table:
        """The partition values, typed: a table of one row."""
        return self._table.assemble(_ONE_ROW, self._table.partition_columns)

    @property
    def footer_bytes(self) -> int:
        """The size of what stays in memory while the split is open, as it is in the file."""
        return len(self._bundle.manifest) + len(self._bundle.hot_cache)

    @property
    @abstractmethod
    def num_records(self) -> int:
        """How many rows there are."""

    @property
    @abstractmethod
    def mapping(self) -> DocMapping:
        """How the columns are indexed in what `index` returns."""

    @property
    def unreadable_columns(self) -> tuple[str, ...]:
        """The columns that the split's own index knows, and whose values cannot be read back from it."""
        return ()

    def scan(
        self, columns: Sequence[str] | None = None, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows for which the predicate is true, in order, with these columns (None: all).

        Raises InvalidPredicateError and InvalidSchemaError for what does not fit the table's schema.
        """
        names = self._table.names(columns)
        bound = None if predicate is None else bind(predicate, self._table.schema)
        return self._scan(names, bound)

    def take(self, row_numbers: RowNumbers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of these numbers, in the order given and as often as given, with these columns."""
        return self._take(row_numbers, self._table.names(columns))

    def index(self, cache: IndexCache) -> tantivy.Index:
        """The index, opened from the cache, where it is put first if it is not there.

        The index stays usable when its entry is evicted. Raises IndexCacheError, too.
        """
        try:
            return cache.opened(self._cache_key, self._fill, self._open)
        except SplitCorruptedError:
            # What was right when it came may have been damaged in the cache.
            cache.discard(self._cache_key)
            return cache.opened(self._cache_key, self._fill, self._open)

    @abstractmethod
    def verify(self) -> None:
        """Read everything, and raise SplitCorruptedError if anything is not as it was written."""

    @abstractmethod
    def _scan(self, names: list[str], bound: Predicate | None) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table: ...

    @abstractmethod
    def _index_parts(self) -> list[str | bytes]:
        """What the content of the index depends on."""

    @abstractmethod
    def _fill(self, directory: Path) -> None:
        """Put the index into an empty directory."""

    @lazy_property
    def _cache_key(self) -> str:
        return cache_key(self._index_parts())

    def _open(self, directory: Path) -> tantivy.Index:
        return open_index(directory, self.mapping, self._place)

    def _identity(self) -> list[str | bytes]:
        """This very file, in this very version."""
        bundle = self._bundle
        return [self._store.url, self._key, str(bundle.size), bundle.manifest, bundle.hot_cache]
