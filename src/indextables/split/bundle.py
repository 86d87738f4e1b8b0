"""The bundle: the layout of a split file, and the footer that describes one of our splits.

    member bytes, back to back
    | AE BE 12 18 | version: u32 | {"files": {name: {"start": a, "end": b}}} | length of these three: u32
    | hot cache: n bytes | n: u32

All numbers are little-endian. The footer starts at the magic bytes and ends with the file; one range request reads
it. Each writer decides what the hot cache holds: ours is the JSON form of `SplitInfo`.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
import orjson
import pyarrow as pa

from indextables.errors import (
    AccessDeniedError,
    IndexTablesError,
    ObjectNotFoundError,
    SplitCorruptedError,
    StorageError,
    TransientStorageError,
    UnsupportedSplitError,
)
from indextables.pruning import ColumnStatistics
from indextables.schema import (
    FieldIds,
    from_spark_json,
    record_field_ids,
    recorded_field_ids,
    to_spark_json,
)
from indextables.split.doc_mapping import DocMapping
from indextables.storage import ObjectStore

T = TypeVar("T")
R = TypeVar("R")

MAGIC: Final = bytes.fromhex("AEBE1218")
VERSION: Final = 1
U32_BYTES: Final = 4

# Far above what a real split has, and low enough that a corrupt length allocates little memory.
MAX_FOOTER_BYTES: Final = 256 * 1024**2
MAX_MEMBERS: Final = 10_000

_HEADER_BYTES: Final = len(MAGIC) + U32_BYTES
_SHORTEST_FOOTER: Final = _HEADER_BYTES + 2 * U32_BYTES
# A reader writes members to files of a local directory: a name must not leave that directory.
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")


class Member(msgspec.Struct, frozen=True):
    """The byte range of a file in the bundle; `end` is exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Bundle(msgspec.Struct, frozen=True):
    """A decoded footer. No member ends after `footer_start`."""

    members: Mapping[str, Member]
    manifest: bytes
    hot_cache: bytes
    footer_start: int
    footer_end: int

    @property
    def size(self) -> int:
        return self.footer_end


def encode_manifest(members: Mapping[str, Member]) -> bytes:
    """Encode the manifest: magic bytes, version and JSON."""
    files = {name: {"start": member.start, "end": member.end} for name, member in members.items()}
    return MAGIC + _u32(VERSION) + orjson.dumps({"files": files})


def encode_footer(manifest: bytes, hot_cache: bytes) -> bytes:
    """Encode the footer that follows the last member."""
    return manifest + _u32(len(manifest)) + hot_cache + _u32(len(hot_cache))


def decode_footer(footer: bytes, footer_start: int, place: str) -> Bundle:
    """Decode a footer that starts at `footer_start` of its file; `place` starts the error messages.

    Raises SplitCorruptedError if this is not a complete footer, and UnsupportedSplitError for a newer layout.
    """
    manifest, hot_cache = _manifest_and_hot_cache(footer, place)
    if len(manifest) + len(hot_cache) + 2 * U32_BYTES != len(footer):
        raise SplitCorruptedError(f"{place}: the footer does not start at offset {footer_start}")
    members = _decode_manifest(manifest, footer_start, place)
    return Bundle(members, manifest, hot_cache, footer_start, footer_start + len(footer))


def read_bundle(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
) -> Bundle:
    """Read the footer of a split, with one request if both offsets are known.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError and UnsupportedSplitError.
    """
    place = f"{store.url}: {key}"
    if footer_start is not None and footer_end is not None:
        if not 0 <= footer_start <= footer_end - _SHORTEST_FOOTER:
            raise SplitCorruptedError(f"{place}: the footer cannot span bytes {footer_start} to {footer_end}")
        _check_length(footer_end - footer_start, place)
        return decode_footer(read_range(store, key, footer_start, footer_end), footer_start, place)
    return _read_from_end(store, key, store.head(key).size if size is None else size, place)


def read_member(store: ObjectStore, key: str, bundle: Bundle, name: str) -> bytes:
    """Read a member. Raises SplitCorruptedError if the bundle has no member of that name."""
    member = find_member(bundle, name, f"{store.url}: {key}")
    return read_range(store, key, member.start, member.end)


def find_member(bundle: Bundle, name: str, place: str) -> Member:
    """Return the range of a member. Raises SplitCorruptedError if the bundle has no member of that name."""
    if name not in bundle.members:
        raise SplitCorruptedError(f"{place}: the split has no file {name!r}")
    return bundle.members[name]


