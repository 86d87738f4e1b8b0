"""Field metadata in both worlds: a JSON object in Spark, pairs of bytes in Arrow.

Text values keep their key on both sides, so that a comment is a comment in either. Values of other kinds
travel in one extra Arrow entry, as JSON, and come back as what they were.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from indextables.errors import InvalidSchemaError

SPARK_METADATA_KEY = b"spark.metadata"

# Arrow and Parquet keep notes about the physical file here. They describe the data that a schema was read
# from, and would be wrong about the table.
PHYSICAL_PREFIXES = (b"ARROW:", b"PARQUET:")


def arrow_metadata(spark: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    """The Arrow form of a Spark field's metadata; None where there is none."""
    texts = {key.encode(): value.encode() for key, value in spark.items() if isinstance(value, str)}
    others = {key: value for key, value in spark.items() if not isinstance(value, str)}
    if others:
        texts[SPARK_METADATA_KEY] = orjson.dumps(others, option=orjson.OPT_SORT_KEYS)
    return texts or None


def spark_metadata(arrow: Mapping[bytes, bytes] | None, column: str) -> dict[str, Any]:
    """The Spark form of an Arrow field's metadata.

    Raises InvalidSchemaError if an entry is not text: JSON has no place for raw bytes.
    """
    spark: dict[str, Any] = {}
    for key, value in (arrow or {}).items():
        if key.startswith(PHYSICAL_PREFIXES):
            continue
        if key == SPARK_METADATA_KEY:
            spark.update(_non_text_values(value, column))
            continue
        try:
            spark[key.decode()] = value.decode()
        except UnicodeDecodeError as error:
            raise InvalidSchemaError(
                f"column {column!r}: metadata entry {key!r} is not utf-8 text; remove it from the field"
            ) from error
    return spark


def _non_text_values(value: bytes, column: str) -> dict[str, Any]:
    try:
        decoded = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidSchemaError(
            f"column {column!r}: metadata entry {SPARK_METADATA_KEY.decode()!r} is not JSON; remove it"
        ) from error
    if not isinstance(decoded, dict):
        raise InvalidSchemaError(
            f"column {column!r}: metadata entry {SPARK_METADATA_KEY.decode()!r} is no JSON object; remove it"
        )
    return decoded
