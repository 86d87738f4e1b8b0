"""Writes file entries to one or several manifests, at once or batch by batch, and uploads them.

Foreign columns, beyond those of `FILE_ENTRY_SCHEMA`, come from manifests of other writers. They are written too, so
that a rewrite loses nothing.
"""

import io
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from types import TracebackType
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidActionError, InvalidOptionError, InvalidSchemaError
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.fields import FILE_ENTRY_FIELDS
from indextables.log.paths import LOG_PREFIX
from indextables.pruning import Bounds, keys_sorted_like_text, partition_bounds
from indextables.schema import TableShape
from indextables.state.avro.arrow import avro_field_json
from indextables.state.avro.container import (
    DEFAULT_CODEC,
    MAX_BLOCK_BYTES,
    MAX_FILE_BYTES,
    MAX_RECORDS,
    Codec,
    encode_block,
    encode_header,
)
from indextables.state.avro.encode import back_to_back, encode_records
from indextables.state.avro.types import AvroFormatError, Record, parse_schema
from indextables.state.manifest_executor import from_stream, to_stream
from indextables.state.schemas import file_entry_schema
from indextables.state.state_manifest import ManifestInfo, new_manifest_path
from indextables.storage import ObjectStore

BLOCK_ROWS = 16_384
# Blocks with more Arrow data than this are divided further, so that wide statistics do not make huge blocks.
BLOCK_BYTES = 16 << 20

# The limits of a writer are well below those of a reader.
MAX_ENTRY_BYTES = MAX_BLOCK_BYTES // 4
_MAX_MANIFEST_BYTES = MAX_FILE_BYTES // 2
# Where a writer cuts, on average: entries of a manifest may be wider than the average.
_TARGET_MANIFEST_BYTES = _MAX_MANIFEST_BYTES // 2

_COMPRESSION_THREADS = 2
_MAX_BLOCKS_IN_FLIGHT = 4

_ALWAYS_WRITTEN = frozenset(field.name for field in FILE_ENTRY_FIELDS if field.is_in_every_manifest)


class ByteSink(Protocol):
    """Takes the bytes of a manifest in order: a file, a buffer, an upload."""

    def write(self, data: bytes, /) -> object:
        """Take all of `data`."""


class EncodedManifest(msgspec.Struct, frozen=True):
    """The content of a manifest, and the size that it would have without compression."""

    data: bytes
    uncompressed_bytes: int


def estimated_bytes(entries: pa.Table) -> int:
    """The uncompressed size of a manifest with these entries, from their size in memory.

    Avro's integers and lengths are shorter than Arrow's, so the estimate is rather too large than too small.
    """
    return sum(column.nbytes for column in entries.columns if column.null_count < len(column))


