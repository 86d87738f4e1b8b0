"""The slow decoder of adds and removes: one action at a time, with precise errors, keeping unknown fields.

Its result is JSON lines in a canonical form that the native decoder of `log.decode` always accepts: one add or remove
per line, every type as specified, and the unknown fields of an add beside it as text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from indextables.log.actions import ACTION_NAMES, Int32, Int64, invalid_action, invalid_json, invalid_utf8
from indextables.log.deletion_vectors import DeletionVector
from indextables.log.entries import ADD_STRUCT, REMOVE_STRUCT, REQUIRED_ADD_FIELDS, REQUIRED_REMOVE_FIELDS
from indextables.log.fields import DELETION_VECTOR, STRING_LIST, STRING_MAP

_KNOWN_ACTIONS = frozenset(ACTION_NAMES.values())
_ADD_NAMES = frozenset(ADD_STRUCT.names)
_RawObject = dict[str, msgspec.Raw]


class CanonicalLines(msgspec.Struct, frozen=True):
    """The adds and removes of a file, one per line, and the actions that this release does not know, as JSON."""

    lines: bytes
    num_lines: int
    unknown_actions: tuple[str, ...]


def canonical_lines(name: str, lines: bytes) -> CanonicalLines:
    """Convert JSON lines to the canonical form. Raises LogCorruptedError with the line at fault."""
    actions: list[dict[str, Any]] = []
    unknown_actions: list[str] = []
    for position, line in enumerate(_objects(name, lines)):
        try:
            actions += _adds_and_removes(line)
        except ValueError as error:
            raise invalid_action(name, lines, position, error) from error
        unknown_actions += [_json_text({key: raw}) for key, raw in line.items() if key not in _KNOWN_ACTIONS]
    return CanonicalLines(_ENCODER.encode_lines(actions), len(actions), tuple(unknown_actions))


def has_unknown(lines: bytes) -> bool:
    """Whether the lines hold an action, or a field of an add, that this release does not know.

    Also true for lines that are not valid at all: `canonical_lines` reports what is wrong with them.
    """
    try:
        _KNOWN_LINES.decode_lines(lines)
    except (ValueError, RecursionError):
        return True
    return False


def _objects(name: str, lines: bytes) -> list[_RawObject]:
    try:
        lines.decode()
        return _RAW_OBJECT.decode_lines(lines)
    except UnicodeDecodeError as error:
        raise invalid_utf8(name, lines, error) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise invalid_json(name, lines, error) from error


def _adds_and_removes(line: _RawObject) -> Iterator[dict[str, Any]]:
    """The adds and removes of a line, in order. The first checkpoints have all adds in one line, as an array."""
    for name, raw in line.items():
        if name == "add":
            yield from map(_add, _each(raw))
        elif name == "remove":
            yield from ({"remove": _with_texts(_REMOVE.decode(each), _REMOVE_MAPS)} for each in _each(raw))


def _each(raw: msgspec.Raw) -> list[msgspec.Raw]:
    match bytes(memoryview(raw)[:1]):
        case b"n":  # null
            return []
        case b"[":
            return msgspec.json.decode(raw, type=list[msgspec.Raw])
        case _:
            return [raw]


def _add(raw: msgspec.Raw) -> dict[str, Any]:
    add = _with_texts(_ADD.decode(raw), _ADD_MAPS)
    unknown = {name: field for name, field in _RAW_OBJECT.decode(raw).items() if name not in _ADD_NAMES}
    return {"add": add, "unknownFields": _json_text(unknown)} if unknown else {"add": add}


def _with_texts(action: msgspec.Struct, maps: tuple[str, ...]) -> msgspec.Struct:
    """Convert the values of an action's maps to text. Some writers put bare numbers there; they keep their spelling."""
    for name in maps:
        items = getattr(action, name)
        if items:
            setattr(action, name, {key: _as_text(item) for key, item in items.items()})
    return action


def _as_text(item: msgspec.Raw) -> str | None:
    is_text_or_null = bytes(memoryview(item)[:1]) in (b'"', b"n")
    return _TEXT.decode(item) if is_text_or_null else bytes(item).decode()


def _json_text(fields: _RawObject) -> str:
    """The fields as one line of JSON, with every value as written."""
    return msgspec.json.format(_ENCODER.encode(fields), indent=-1).decode()


# The decoders, derived from the Arrow structs


def _struct_of(name: str, fields: pa.StructType, required: frozenset[str]) -> type[msgspec.Struct]:
    """The fields of an Arrow struct as msgspec decodes and checks them; all but the required ones may be null."""
    return msgspec.defstruct(
        name,
        [
            (field.name, _TYPES[field.type])
            if field.name in required
            else (field.name, _TYPES[field.type] | None, None)
            for field in fields
        ],
        kw_only=True,
        omit_defaults=True,
    )


def _struct_without_unknown(name: str, fields: Mapping[str, type]) -> type[msgspec.Struct]:
    """An object that may have these fields and no others."""
    return msgspec.defstruct(
        name, [(field, kind, None) for field, kind in fields.items()], forbid_unknown_fields=True, gc=False
    )


def _maps_of(fields: pa.StructType) -> tuple[str, ...]:
    return tuple(field.name for field in fields if field.type == STRING_MAP)


_TYPES: Mapping[pa.DataType, Any] = {
    pa.string(): str,
    pa.int64(): Int64,
    pa.int32(): Int32,
    pa.bool_(): bool,
    STRING_LIST: list[str | None],
    STRING_MAP: _RawObject,
    DELETION_VECTOR: DeletionVector,
}
_ADD = msgspec.json.Decoder(_struct_of("_Add", ADD_STRUCT, REQUIRED_ADD_FIELDS), strict=False)
_REMOVE = msgspec.json.Decoder(_struct_of("_Remove", REMOVE_STRUCT, REQUIRED_REMOVE_FIELDS), strict=False)
_ADD_MAPS, _REMOVE_MAPS = _maps_of(ADD_STRUCT), _maps_of(REMOVE_STRUCT)
_TEXT = msgspec.json.Decoder(str | None)
_RAW_OBJECT = msgspec.json.Decoder(_RawObject)
_ENCODER = msgspec.json.Encoder()

# Checks the fields of adds and the names of actions, but not their values.
_KnownAdd = _struct_without_unknown("_KnownAdd", dict.fromkeys(ADD_STRUCT.names, msgspec.Raw))
_KnownLine = _struct_without_unknown(
    "_KnownLine", {**dict.fromkeys(_KNOWN_ACTIONS, msgspec.Raw), "add": _KnownAdd}
)
_KNOWN_LINES = msgspec.json.Decoder(_KnownLine)
