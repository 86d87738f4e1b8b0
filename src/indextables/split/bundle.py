"""The layout of a split: a Parquet file that carries its own search index.

    PAR1 | row groups | page indexes | index members | cold data | manifest | Parquet metadata | its length: u32 | PAR1

Offsets in a Parquet file are absolute, and readers start at its end, so any Parquet reader finds the rows and skips the
index. The tail, from the cold data to the end, is read with one request. The metadata's key `indextables` holds what
the split knows of itself, and the checksum of the tail; the manifest lists the files of the index; the cold data says
where their chunks and the pages of the rows are, and which parts of the index a search needs.
"""

import hashlib
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from indextables._caching import shared_memo
from indextables._structs import decodable
from indextables.errors import IndexTablesError, SplitCorruptedError, UnsupportedSplitError
from indextables.pruning import ColumnStatistics
from indextables.schema import (
    FieldIds,
    TableShape,
    from_spark_json,
    record_field_ids,
    recorded_field_ids,
    to_spark_json,
)
from indextables.schema.stored_names import record_stored_names, stored_schema
from indextables.split.byte_ranges import read_range
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_chunks import CHUNK_BYTES, ChunkTable
from indextables.split.jvm_bundle import (
    MAX_FOOTER_BYTES,
    MAX_MEMBERS,
    JvmBundle,
    decode_footer,
    is_member_name,
    read_footer_from_end,
)
from indextables.split.pages import PageTable
from indextables.split.parquet_footer import PARQUET_MAGIC, PARQUET_TAIL_BYTES, metadata_with_entry
from indextables.split.thrift import Struct, decode_struct
from indextables.storage import ObjectStore

FORMAT_VERSION: Final = 2
METADATA_KEY: Final = b"indextables"

# The tail of most splits is shorter.
_FIRST_READ_BYTES: Final = 64 * 1024

# The checksum covers the whole tail, with zeros in its own place.
_CHECKSUM_START: Final = b'{"checksum":"'
_NO_CHECKSUM: Final = b"0" * 64


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A byte range of the file; `end` is exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class IndexMember(msgspec.Struct, frozen=True):
    """A file of the index: where its chunks are, and how long it is when they are unpacked."""

    start: int
    end: int
    size: int


class SplitInfo(msgspec.Struct, frozen=True):
    """What a split knows of itself: all that the log records of it, so a table can be rebuilt from its splits.

    `schema` is the table's, including partition columns. `body_checksum` covers the rows and the index.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    partition_values: Mapping[str, str | None]
    mapping: DocMapping
    num_records: int
    statistics: ColumnStatistics
    uncompressed_size_bytes: int
    created_time_ms: int
    split_tags: tuple[str, ...]
    body_checksum: str
    # The source splits, if a merge wrote this one: REPAIR, which has no log, must not count rows twice.
    merged_from: tuple[str, ...] = ()
    # The ids of the table's columns, including partition columns; none if the writer did not know them.
    field_ids: FieldIds = ()
    # The schema with the names that the rows and the mapping have, if they differ from those of the table.
    stored_schema: pa.Schema | None = None

    @property
    def schema_string(self) -> str:
        """The schema in Spark's form, with field ids and stored names."""
        schema_string = to_spark_json(self.schema)
        if self.field_ids:
            schema_string = record_field_ids(schema_string, self.field_ids)
        if self.stored_schema is not None:
            schema_string = record_stored_names(schema_string, self.stored_schema)
        return schema_string

    @property
    def shape(self) -> TableShape:
        """The table as the writer knew it."""
        return TableShape(self.schema, self.partition_columns, self.field_ids, self.stored_schema)


class Bundle(msgspec.Struct, frozen=True, eq=False):
    """The decoded tail of a split."""

    info: SplitInfo
    members: Mapping[str, IndexMember]
    chunks: ChunkTable
    # Encoded, because not every split that is opened is searched or read: see `PageTable` and `ColdData`.
    page_data: memoryview
    cold_index: memoryview
    metadata: pq.FileMetaData
    checksum: str
    tail: bytes
    footer_start: int

    @property
    def footer_end(self) -> int:
        return self.footer_start + len(self.tail)

    @property
    def size(self) -> int:
        return self.footer_end

    @property
    def index_start(self) -> int:
        """Where the chunks of the index start."""
        return min((member.start for member in self.members.values()), default=self.footer_start)

    def pages(self, place: str) -> PageTable:
        """Decode the page table. Raises SplitCorruptedError; `place` starts its message."""
        try:
            pages = PageTable.decode(self.page_data)
        except (ValueError, pa.ArrowException) as error:
            raise SplitCorruptedError(f"{place}: the page table is invalid: {error!r}") from error
        counted = (int(pages.first_rows[-1]), len(pages.first_pages) - 1)
        if counted != (self.metadata.num_rows, self.metadata.num_row_groups):
            raise SplitCorruptedError(f"{place}: the page table does not match the Parquet metadata")
        return pages

    def parquet_metadata(self) -> Struct:
        """Decode the Parquet metadata."""
        end = len(self.tail) - PARQUET_TAIL_BYTES
        length = int.from_bytes(self.tail[end : end + 4], "little")
        return decode_struct(self.tail, end - length)[0]