def _read_from_end(store: ObjectStore, key: str, size: int, place: str) -> Bundle:
    if size < _SHORTEST_FOOTER:
        raise SplitCorruptedError(f"{place}: {size} bytes are too few for a split")
    hot_cache_length = _number(read_range(store, key, size - U32_BYTES, size))
    manifest_end = size - 2 * U32_BYTES - hot_cache_length
    _check_length(hot_cache_length, place)
    if manifest_end < _HEADER_BYTES:
        raise SplitCorruptedError(f"{place}: a hot cache of {hot_cache_length} bytes does not fit the file")
    manifest_length = _number(read_range(store, key, manifest_end, manifest_end + U32_BYTES))
    _check_length(hot_cache_length + manifest_length, place)
    if not _HEADER_BYTES <= manifest_length <= manifest_end:
        raise SplitCorruptedError(f"{place}: a manifest of {manifest_length} bytes does not fit the file")
    start = manifest_end - manifest_length
    return decode_footer(read_range(store, key, start, size), start, place)


def _check_length(length: int, place: str) -> None:
    if length > MAX_FOOTER_BYTES:
        raise SplitCorruptedError(
            f"{place}: the footer has {length} bytes; at most {MAX_FOOTER_BYTES} are allowed"
        )


def _manifest_and_hot_cache(footer: bytes, place: str) -> tuple[bytes, bytes]:
    """Split a footer, from its end, into the manifest and the hot cache."""
    if len(footer) < _SHORTEST_FOOTER or footer[: len(MAGIC)] != MAGIC:
        raise SplitCorruptedError(f"{place}: this is not the footer of a split, or it starts elsewhere")
    hot_cache_end = len(footer) - U32_BYTES
    hot_cache_start = hot_cache_end - _number(footer[hot_cache_end:])
    manifest_end = hot_cache_start - U32_BYTES
    if manifest_end < _HEADER_BYTES:
        raise SplitCorruptedError(f"{place}: the hot cache does not fit the footer; the file is damaged")
    manifest_length = _number(footer[manifest_end:hot_cache_start])
    if not _HEADER_BYTES <= manifest_length <= manifest_end:
        raise SplitCorruptedError(f"{place}: the manifest does not fit the footer; the file is damaged")
    manifest = footer[manifest_end - manifest_length : manifest_end]
    return manifest, footer[hot_cache_start:hot_cache_end]


def _decode_manifest(manifest: bytes, footer_start: int, place: str) -> dict[str, Member]:
    version = _number(manifest[len(MAGIC) : _HEADER_BYTES])
    if version != VERSION:
        raise UnsupportedSplitError(
            f"{place}: the bundle has layout version {version}, and this release reads {VERSION}; upgrade"
        )
    try:
        document = orjson.loads(manifest[_HEADER_BYTES:])
        files = {name: (member["start"], member["end"]) for name, member in document["files"].items()}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise SplitCorruptedError(f"{place}: the list of files cannot be read: {error!r}") from error
    if len(files) > MAX_MEMBERS:
        raise SplitCorruptedError(
            f"{place}: the split lists {len(files)} files; at most {MAX_MEMBERS} are allowed"
        )
    members = {name: _member(name, start, end, footer_start, place) for name, (start, end) in files.items()}
    _check_apart(members, place)
    return members


def _member(name: str, start: object, end: object, footer_start: int, place: str) -> Member:
    if not _MEMBER_NAME.fullmatch(name) or name in (".", ".."):
        raise SplitCorruptedError(f"{place}: {name!r} is not a valid file name in a split")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end <= footer_start:
        raise SplitCorruptedError(f"{place}: {name} spans bytes {start!r} to {end!r}, outside the file")
    return Member(start, end)


def _check_apart(members: Mapping[str, Member], place: str) -> None:
    """Reject overlapping members, which would let a small file expand into a large one."""
    end = 0
    for name, member in sorted(members.items(), key=lambda item: (item[1].start, item[1].end)):
        if member.start < end:
            raise SplitCorruptedError(f"{place}: {name} overlaps another file")
        end = member.end


