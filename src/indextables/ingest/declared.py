"""Types that the caller gives columns: `price=double`, `payload=json`."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from indextables.errors import InvalidOptionError, InvalidSchemaError
from indextables.schema import from_spark_json

# Names that people use, and what Spark calls them. `text` and `json` are strings that are indexed in their own way.
_OTHER_NAMES: Final = {
    "text": "string",
    "json": "string",
    "ip": "string",
    "str": "string",
    "bool": "boolean",
    "int": "integer",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "bigint": "long",
    "smallint": "short",
    "tinyint": "byte",
    "float32": "float",
    "float64": "double",
    "datetime": "timestamp",
}
_INDEXED_AS: Final = frozenset({"text", "json", "ip"})


class DeclaredTypes(msgspec.Struct, frozen=True):
    """The Arrow type of each declared column, and how the strings among them are indexed."""

    types: Mapping[str, pa.DataType] = msgspec.field(default_factory=dict)
    indexed_as: Mapping[str, str] = msgspec.field(default_factory=dict)

    @classmethod
    def parse(cls, pairs: Sequence[str]) -> "DeclaredTypes":
        """Parse NAME=TYPE pairs. Raises InvalidOptionError."""
        types: dict[str, pa.DataType] = {}
        indexed_as: dict[str, str] = {}
        for pair in pairs:
            name, equals, given = pair.partition("=")
            kind = given.strip().lower()
            if not (name and equals and kind):
                raise InvalidOptionError(f"write a type as NAME=TYPE, such as price=double, not {pair!r}")
            types[name] = _type(name, kind)
            if kind in _INDEXED_AS:
                indexed_as[name] = kind
        return cls(types, indexed_as)


def _type(name: str, kind: str) -> pa.DataType:
    spark = _OTHER_NAMES.get(kind, kind)
    field = {"name": name, "type": spark, "nullable": True, "metadata": {}}
    try:
        type_ = from_spark_json(json.dumps({"type": "struct", "fields": [field]})).field(0).type
    except InvalidSchemaError as error:
        raise InvalidOptionError(
            f"--type {name}={kind}: {error}; the types are string, text, json, ip, long, double, decimal(10,2), "
            f"boolean, date, timestamp, timestamp_ntz and their relatives"
        ) from error
    if pa.types.is_null(type_) or pa.types.is_binary(type_):
        raise InvalidOptionError(f"--type {name}={kind}: no input is read as {kind}; use string")
    return type_
