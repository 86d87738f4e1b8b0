"""The bundle: a split as one file. The layout, written and read.

    member bytes, back to back
    | AE BE 12 18 | version: u32 | {"files": {name: {"start": a, "end": b}}} | length of these three: u32
    | hot cache: n bytes | n: u32

All numbers are little-endian. The footer is everything from the magic bytes to the end of the file: one range
request gets it. What the hot cache holds is its writer's own affair (see `footer` for ours).
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

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
from indextables.schema import from_spark_json, to_spark_json
from indextables.split.doc_mapping import DocMapping
from indextables.storage import ObjectStore

MAGIC: Final = bytes.fromhex("AEBE1218")
VERSION: Final = 1
U32_BYTES: Final = 4

# Far above what a real split has; below it, a lying length costs no memory.
MAX_FOOTER_BYTES: Final = 256 * 1024**2
MAX_MEMBERS: Final = 10_000

_HEADER_BYTES: Final = len(MAGIC) + U32_BYTES
_SHORTEST_FOOTER: Final = _HEADER_BYTES + 2 * U32_BYTES
# A member becomes a file of a local directory when the index is opened: no separators, no way out.
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")


class Member(msgspec.Struct, frozen=True):
    """Where a file lies in the bundle: from `start` up to `end`, exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """The length of the file."""
        return self.end - self.start


class Bundle(msgspec.Struct, frozen=True):
    """What the footer of a bundle says. `footer_start` is also where the last member may end."""

    members: Mapping[str, Member]
    manifest: bytes
    hot_cache: bytes
    footer_start: int
    footer_end: int

    @property
    def size(self) -> int:
        """The size of the whole file."""
        return self.footer_end


def encode_manifest(members: Mapping[str, Member]) -> bytes:
    """The manifest of these members: magic bytes, version and JSON."""
    files = {name: {"start": member.start, "end": member.end} for name, member in members.items()}
    return MAGIC + _u32(VERSION) + orjson.dumps({"files": files})


def encode_footer(manifest: bytes, hot_cache: bytes) -> bytes:
    """The footer that follows the last member."""
    return manifest + _u32(len(manifest)) + hot_cache + _u32(len(hot_cache))


def decode_footer(footer: bytes, footer_start: int, place: str) -> Bundle:
    """The bundle of a footer that begins at `footer_start` of its file.

    `place` begins the messages. Raises SplitCorruptedError if this is not a whole footer, and
    UnsupportedSplitError for a newer version of the layout.
    """
    manifest, hot_cache = _take_apart(footer, place)
    if len(manifest) + len(hot_cache) + 2 * U32_BYTES != len(footer):
        raise SplitCorruptedError(f"{place}: the footer does not begin at offset {footer_start}")
    members = _decode_manifest(manifest, footer_start, place)
    return Bundle(members, manifest, hot_cache, footer_start, footer_start + len(footer))


def read_bundle(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
) -> Bundle:
    """Read a split's footer: with one request where both offsets are known.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError and UnsupportedSplitError.
    """
    place = f"{store.url}: {key}"
    if footer_start is not None and footer_end is not None:
        if not 0 <= footer_start <= footer_end - _SHORTEST_FOOTER:
            raise SplitCorruptedError(f"{place}: a footer from {footer_start} to {footer_end} is impossible")
        _check_length(footer_end - footer_start, place)
        return decode_footer(read_range(store, key, footer_start, footer_end), footer_start, place)
    return _read_from_the_end(store, key, store.head(key).size if size is None else size, place)


def read_member(store: ObjectStore, key: str, bundle: Bundle, name: str) -> bytes:
    """All bytes of a member. Raises SplitCorruptedError if the bundle has none of that name."""
    member = find_member(bundle, name, f"{store.url}: {key}")
    return read_range(store, key, member.start, member.end)


def find_member(bundle: Bundle, name: str, place: str) -> Member:
    """The place of a member. Raises SplitCorruptedError if there is none of that name."""
    if name not in bundle.members:
        raise SplitCorruptedError(f"{place}: the split has no file {name!r}")
    return bundle.members[name]


def read_range(store: ObjectStore, key: str, start: int, end: int) -> bytes:
    """Exactly these bytes of a split. Raises storage errors, and SplitCorruptedError if the file ends before."""
    try:
        data = store.get_range(key, start, end)
    except (ObjectNotFoundError, AccessDeniedError, TransientStorageError):
        raise
    except StorageError as error:
        size = store.head(key).size
        if size >= end:
            raise
        raise _cut_off(store, key, end, size) from error
    if len(data) != end - start:
        raise _cut_off(store, key, end, start + len(data))
    return data


def _cut_off(store: ObjectStore, key: str, end: int, size: int) -> SplitCorruptedError:
    return SplitCorruptedError(f"{store.url}: {key} ends at byte {size}, before byte {end}: it is cut off")