def _u32(number: int) -> bytes:
    return number.to_bytes(U32_BYTES, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


# Our splits: the hot cache is one JSON object. It records everything that the log records about a split, so a table can
# be rebuilt from its splits, and the checksum of every member. The first key is the checksum of the manifest and of
# the rest of the object.

FORMAT_VERSION: Final = 1
ROWS_MEMBER: Final = "rows.parquet"

_CHECKSUM_START: Final = b'{"checksum":"'
_CHECKSUM_LENGTH: Final = 64
_BODY_START: Final = len(_CHECKSUM_START) + _CHECKSUM_LENGTH


class SplitInfo(msgspec.Struct, frozen=True):
    """The description of one of our splits. `schema` is the table's, including partition columns."""

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    partition_values: Mapping[str, str | None]
    mapping: DocMapping
    num_records: int
    statistics: ColumnStatistics
    uncompressed_size_bytes: int
    created_time_ms: int
    split_tags: tuple[str, ...]
    checksums: Mapping[str, str]
    # The Parquet footer of the rows: its metadata, and all that follows.
    rows_footer_bytes: int
    rows_footer_checksum: str
    # The source splits, if a merge wrote this one: REPAIR, which has no log, must not count rows twice.
    merged_from: tuple[str, ...] = ()
    # The ids of the table's columns, including partition columns; none if the writer did not know them.
    field_ids: FieldIds = ()

    @property
    def schema_string(self) -> str:
        """The schema in Spark's form, with field ids."""
        schema_string = to_spark_json(self.schema)
        return record_field_ids(schema_string, self.field_ids) if self.field_ids else schema_string


def is_ours(bundle: Bundle) -> bool:
    """Return whether the split is in our format. One with our rows but without our footer is damaged."""
    return bundle.hot_cache.startswith(_CHECKSUM_START) or ROWS_MEMBER in bundle.members


def encode_info(info: SplitInfo, manifest: bytes) -> bytes:
    """Encode the hot cache of a bundle with this manifest."""
    document = {
        "formatVersion": FORMAT_VERSION,
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
        "checksums": dict(info.checksums),
        "rowsFooterBytes": info.rows_footer_bytes,
        "rowsFooterChecksum": info.rows_footer_checksum,
    }
    if info.merged_from:
        document["mergedFrom"] = info.merged_from
    body = b'",' + orjson.dumps(document)[1:]
    return _CHECKSUM_START + _checksum(manifest, body) + body


def decode_info(bundle: Bundle, place: str) -> SplitInfo:
    """Decode the description of one of our splits.

    Raises SplitCorruptedError if a byte of the footer changed or its content is invalid, and UnsupportedSplitError for
    a newer format.
    """
    body = bundle.hot_cache[_BODY_START:]
    if bundle.hot_cache[:_BODY_START] != _CHECKSUM_START + _checksum(bundle.manifest, body):
        raise SplitCorruptedError(f"{place}: the checksum of the footer is wrong; the file is damaged")
    try:
        document = orjson.loads(bundle.hot_cache)
        version = int(document["formatVersion"])
        info = _info(document) if version <= FORMAT_VERSION else None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexTablesError) as error:
        raise SplitCorruptedError(f"{place}: the footer is invalid: {error!r}") from error
    if info is None:
        raise UnsupportedSplitError(
            f"{place}: the split has format version {version}, and this release reads up to {FORMAT_VERSION}; upgrade"
        )
    return info


def _info(document: dict[str, Any]) -> SplitInfo:
    statistics = ColumnStatistics(
        dict(document["minValues"]), dict(document["maxValues"]), frozenset(document["nullColumns"])
    )
    return SplitInfo(
        schema=from_spark_json(document["schema"]),
        partition_columns=tuple(document["partitionColumns"]),
        partition_values=dict(document["partitionValues"]),
        mapping=DocMapping.from_json(document["docMapping"]),
        num_records=int(document["numRecords"]),
        statistics=statistics,
        uncompressed_size_bytes=int(document["uncompressedSizeBytes"]),
        created_time_ms=int(document["createdTime"]),
        split_tags=tuple(document["splitTags"]),
        checksums=dict(document["checksums"]),
        rows_footer_bytes=int(document["rowsFooterBytes"]),
        rows_footer_checksum=str(document["rowsFooterChecksum"]),
        merged_from=tuple(map(str, document.get("mergedFrom", ()))),
        field_ids=recorded_field_ids(document["schema"]),
    )


def _checksum(manifest: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(manifest)
    digest.update(body)
    return digest.hexdigest().encode()


# Reading byte ranges of a split.

# A request costs more than reading this many bytes, so ranges this close are fetched as one.
_MAX_GAP_BYTES: Final = 256 * 1024


def read_range(store: ObjectStore, key: str, start: int, end: int) -> bytes:
    """Read exactly these bytes of a split. Raises storage errors, and SplitCorruptedError if the file is truncated."""
    try:
        data = store.get_range(key, start, end)
    except (ObjectNotFoundError, AccessDeniedError, TransientStorageError):
        raise
    except StorageError as error:
        size = store.head(key).size
        if size >= end:
            raise
        raise _truncated(store, key, end, size) from error
    if len(data) != end - start:
        raise _truncated(store, key, end, start + len(data))
    return data


def _truncated(store: ObjectStore, key: str, end: int, size: int) -> SplitCorruptedError:
    return SplitCorruptedError(f"{store.url}: {key} is truncated: it ends at byte {size}, before byte {end}")


def coalesce(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ranges in order, with neighbours joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= _MAX_GAP_BYTES:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def prefetched(fetch: Callable[[T], R], items: Sequence[T], depth: int) -> Iterator[tuple[T, R]]:
    """Yield each item with its fetched value, in order, while up to `depth` more are fetched ahead.

    `fetch` runs in other threads; its errors surface in the iteration.
    """
    if len(items) <= 1:
        yield from ((item, fetch(item)) for item in items)
        return
    with ThreadPoolExecutor(depth, thread_name_prefix="indextables-fetch") as pool:
        waiting: deque[Future[R]] = deque(pool.submit(fetch, item) for item in items[:depth])
        try:
            for number, item in enumerate(items):
                fetched = waiting.popleft().result()
                if number + depth < len(items):
                    waiting.append(pool.submit(fetch, items[number + depth]))
                yield item, fetched
        finally:
            for future in waiting:
                future.cancel()