@decodable
class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    files: dict[str, IndexMember]
    chunk_bytes: int
    chunks: Place
    pages: Place
    cold_index: Place


# --- writing ------------------------------------------------------------------------------------------


def encode_tail(
    start: int,
    info: SplitInfo,
    members: Mapping[str, IndexMember],
    chunks: ChunkTable,
    pages: PageTable,
    cold_index: bytes,
    metadata: Struct,
) -> bytes:
    """Encode the tail of a split that starts at this offset; `metadata` is that of the rows."""
    parts = (chunks.encode(), pages.encode(), cold_index)
    cold = b"".join(parts)
    manifest_start = start + len(cold)
    places = [Place(*ends) for ends in pairwise(accumulate(map(len, parts), initial=start))]
    manifest = msgspec.json.encode(_Manifest(dict(members), CHUNK_BYTES, *places))
    place = Place(manifest_start, manifest_start + len(manifest))
    entry = metadata_with_entry(
        metadata, METADATA_KEY, _encode_info(info, Place(start, manifest_start), place)
    )
    tail = cold + manifest + entry + len(entry).to_bytes(4, "little") + PARQUET_MAGIC
    at = tail.rindex(_CHECKSUM_START) + len(_CHECKSUM_START)
    checksum = hashlib.sha256(tail).hexdigest().encode()
    return tail[:at] + checksum + tail[at + len(checksum) :]


def _encode_info(info: SplitInfo, cold_data: Place, manifest: Place) -> bytes:
    document = {
        "checksum": _NO_CHECKSUM.decode(),
        "formatVersion": FORMAT_VERSION,
        "coldData": [cold_data.start, cold_data.end],
        "manifest": [manifest.start, manifest.end],
        "schema": info.schema_string,
        "partitionColumns": info.partition_columns,
        "partitionValues": dict(info.partition_values),
        "docMapping": info.mapping.to_json(),
        "numRecords": info.num_records,
        "minValues": info.statistics.min_values,
        "maxValues": info.statistics.max_values,
        "nullColumns": sorted(info.statistics.null_columns),
        "uncompressedSizeBytes": info.uncompressed_size_bytes,
        "createdTime": info.created_time_ms,
        "splitTags": info.split_tags,
        "bodyChecksum": info.body_checksum,
    }
    if info.merged_from:
        document["mergedFrom"] = info.merged_from
    return orjson.dumps(document)


# --- reading ------------------------------------------------------------------------------------------


def read_bundle(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
) -> Bundle | JvmBundle:
    """Read the tail of a split, or the footer of one of the JVM, with one request if both offsets are known.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError and UnsupportedSplitError.
    """
    place = f"{store.url}: {key}"
    if footer_start is not None and footer_end is not None:
        if not 0 <= footer_start < footer_end:
            raise SplitCorruptedError(f"{place}: the footer cannot span bytes {footer_start} to {footer_end}")
        _check_length(footer_end - footer_start, place)
        footer = read_range(store, key, footer_start, footer_end)
        if footer.endswith(PARQUET_MAGIC):
            return decode_tail(footer, footer_start, place)
        return decode_footer(footer, footer_start, place)
    size = store.head(key).size if size is None else size
    end = read_range(store, key, max(size - _FIRST_READ_BYTES, 0), size)
    if not end.endswith(PARQUET_MAGIC):
        return read_footer_from_end(store, key, size)
    return _read_from_end(store, key, size, end, place)


def decode_tail(tail: bytes, start: int, place: str) -> Bundle:
    """Decode a tail that starts at this offset of its file; `place` starts the error messages.

    Raises SplitCorruptedError if a byte of it changed or it is not the tail of a split, and UnsupportedSplitError for a
    newer format.
    """
    metadata, document = _decode_metadata(tail, place)
    checksum = _verified_checksum(tail, place)
    version = document.get("formatVersion")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UnsupportedSplitError(
            f"{place}: the split has format version {version}, and this release reads up to {FORMAT_VERSION}; upgrade"
        )
    try:
        cold, listed = Place(*document["coldData"]), Place(*document["manifest"])
        if (cold.start, cold.end) != (start, listed.start):
            raise ValueError(f"the tail does not start at offset {start}")  # noqa: TRY301
        manifest = msgspec.json.decode(tail[listed.start - start : listed.end - start], type=_Manifest)
        places = (manifest.chunks, manifest.pages, manifest.cold_index)
        chunk_data, page_data, cold_index = (
            memoryview(tail)[place.start - start : place.end - start] for place in places
        )
        chunks = ChunkTable.decode(chunk_data)
        info = _info(document)
    except (
        msgspec.MsgspecError,
        KeyError,
        TypeError,
        ValueError,
        IndexTablesError,
        pa.ArrowException,
    ) as error:
        raise SplitCorruptedError(f"{place}: the tail is invalid: {error!r}") from error
    _check_members(manifest, chunks, start, place)
    return Bundle(info, manifest.files, chunks, page_data, cold_index, metadata, checksum, tail, start)