def entries_within_target(entries: pa.Table) -> int:
    """How many of these entries one manifest should hold at most, by their average size; at least one."""
    if not len(entries):
        return 1
    return max(_TARGET_MANIFEST_BYTES * len(entries) // max(estimated_bytes(entries), 1), 1)


def write_manifest(entries: pa.Table, codec: Codec = DEFAULT_CODEC) -> bytes:
    """A manifest with all rows of `entries`, in order. The same entries and codec yield the same bytes.

    `entries` has the columns of `FILE_ENTRY_SCHEMA` (nullable ones may be missing) and foreign columns. Rare and
    foreign fields that no entry uses are left out.

    Raises InvalidSchemaError if a column is missing or has a type that Avro cannot represent; InvalidActionError if an
    entry lacks a required value or is too large; InvalidOptionError if there are too many entries for one manifest.
    """
    return _encode_manifest(entries, codec).data


def write_manifests(
    entries: pa.Table, counts: Sequence[int], codec: Codec = DEFAULT_CODEC
) -> list[EncodedManifest]:
    """Manifests of the first `counts[0]` entries, the next `counts[1]`, and so on; otherwise as `write_manifest`.

    Small manifests are encoded together, because the fixed cost of encoding a column equals that of a thousand values.
    A field that only some of them use is then in all of them.
    """
    ends = list(accumulate(counts))
    if len(counts) == 1 or max(counts, default=0) > BLOCK_ROWS or entries.nbytes > BLOCK_BYTES:
        parts = [entries.slice(end - count, count) for count, end in zip(counts, ends, strict=True)]
        return [_encode_manifest(part, codec) for part in parts]
    layout = _Layout.of(_schema_in_use(entries))
    records = layout.encode(_conformed(entries, layout.columns))
    manifests = []
    for count, end in zip(counts, ends, strict=True):
        header, sync = encode_header(layout.avro_schema, codec, count)
        if not count:
            manifests.append(EncodedManifest(header, len(header)))
            continue
        payload = back_to_back(records.slice(end - count, count))
        compressed = codec.compress(payload)
        data = header + encode_block(count, compressed, sync)
        manifests.append(EncodedManifest(data, len(data) + payload.size - len(compressed)))
    return manifests


def _encode_manifest(entries: pa.Table, codec: Codec) -> EncodedManifest:
    sink = io.BytesIO()
    with ManifestWriter(sink, _schema_in_use(entries), codec, num_entries=len(entries)) as writer:
        writer.write(entries)
    return EncodedManifest(sink.getvalue(), writer.num_bytes + writer.num_bytes_saved)


class _Layout(msgspec.Struct, frozen=True):
    """The fields of a manifest: as an Avro schema, and as Arrow columns."""

    avro_schema: bytes
    record: Record
    columns: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema) -> "_Layout":
        foreign = [field.with_nullable(True) for field in schema if field.name not in FILE_ENTRY_SCHEMA.names]
        foreign_json = [avro_field_json(field) for field in foreign]
        avro_schema = file_entry_schema(schema.names, foreign_json)
        record = _parsed(avro_schema)
        by_name = {field.name: field for field in (*FILE_ENTRY_SCHEMA, *foreign)}
        return cls(avro_schema, record, pa.schema([by_name[field.name] for field in record.fields]))

    def encode(self, entries: pa.Table) -> pa.BinaryArray:
        """Encode entries that have exactly these columns."""
        columns = [column.combine_chunks() for column in entries.columns]
        return encode_records(self.record, [_single_array(column) for column in columns])


