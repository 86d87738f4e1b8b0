"""The splits of a snapshot, from file entries to open files."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from indextables._caching import LruCache
from indextables.config.registry import READ_PARALLELISM
from indextables.errors import InvalidSchemaError
from indextables.log.actions import AddAction
from indextables.ops.runner import ordered_streams
from indextables.predicates import BoundPredicate, Predicate, bind
from indextables.schema import find_column
from indextables.split.reader import open_split
from indextables.split.split import Split, SplitFile
from indextables.storage import relative_key
from indextables.table import Snapshot

# In the order of the fields of a reference.
_COLUMNS = ("path", "partitionValues", "size", "footerStartOffset", "footerEndOffset", "numRecords")

# What stays in memory of open splits: their footers, and the metadata of their rows once those were read.
_OPEN_BYTES: Final = 64 * 1024**2
# The references of a snapshot with more splits are made anew each time.
_KEPT_REFS: Final = 1024


class SplitRef(msgspec.Struct, frozen=True):
    """What the log knows about a split that is needed to open it."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    footer_start_offset: int | None
    footer_end_offset: int | None
    num_records: int | None


_ALL_REFS: WeakKeyDictionary[Snapshot, list[SplitRef]] = WeakKeyDictionary()


def split_refs(entries: pa.Table) -> list[SplitRef]:
    """The splits of file entries, as objects: for the few that are about to be opened."""
    columns = (entries[name].to_pylist(maps_as_pydicts="strict") for name in _COLUMNS)
    return [SplitRef(*values) for values in zip(*columns, strict=True)]


def ordered_refs(snapshot: Snapshot, entries: pa.Table) -> list[SplitRef]:
    """The splits of some file entries of a snapshot, by path; those of all entries are made once."""
    if entries is not snapshot.entries:
        return sorted(split_refs(entries), key=attrgetter("path"))
    refs = _ALL_REFS.get(snapshot)
    if refs is None:
        refs = sorted(split_refs(entries), key=attrgetter("path"))
        if len(refs) <= _KEPT_REFS:
            _ALL_REFS[snapshot] = refs
    return refs


def open_ref(snapshot: Snapshot, ref: SplitRef) -> Split:
    """Open a split of a snapshot; its rows have the table's schema. Raises what `open_split` raises."""
    store = snapshot.context.store
    return open_split(
        store,
        relative_key(ref.path, store.url),
        ref.size,
        ref.footer_start_offset,
        ref.footer_end_offset,
        schema=snapshot.schema,
        partition_columns=snapshot.partition_columns,
        partition_values=ref.partition_values,
    )


def open_again(snapshot: Snapshot, ref: SplitRef) -> Split:
    """Like `open_ref`, but a split that this process opened lately is not opened anew.

    Splits never change, so that what was read of one holds for as long as the log refers to it. A caller with
    other credentials gets a split of its own.
    """
    key = (
        snapshot.context.store.identity,
        ref.path,
        ref.size,
        ref.footer_start_offset,
        ref.footer_end_offset,
        tuple(ref.partition_values.items()),
        snapshot.metadata.schema_string,
        snapshot.partition_columns,
    )
    split = _RECENT.get(key)
    if split is None:
        split = open_ref(snapshot, ref)
        _RECENT.put(key, split, split.footer_bytes)
    return split


_RECENT: LruCache[Hashable, Split] = LruCache(_OPEN_BYTES)


def add_of(file: SplitFile) -> AddAction:
    """The add action of a split that was just uploaded."""
    return AddAction(
        path=file.path,
        partition_values={name: value for name, value in file.partition_values.items() if value is not None},
        size=file.size,
        modification_time=file.modification_time_ms,
        data_change=True,
        min_values=file.min_values,
        max_values=file.max_values,
        num_records=file.num_records,
        footer_start_offset=file.footer_start_offset,
        footer_end_offset=file.footer_end_offset,
        has_footer_offsets=True,
        split_tags=file.split_tags or None,
        num_merge_ops=0,
        doc_mapping_ref=file.doc_mapping_ref,
        uncompressed_size_bytes=file.uncompressed_size_bytes,
    )


# Reading rows: scans of the Parquet members, with the index untouched.


def scan(snapshot: Snapshot, where: Predicate | None, columns: Sequence[str] | None) -> pa.RecordBatchReader:
    """The rows for which `where` is true, split by split, with these columns (None: all).

    Splits are skipped by partition value and statistics, row groups by their own. Several splits are read at
    once; memory stays bounded. Raises InvalidPredicateError and InvalidSchemaError before anything is
    read; a split that cannot be read ends the stream with an error, it is never left out.
    """
    schema = projected_schema(snapshot.schema, columns)
    predicate = None if where is None else bind(where, snapshot.schema)
    refs = split_refs(snapshot.select(predicate).entries)
    streams = (partial(_scan_split, snapshot, ref, schema.names, predicate) for ref in refs)
    batches = ordered_streams(streams, snapshot.context.settings[READ_PARALLELISM])
    return pa.RecordBatchReader.from_batches(schema, batches)


def projected_schema(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """The columns that a caller asked for, each once, as the table spells them. Raises InvalidSchemaError."""
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
            raise InvalidSchemaError(f"column {field.name!r} is asked for twice; name it once")
        fields.append(field)
    return pa.schema(fields)


def _scan_split(
    snapshot: Snapshot, ref: SplitRef, names: Sequence[str], predicate: BoundPredicate | None
) -> Iterator[pa.RecordBatch]:
    return open_ref(snapshot, ref).scan(names, predicate)
