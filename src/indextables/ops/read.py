"""Reads rows: opens the splits of a snapshot, and scans their Parquet members without touching the index."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from indextables._caching import LruCache, register_cache, shared_cache
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidSchemaError
from indextables.log.deletion_vectors import DeletionVector, parse_vector, read_vector
from indextables.metrics import CACHE_HITS, CACHE_MISSES
from indextables.ops.runner import ordered_streams
from indextables.predicates import BoundPredicate, Predicate, bind
from indextables.schema import TableShape, find_column
from indextables.split.deleted_rows import DeletedRows
from indextables.split.reader import open_split
from indextables.split.split import Split
from indextables.storage import ObjectStore, relative_key
from indextables.table import Snapshot

# In the order of the fields of SplitRef, without the deletion vector.
_COLUMNS = (
    "path",
    "partitionValues",
    "size",
    "footerStartOffset",
    "footerEndOffset",
    "numRecords",
)

# The memory for recently opened splits: as much as ten thousand small ones take.
_OPEN_BYTES: Final = 256 * 1024**2
# The references of a snapshot with more splits are not cached.
_MAX_CACHED_REFS: Final = 1024


class SplitRef(msgspec.Struct, frozen=True):
    """The fields of a file entry that are needed to open its split."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    footer_start_offset: int | None
    footer_end_offset: int | None
    num_records: int | None
    deletion_vector: DeletionVector | None = None

    def open(self, store: ObjectStore, shape: TableShape) -> Split:
        """Open the split, without its deleted rows. Its rows have the schema of `shape`.

        Raises what `open_split` and `read_vector` raise.
        """
        return open_split(
            store,
            relative_key(self.path, store.url),
            self.size,
            self.footer_start_offset,
            self.footer_end_offset,
            shape=shape,
            partition_values=self.partition_values,
            deleted=self._deleted_rows(store),
        )

    @property
    def num_live_records(self) -> int | None:
        """The number of rows without the deleted ones; None if the log does not record the rows."""
        deleted = 0 if self.deletion_vector is None else self.deletion_vector.cardinality
        return None if self.num_records is None else self.num_records - deleted

    def _deleted_rows(self, store: ObjectStore) -> DeletedRows | None:
        vector = self.deletion_vector
        if vector is None:
            return None
        rows = read_vector(store, vector, f"{store.url}: {self.path}", self.num_records)
        return DeletedRows(rows, vector.id)


_ALL_REFS: WeakKeyDictionary[Snapshot, list[SplitRef]] = WeakKeyDictionary()
register_cache("ops.read.split_refs", "split references", "one list per live snapshot", _ALL_REFS.clear)
_OPEN_SPLITS: LruCache[Hashable, Split] = shared_cache(
    "ops.read.splits", "open splits", max_bytes=_OPEN_BYTES
)


def scan(snapshot: Snapshot, where: Predicate | None, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """The rows for which `where` is true, split by split, with the given columns (None: all).

    Splits are pruned by partition values and statistics, row groups by their own statistics. Several splits are read at
    once, in bounded memory. Raises InvalidPredicateError and InvalidSchemaError before anything is read. An unreadable
    split ends the stream with an error; it is never skipped.
    """
    schema = projected_schema(snapshot.schema, columns)
    predicate = None if where is None else bind(where, snapshot.schema)
    refs = split_refs(snapshot.select(predicate).entries)
    streams = (partial(_scan_split, snapshot, ref, schema.names, predicate) for ref in refs)
    batches = ordered_streams(streams, snapshot.context.settings[READ_PARALLELISM])
    return pa.RecordBatchReader.from_batches(schema, batches)


def projected_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The schema of the selected columns, in the table's spelling. Raises InvalidSchemaError.

    A column must exist, and may be selected only once.
    """
    if columns is None:
        return schema
    fields: list[pa.Field] = []
    for name in columns:
        field = find_column(schema, name)
        if field is None:
            raise InvalidSchemaError(
                f"there is no column {name!r}; the columns are {', '.join(schema.names)}"
            )
        if field in fields:
            raise InvalidSchemaError(f"column {field.name!r} is selected twice; name it once")
        fields.append(field)
    return pa.schema(fields)


def split_refs(entries: pa.Table) -> list[SplitRef]:
    """The splits of file entries as objects: call it only for the few that are about to be opened.

    Raises DeletionVectorCorruptedError.
    """
    columns = (entries[name].to_pylist(maps_as_pydicts="strict") for name in _COLUMNS)
    vectors = map(parse_vector, entries["deletionVector"].to_pylist(), entries["path"].to_pylist())
    return [SplitRef(*values) for values in zip(*columns, vectors, strict=True)]


def ordered_refs(snapshot: Snapshot, entries: pa.Table) -> list[SplitRef]:
    """The splits of file entries, sorted by path. Those of all entries of a snapshot are cached."""
    if entries is not snapshot.entries:
        return sorted(split_refs(entries), key=attrgetter("path"))
    refs = _ALL_REFS.get(snapshot)
    if refs is None:
        refs = sorted(split_refs(entries), key=attrgetter("path"))
        if len(refs) <= _MAX_CACHED_REFS:
            _ALL_REFS[snapshot] = refs
    return refs


def open_ref(snapshot: Snapshot, ref: SplitRef) -> Split:
    """Open a split of a snapshot. Raises what `open_split` raises."""
    return ref.open(snapshot.context.store, snapshot.shape)


def open_again(snapshot: Snapshot, ref: SplitRef) -> Split:
    """Like `open_ref`, but returns a recently opened split from the cache.

    Splits are immutable, so a cached one is valid as long as the log refers to it. The cache key includes the store's
    identity: a caller with other credentials opens the split itself.
    """
    key = (
        snapshot.context.store.identity,
        ref.path,
        ref.size,
        ref.footer_start_offset,
        ref.footer_end_offset,
        tuple(ref.partition_values.items()),
        ref.deletion_vector,
        snapshot.metadata.schema_string,
        snapshot.partition_columns,
    )
    split = _OPEN_SPLITS.get(key)
    (CACHE_MISSES if split is None else CACHE_HITS).record(1, snapshot.context.url, cache="splits")
    if split is None:
        split = open_ref(snapshot, ref)
        _OPEN_SPLITS.put(key, split, split.memory_bytes)
    return split


def _scan_split(
    snapshot: Snapshot, ref: SplitRef, names: Sequence[str], predicate: BoundPredicate | None
) -> Iterator[pa.RecordBatch]:
    return open_ref(snapshot, ref).scan(names, predicate)
