"""A mapping as JSON: a list of fields with the keys that other writers use.

Our own keys (`kind`, `scale`, `array`, `record`, `tokenLength`) are written only where they say something new,
so that a mapping which other writers can express has the same JSON, and the same hash, as theirs.
"""

from collections.abc import Iterable
from typing import Any, Final, cast

import orjson

from indextables.errors import InvalidOptionError, InvalidSchemaError
from indextables.split.fields import (
    DEFAULT,
    MAX_TOKEN_BYTES,
    RAW,
    RECORD_OPTIONS,
    FieldKind,
    FieldMapping,
    RecordOption,
    check_tokenizer,
    default_record,
    default_token_bytes,
)

# The type under which a kind is written; those that say it all come back by it alone.
TYPES: Final = {
    FieldKind.TEXT: "text",
    FieldKind.STRING: "text",
    FieldKind.JSON: "json",
    FieldKind.IP: "ip",
    FieldKind.I64: "i64",
    FieldKind.F64: "f64",
    FieldKind.BOOL: "bool",
    FieldKind.DATE: "i64",
    FieldKind.TIMESTAMP: "i64",
    FieldKind.TIMESTAMP_NTZ: "i64",
    FieldKind.DECIMAL: "i64",
    FieldKind.BIG_DECIMAL: "text",
    FieldKind.BYTES: "bytes",
    FieldKind.NOTHING: "none",
}

# What other writers call their types, beside ours.
KINDS: Final = {
    "text": FieldKind.TEXT,
    "str": FieldKind.TEXT,
    "json": FieldKind.JSON,
    "json_object": FieldKind.JSON,
    "object": FieldKind.JSON,
    "ip": FieldKind.IP,
    "ip_addr": FieldKind.IP,
    "i64": FieldKind.I64,
    "u64": FieldKind.I64,
    "f64": FieldKind.F64,
    "bool": FieldKind.BOOL,
    "boolean": FieldKind.BOOL,
    "date": FieldKind.TIMESTAMP,
    "datetime": FieldKind.TIMESTAMP,
    "bytes": FieldKind.BYTES,
}

_BY_TYPE_ALONE: Final = frozenset(
    {
        FieldKind.TEXT,
        FieldKind.STRING,
        FieldKind.JSON,
        FieldKind.IP,
        FieldKind.I64,
        FieldKind.F64,
        FieldKind.BOOL,
        FieldKind.BYTES,
        FieldKind.NOTHING,
    }
)


def fields_to_json(fields: Iterable[FieldMapping]) -> str:
    """The fields as a JSON list, in their order."""
    documents = [_to_document(field) for field in fields]
    return orjson.dumps(documents, option=orjson.OPT_SORT_KEYS).decode()


def fields_from_json(text: str | bytes) -> tuple[FieldMapping, ...]:
    """The fields of a JSON list. Raises InvalidSchemaError if it is no doc mapping."""
    try:
        documents = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSchemaError(f"the doc mapping is not JSON: {error}") from error
    if not isinstance(documents, list):
        raise InvalidSchemaError('the doc mapping is not a list of fields, [{"name":…,"type":…}]')
    fields = tuple(map(_from_document, documents))
    if len({field.name for field in fields}) != len(fields):
        raise InvalidSchemaError("the doc mapping names a field twice")
    return fields


def _to_document(field: FieldMapping) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": field.name,
        "type": TYPES[field.kind],
        "fast": field.fast,
        "indexed": field.is_indexed,
        "stored": field.stored,
    }
    if field.kind not in _BY_TYPE_ALONE:
        document["kind"] = field.kind.value
    if field.kind in (FieldKind.DECIMAL, FieldKind.BIG_DECIMAL):
        document["scale"] = field.scale
    if field.is_array:
        document["array"] = True
    if field.is_analyzed:
        document["tokenizer"] = field.tokenizer
        if field.record != default_record(field.kind):
            document["record"] = field.record
        if field.max_token_bytes != default_token_bytes(field.kind):
            document["tokenLength"] = field.max_token_bytes
    return document


def _from_document(document: object) -> FieldMapping:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not document["name"]:
        raise InvalidSchemaError("the doc mapping has a field that is not an object with a name")
    name = document["name"]
    kind = _kind(document)
    if kind is FieldKind.NOTHING:
        return FieldMapping(name, kind, fast=False, stored=document.get("stored") is not False)
    return FieldMapping(
        name,
        kind,
        tokenizer=_tokenizer(name, document, kind),
        record=_record(document, kind),
        max_token_bytes=_whole_number(document, "tokenLength", default_token_bytes(kind), MAX_TOKEN_BYTES),
        fast=document.get("fast") is True,
        stored=document.get("stored") is not False,
        is_array=document.get("array") is True,
        scale=_whole_number(document, "scale", 0, 38),
    )


def _kind(document: dict[str, Any]) -> FieldKind:
    if document.get("indexed") is False:
        return FieldKind.NOTHING
    if "kind" in document:
        try:
            return FieldKind(document["kind"])
        except ValueError:
            return FieldKind.NOTHING
    given = document.get("type")
    kind = KINDS.get(given, FieldKind.NOTHING) if isinstance(given, str) else FieldKind.NOTHING
    return FieldKind.STRING if kind is FieldKind.TEXT and document.get("tokenizer") == RAW else kind


def _tokenizer(name: str, document: dict[str, Any], kind: FieldKind) -> str:
    default = DEFAULT if kind in (FieldKind.TEXT, FieldKind.JSON) else RAW
    try:
        return check_tokenizer(str(document.get("tokenizer") or default))
    except InvalidOptionError as error:
        raise InvalidSchemaError(f"the doc mapping's field {name!r}: {error}") from error


def _record(document: dict[str, Any], kind: FieldKind) -> RecordOption:
    given = document.get("record")
    return cast("RecordOption", given) if given in RECORD_OPTIONS else default_record(kind)


def _whole_number(document: dict[str, Any], key: str, default: int, highest: int) -> int:
    given = document.get(key, default)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= highest:
        raise InvalidSchemaError(f"the doc mapping's field {document['name']!r} has {key} {given!r}")
    return given
