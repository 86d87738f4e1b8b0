"""Opens splits: ours, and those written on the JVM."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import pyarrow as pa
import tantivy

from indextables._caching import lazy_property
from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from indextables.predicates import BoundPredicate
from indextables.schema import TableShape
from indextables.split.bundle import Bundle, read_bundle
from indextables.split.byte_ranges import read_range
from indextables.split.cold_data import ColdData
from indextables.split.cold_search import (
    CachedIndex,
    HasRoom,
    Warmed,
    is_small,
    search_sparse,
    warm_sparse,
)
from indextables.split.deleted_rows import DeletedRows
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_chunks import ChunkedIndex
from indextables.split.jvm_bundle import JvmBundle
from indextables.split.needs import Needs
from indextables.split.rows_reader import RowsReader
from indextables.split.split import NumberedRows, RowNumbers, Split, TableColumns
from indextables.storage import ObjectStore

# How much `OwnSplit.verify` reads at once.
_PIECE_BYTES: Final = 8 * 1024**2

# The tail itself, its Parquet metadata in Arrow's objects, and what the split knows of itself in Python's.
_BYTES_PER_TAIL_BYTE: Final = 5

T = TypeVar("T")


def open_split(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
    *,
    shape: TableShape | None = None,
    partition_values: Mapping[str, str | None] | None = None,
    deleted: DeletedRows | None = None,
) -> Split:
    """Open a split, with one range request if the log has the footer's offsets, and up to three otherwise.

    `shape` and `partition_values` come from the log; rows are returned in that schema. Without a shape, one of our
    splits is read as it was written, including its partition values. `deleted` are rows to leave out.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError for a file that is damaged, truncated or
    not a split, DeletionVectorCorruptedError if it lacks one of the deleted rows, and UnsupportedSplitError for a
    newer format or a JVM split without a schema.
    """
    split = _open(
        store, key, read_bundle(store, key, size, footer_start, footer_end), shape, partition_values, deleted
    )
    split.check_deleted()
    return split


def _open(
    store: ObjectStore,
    key: str,
    bundle: Bundle | JvmBundle,
    shape: TableShape | None,
    partition_values: Mapping[str, str | None] | None,
    deleted: DeletedRows | None,
) -> Split:
    if isinstance(bundle, Bundle):
        info = bundle.info
        table = TableColumns(info.shape, info.partition_values)
        if shape is not None:
            table = TableColumns(shape.checked(), dict(partition_values or {}))
        return OwnSplit(store, key, bundle, table, deleted)
    if shape is None:
        raise UnsupportedSplitError(
            f"{store.url}: {key}: this split was written on the JVM; open it with the table's schema"
        )
    # Imported here because it imports the index builder: it indexes the rows of a JVM split again.
    from indextables.split.jvm import JvmSplit

    return JvmSplit(store, key, bundle, TableColumns(shape.checked(), dict(partition_values or {})), deleted)


class OwnSplit(Split):
    """A split that `SplitWriter` wrote."""

    def __init__(
        self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns, deleted: DeletedRows | None
    ) -> None:
        super().__init__(store, key, table, deleted)
        self.info = bundle.info
        self._bundle = bundle
        self._rows = RowsReader(store, key, bundle, table)

    @property
    def memory_bytes(self) -> int:
        return _BYTES_PER_TAIL_BYTE * len(self._bundle.tail)

    @property
    def num_records(self) -> int:
        return self.info.num_records

    @lazy_property
    def mapping(self) -> DocMapping:
        return self.info.mapping.in_table(self._table.shape)

    def verify(self) -> None:
        digest = hashlib.sha256()
        for start in range(0, self._bundle.footer_start, _PIECE_BYTES):
            end = min(start + _PIECE_BYTES, self._bundle.footer_start)
            digest.update(read_range(self._store, self._key, start, end))
        if digest.hexdigest() != self.info.body_checksum:
            raise SplitCorruptedError(
                f"{self._place}: the checksum of the rows and the index is wrong; the file is damaged"
            )
        if self._bundle.metadata.num_rows != self.info.num_records:
            raise SplitCorruptedError(
                f"{self._place}: the split has {self._bundle.metadata.num_rows} rows, and its footer says "
                f"{self.info.num_records}"
            )

    def _scan(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[pa.RecordBatch]:
        return self._rows.scan(names, bound, deleted)

    def _scan_numbered(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[NumberedRows]:
        return self._rows.scan_numbered(names, bound, deleted)

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        return self._rows.take(row_numbers, names)

    def _index_parts(self) -> list[str | bytes]:
        return ["own", *self._identity(), self._bundle.checksum]

    def _search(self, cached: CachedIndex, needs: Needs, function: Callable[[tantivy.Searcher], T]) -> T:
        return search_sparse(cached, self._index, self._cold_data, needs, function)

    def _warm(self, cached: CachedIndex, needs: Needs, has_room: HasRoom) -> Warmed:
        return warm_sparse(cached, self._index, self._cold_data, needs, has_room)

    @lazy_property
    def _index(self) -> ChunkedIndex:
        sizes = {name: member.size for name, member in self._bundle.members.items()}
        return ChunkedIndex(self._store, self._key, sizes, self._bundle.index_start, self._bundle.chunks)

    def _cold_data(self) -> ColdData:
        """Decode the cold data. A small index needs it once, to be copied into the cache: then it is not kept."""
        return self._decoded_cold_data() if is_small(self._index) else self._kept_cold_data

    @lazy_property
    def _kept_cold_data(self) -> ColdData:
        return self._decoded_cold_data()

    def _decoded_cold_data(self) -> ColdData:
        try:
            return ColdData.decode(self._bundle.cold_index)
        except ValueError as error:
            raise SplitCorruptedError(f"{self._place}: {error}") from error