def _read_from_end(store: ObjectStore, key: str, size: int, end: bytes, place: str) -> Bundle:
    """Decode the tail of a file that ends with these bytes, after reading the rest of it."""
    needed = int.from_bytes(end[-PARQUET_TAIL_BYTES : -len(PARQUET_MAGIC)], "little") + PARQUET_TAIL_BYTES
    _check_length(needed, place)
    if needed > size:
        raise SplitCorruptedError(f"{place}: Parquet metadata of {needed} bytes does not fit the file")
    if needed > len(end):
        end = read_range(store, key, size - needed, size)
    _, document = _decode_metadata(end, place)
    start = (document.get("coldData") or [None])[0]
    if type(start) is not int or not 0 <= start < size:
        raise SplitCorruptedError(f"{place}: the tail cannot start at offset {start!r}")
    _check_length(size - start, place)
    known = size - len(end)
    tail = end[start - known :] if start >= known else read_range(store, key, start, known) + end
    return decode_tail(tail, start, place)


def _decode_metadata(tail: bytes, place: str) -> tuple[pq.FileMetaData, dict[str, Any]]:
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail))
        entry = (metadata.metadata or {}).get(METADATA_KEY)
        document = None if entry is None else orjson.loads(entry)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise SplitCorruptedError(f"{place}: the Parquet metadata cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise SplitCorruptedError(f"{place}: this is a Parquet file without an index, not a split")
    return metadata, document


def _verified_checksum(tail: bytes, place: str) -> str:
    at = tail.rfind(_CHECKSUM_START) + len(_CHECKSUM_START)
    checksum = tail[at : at + len(_NO_CHECKSUM)]
    digest = hashlib.sha256(tail[:at])
    digest.update(_NO_CHECKSUM)
    digest.update(memoryview(tail)[at + len(_NO_CHECKSUM) :])
    if checksum != digest.hexdigest().encode():
        raise SplitCorruptedError(f"{place}: the checksum of the tail is wrong; the file is damaged")
    return checksum.decode()


def _check_length(length: int, place: str) -> None:
    if length > MAX_FOOTER_BYTES:
        raise SplitCorruptedError(
            f"{place}: the footer has {length} bytes; at most {MAX_FOOTER_BYTES} are allowed"
        )


def _check_members(manifest: _Manifest, chunks: ChunkTable, limit: int, place: str) -> None:
    """Reject names that leave a directory, and members that do not follow each other in front of the tail."""
    if len(manifest.files) > MAX_MEMBERS or manifest.chunk_bytes != CHUNK_BYTES:
        raise SplitCorruptedError(f"{place}: the list of the index files is invalid")
    ends = chunks.ends
    first, start = 0, None
    for name, member in manifest.files.items():
        last = first + -(-member.size // CHUNK_BYTES)
        if not is_member_name(name):
            raise SplitCorruptedError(f"{place}: {name!r} is not a valid file name in a split")
        if last >= len(ends) or int(ends[last] - ends[first]) != member.end - member.start:
            raise SplitCorruptedError(f"{place}: the chunks of {name} do not match its size")
        if (start is not None and member.start != start) or not 0 <= member.start <= member.end <= limit:
            raise SplitCorruptedError(f"{place}: {name} spans bytes {member.start} to {member.end}")
        first, start = last, member.end
    if first != len(ends) - 1:
        raise SplitCorruptedError(f"{place}: there are chunks that belong to no index file")


# The splits of a table have few different mappings.


@shared_memo("split.bundle.mappings", "doc mappings of splits by their JSON", max_entries=64)
def _mapping(text: str) -> DocMapping:
    return DocMapping.from_json(text)


def _info(document: dict[str, Any]) -> SplitInfo:
    statistics = ColumnStatistics(
        dict(document["minValues"]), dict(document["maxValues"]), frozenset(document["nullColumns"])
    )
    return SplitInfo(
        schema=from_spark_json(document["schema"]),
        partition_columns=tuple(document["partitionColumns"]),
        partition_values=dict(document["partitionValues"]),
        mapping=_mapping(document["docMapping"]),
        num_records=int(document["numRecords"]),
        statistics=statistics,
        uncompressed_size_bytes=int(document["uncompressedSizeBytes"]),
        created_time_ms=int(document["createdTime"]),
        split_tags=tuple(document["splitTags"]),
        body_checksum=str(document["bodyChecksum"]),
        merged_from=tuple(map(str, document.get("mergedFrom", ()))),
        field_ids=recorded_field_ids(document["schema"]),
        stored_schema=stored_schema(document["schema"]),
    )