class ManifestWriter:
    """Writes a manifest in bounded memory: a few blocks of `BLOCK_ROWS` entries at a time.

    Every column of `schema` becomes a field, used or not, because the header is written first. If `num_entries` is
    given, readers can detect a file that was cut off between two blocks.

    As a context manager it closes the manifest, except after an error: the sink then holds an incomplete manifest,
    which must not be published. The errors are those of `write_manifest`.
    """

    def __init__(
        self, sink: ByteSink, schema: pa.Schema, codec: Codec = DEFAULT_CODEC, num_entries: int | None = None
    ) -> None:
        self._sink = sink
        self._codec = codec
        self._announced_entries = num_entries
        self._layout = _Layout.of(schema)
        self._pending = self._layout.columns.empty_table()
        self._compressor = ThreadPoolExecutor(_COMPRESSION_THREADS, thread_name_prefix="indextables-manifest")
        self._in_flight: deque[tuple[int, int, Future[bytes]]] = deque()
        self._uncompressed_bytes = 0
        self.num_entries = 0
        self.num_bytes = 0
        self.num_bytes_saved = 0
        header, self._sync = encode_header(self._layout.avro_schema, codec, num_entries)
        self._emit(header)

    def __enter__(self) -> "ManifestWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.close()
        finally:
            self._compressor.shutdown(cancel_futures=True)

    def write(self, entries: pa.Table | pa.RecordBatch) -> None:
        """Append entries. They are buffered until a block is full, and compressed in the background."""
        table = pa.Table.from_batches([entries]) if isinstance(entries, pa.RecordBatch) else entries
        self.num_entries += len(table)
        if self.num_entries > MAX_RECORDS:
            raise InvalidOptionError(
                f"a manifest holds at most {MAX_RECORDS} entries; write several manifests"
            )
        pending = pa.concat_tables([self._pending, _conformed(table, self._layout.columns)])
        in_whole_blocks = len(pending) - len(pending) % BLOCK_ROWS
        for start in range(0, in_whole_blocks, BLOCK_ROWS):
            for block in _divide(pending.slice(start, BLOCK_ROWS)):
                payload = self._encode(block)
                compressed = self._compressor.submit(self._codec.compress, payload)
                self._in_flight.append((len(block), payload.size, compressed))
                if len(self._in_flight) > _MAX_BLOCKS_IN_FLIGHT:
                    self._emit_oldest()
        self._pending = pending.slice(in_whole_blocks)

    def close(self) -> None:
        """Write the buffered entries. The sink then holds the whole manifest."""
        for block in _divide(self._pending):
            payload = self._encode(block)
            self._emit_in_flight()
            # Most manifests are one small block: not worth a thread.
            self._emit_block(len(block), payload.size, self._codec.compress(payload))
        self._emit_in_flight()
        self._compressor.shutdown()
        self._pending = self._layout.columns.empty_table()
        if self._announced_entries not in (None, self.num_entries):
            raise InvalidActionError(
                f"a manifest was announced with {self._announced_entries} entries, but got {self.num_entries}"
            )

    def _encode(self, block: pa.Table) -> pa.Buffer:
        payload = back_to_back(self._layout.encode(block))
        self._uncompressed_bytes += payload.size
        if payload.size > MAX_ENTRY_BYTES:
            raise _entry_too_large(block)
        if self._uncompressed_bytes > _MAX_MANIFEST_BYTES:
            raise InvalidOptionError(
                f"a manifest holds at most {_MAX_MANIFEST_BYTES} bytes, too few for these entries; "
                f"write fewer entries per manifest"
            )
        return payload

    def _emit_in_flight(self) -> None:
        while self._in_flight:
            self._emit_oldest()

    def _emit_oldest(self) -> None:
        count, size, compressed = self._in_flight.popleft()
        self._emit_block(count, size, compressed.result())

    def _emit_block(self, count: int, size: int, compressed: bytes) -> None:
        self._emit(encode_block(count, compressed, self._sync))
        self.num_bytes_saved += size - len(compressed)

    def _emit(self, data: bytes) -> None:
        self._sink.write(data)
        self.num_bytes += len(data)


def _schema_in_use(entries: pa.Table) -> pa.Schema:
    """The columns that are in every manifest, and those that have a value."""
    return pa.schema(
        [
            field
            for field, column in zip(entries.schema, entries.columns, strict=True)
            if field.name in _ALWAYS_WRITTEN or column.null_count < len(column)
        ]
    )


def _parsed(avro_schema: bytes) -> Record:
    try:
        return parse_schema(avro_schema)
    except AvroFormatError as error:
        raise InvalidSchemaError(f"the entries' columns cannot be written as Avro: {error}") from error