def _read_from_the_end(store: ObjectStore, key: str, size: int, place: str) -> Bundle:
    if size < _SHORTEST_FOOTER:
        raise SplitCorruptedError(f"{place}: {size} bytes are no split")
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
            f"{place}: a footer of {length} bytes; more than {MAX_FOOTER_BYTES} are refused"
        )


def _take_apart(footer: bytes, place: str) -> tuple[bytes, bytes]:
    """The manifest and the hot cache, found from the end of the file."""
    if len(footer) < _SHORTEST_FOOTER or footer[: len(MAGIC)] != MAGIC:
        raise SplitCorruptedError(f"{place}: this is not the footer of a split, or it begins elsewhere")
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
            f"{place}: the bundle has the version {version}, and {VERSION} is the only one known; upgrade"
        )
    try:
        document = orjson.loads(manifest[_HEADER_BYTES:])
        files = {name: (lies["start"], lies["end"]) for name, lies in document["files"].items()}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise SplitCorruptedError(f"{place}: the list of files cannot be read: {error!r}") from error
    if len(files) > MAX_MEMBERS:
        raise SplitCorruptedError(f"{place}: {len(files)} files; more than {MAX_MEMBERS} are refused")
    members = {name: _member(name, start, end, footer_start, place) for name, (start, end) in files.items()}
    _check_apart(members, place)
    return members


def _member(name: str, start: object, end: object, footer_start: int, place: str) -> Member:
    if not _MEMBER_NAME.fullmatch(name) or name in (".", ".."):
        raise SplitCorruptedError(f"{place}: {name!r} is no name of a file in a split")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end <= footer_start:
        raise SplitCorruptedError(f"{place}: {name} lies from {start!r} to {end!r}, outside the file")
    return Member(start, end)


def _check_apart(members: Mapping[str, Member], place: str) -> None:
    """Members that overlap would let a small file pretend to be a large one."""
    end = 0
    for name, member in sorted(members.items(), key=lambda item: (item[1].start, item[1].end)):
        if member.start < end:
            raise SplitCorruptedError(f"{place}: {name} overlaps another file")
        end = member.end


def _u32(number: int) -> bytes:
    return number.to_bytes(U32_BYTES, "little")


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


# What our splits say about themselves: one JSON object in the hot cache of the bundle.
#
# It tells everything that the log tells of a split, so that a table can be rebuilt from its splits, and the
# checksum of every member. Its first key is the checksum of the manifest and of the rest of the object.


FORMAT_VERSION: Final = 1
ROWS_MEMBER: Final = "rows.parquet"

_CHECKSUM_START: Final = b'{"checksum":"'
_CHECKSUM_LENGTH: Final = 64
_BODY_START: Final = len(_CHECKSUM_START) + _CHECKSUM_LENGTH


class SplitInfo(msgspec.Struct, frozen=True):
    """Everything about a split but its rows. `schema` is the table's, partition columns included."""

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
    # The end of the rows, from the metadata of the Parquet file on.
    rows_footer_bytes: int
    rows_footer_checksum: str
    # The splits whose rows these are, if a merge wrote this one: whoever has only files must not count rows twice.
    merged_from: tuple[str, ...] = ()


def is_ours(bundle: Bundle) -> bool:
    """Whether the split was written in our format. One with our rows but not our footer is damaged."""
    return bundle.hot_cache.startswith(_CHECKSUM_START) or ROWS_MEMBER in bundle.members


def encode_info(info: SplitInfo, manifest: bytes) -> bytes:
    """The hot cache of a bundle with this manifest."""
    document = {
        "formatVersion": FORMAT_VERSION,
        "schema": to_spark_json(info.schema),
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
    """What one of our splits says about itself.

    Raises SplitCorruptedError if a byte of the footer has changed, or if it does not make sense, and
    UnsupportedSplitError for a newer format.
    """
    body = bundle.hot_cache[_BODY_START:]
    if bundle.hot_cache[:_BODY_START] != _CHECKSUM_START + _checksum(bundle.manifest, body):
        raise SplitCorruptedError(f"{place}: the checksum of the footer is wrong; the file is damaged")
    try:
        document = orjson.loads(bundle.hot_cache)
        version = int(document["formatVersion"])
        info = _info(document) if version <= FORMAT_VERSION else None
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexTablesError) as error:
        raise SplitCorruptedError(f"{place}: the footer does not make sense: {error!r}") from error
    if info is None:
        raise UnsupportedSplitError(
            f"{place}: the split has the format {version}, and this release reads up to {FORMAT_VERSION}; upgrade"
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
    )


def _checksum(manifest: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(manifest)
    digest.update(body)
    return digest.hexdigest().encode()
