"""What our splits say about themselves: one JSON object in the hot cache of the bundle.

It tells everything that the log tells of a split, so that a table can be rebuilt from its splits, and the
checksum of every member. Its first key is the checksum of the manifest and of the rest of the object.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa

from indextables.errors import IndexTablesError, SplitCorruptedError, UnsupportedSplitError
from indextables.pruning import ColumnStatistics
from indextables.schema import from_spark_json, to_spark_json
from indextables.split.bundle import Bundle
from indextables.split.mapping import DocMapping

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