def _conformed(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """The entries, with exactly the columns of `schema`."""
    given = dict(zip(entries.column_names, entries.columns, strict=True))
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for field in schema:
        column = given.pop(field.name, None)
        if column is None:
            if not field.nullable:
                raise InvalidSchemaError(f"the entries have no column {field.name!r}")
            arrays.append(pa.nulls(len(entries), field.type))
            continue
        if column.null_count and not field.nullable:
            raise InvalidActionError(f"{column.null_count} entries have no {field.name!r}")
        arrays.append(_cast(column, field))
    for name, column in given.items():
        if column.null_count < len(column):
            raise InvalidSchemaError(f"column {name!r} has values, but is not in the schema of the manifest")
    return pa.Table.from_arrays(arrays, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidSchemaError(
            f"column {field.name!r} is {column.type}, not {field.type} ({error})"
        ) from error


def _divide(block: pa.Table) -> Iterator[pa.Table]:
    """Halve a block until each part is small enough."""
    if block.nbytes > BLOCK_BYTES and len(block) > 1:
        half = len(block) // 2
        yield from _divide(block.slice(0, half))
        yield from _divide(block.slice(half))
    elif block.nbytes > MAX_ENTRY_BYTES:
        raise _entry_too_large(block)
    elif len(block):
        yield block


def _entry_too_large(block: pa.Table) -> InvalidActionError:
    path = block["path"][0].as_py()
    return InvalidActionError(
        f"the entry of {path!r} exceeds the limit of {MAX_ENTRY_BYTES} bytes; shorten its statistics"
    )


def _single_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


# Groups of manifests: encoded together, uploaded one by one


class ManifestForm(msgspec.Struct, frozen=True):
    """What all new manifests of a state share: the table's schema and partitioning, and the codec."""

    shape: TableShape
    codec: Codec


class NewManifest(msgspec.Struct, frozen=True):
    """An uploaded manifest that no state refers to yet."""

    info: ManifestInfo
    size_bytes: int
    uncompressed_bytes: int

    @property
    def key(self) -> str:
        return LOG_PREFIX + self.info.path


class ManifestGroup(msgspec.Struct, frozen=True):
    """The entries of several manifests, in order, and the number of entries of each."""

    entries: pa.Table
    counts: tuple[int, ...]

    def __reduce__(self) -> tuple[object, ...]:
        return (_unpickled_group, (to_stream(self.entries), self.counts))


def _unpickled_group(stream: bytes, counts: tuple[int, ...]) -> ManifestGroup:
    return ManifestGroup(from_stream(stream), counts)


def write_group(store: ObjectStore, form: ManifestForm, group: ManifestGroup) -> tuple[NewManifest, ...]:
    """Upload the manifests of a group under new names. Raises what `write_manifest` raises, and StorageError."""
    manifests = []
    start = 0
    for count, manifest in zip(
        group.counts, write_manifests(group.entries, group.counts, form.codec), strict=True
    ):
        manifests.append(_upload(store, form, group.entries.slice(start, count), manifest))
        start += count
    return tuple(manifests)


def _upload(
    store: ObjectStore, form: ManifestForm, entries: pa.Table, manifest: EncodedManifest
) -> NewManifest:
    path = new_manifest_path()
    store.put(LOG_PREFIX + path, manifest.data)
    versions = pc.min_max(entries["addedAtVersion"]).as_py()
    paths = pc.min_max(entries["path"]).as_py()
    shared, typed = _bounds(entries["partitionValues"], form.shape)
    info = ManifestInfo(
        path=path,
        num_entries=entries.num_rows,
        min_added_at_version=versions["min"],
        max_added_at_version=versions["max"],
        partition_bounds=shared,
        has_typed_bounds=True,
        typed_bounds=typed,
        tombstone_count=0,
        live_entry_count=entries.num_rows,
        first_path=paths["min"],
        last_path=paths["max"],
        size_bytes=len(manifest.data),
    )
    return NewManifest(info, len(manifest.data), manifest.uncompressed_bytes)


def _bounds(
    partition_values: pa.ChunkedArray, shape: TableShape
) -> tuple[Mapping[str, Bounds] | None, Mapping[str, Bounds] | None]:
    """The bounds that any reader may use, and those that only hold for a reader that compares typed values."""
    if not shape.is_partitioned:
        return None, None
    bounds = partition_bounds(partition_values, shape)
    like_text = keys_sorted_like_text(partition_values, shape)
    shared = {key: found for key, found in bounds.items() if key in like_text}
    typed = {key: found for key, found in bounds.items() if key not in like_text}
    return shared, typed or None
