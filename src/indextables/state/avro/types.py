"""Avro types as a small tree, parsed from the schema in a file's header.

The parser guards against the schemas of other writers: it bounds size, depth and the number of types, and it rejects
schemas that let a few bytes represent endless data (recursive types, arrays of empty items).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson

from indextables._caching import shared_memo

MAX_SCHEMA_BYTES = 1 << 20
MAX_SCHEMA_DEPTH = 24
MAX_SCHEMA_TYPES = 5_000
MAX_FIXED_BYTES = 1 << 16
MAX_NAME_LENGTH = 256

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_ANNOTATED = frozenset({*PRIMITIVES, "fixed"})
_ANNOTATIONS = ("logicalType", "precision", "scale")


class AvroFormatError(Exception):
    """The bytes are not valid Avro. Callers, which know the file, translate this error."""


class Primitive(msgspec.Struct, frozen=True):
    """A type without parameters. Logical types, which annotate primitives, are ignored here."""

    name: str


class Fixed(msgspec.Struct, frozen=True):
    """Exactly `size` bytes."""

    size: int


class Enum(msgspec.Struct, frozen=True):
    """One of a list of symbols, encoded as its index."""

    symbols: tuple[str, ...]


class Array(msgspec.Struct, frozen=True):
    """Items in blocks; an empty block ends them."""

    items: "AvroType"


class Map(msgspec.Struct, frozen=True):
    """String keys with values, in blocks; an empty block ends them."""

    values: "AvroType"


class RecordField(msgspec.Struct, frozen=True):
    """A field of a record; `field_id` is the writer's "field-id".

    `annotation` is the writer's logical type and `default` the default value, both as JSON. A rewrite keeps them.
    """

    name: str
    type: "AvroType"
    field_id: int | None = None
    annotation: bytes | None = None
    default: bytes | None = None


class Record(msgspec.Struct, frozen=True):
    """Fields, encoded one after the other."""

    fields: tuple[RecordField, ...]


class Union(msgspec.Struct, frozen=True):
    """The index of a branch, and a value of that branch."""

    branches: tuple["AvroType", ...]


AvroType = Primitive | Fixed | Enum | Array | Map | Record | Union

NULL = Primitive("null")


@shared_memo("state.avro.types.schemas", "parsed Avro schemas", max_entries=32)
def parse_schema(text: bytes) -> Record:
    """Parse the schema of a record. Raises AvroFormatError with the reason if the schema is not acceptable."""
    if len(text) > MAX_SCHEMA_BYTES:
        raise AvroFormatError(f"its schema has {len(text)} bytes, more than the {MAX_SCHEMA_BYTES} allowed")
    try:
        schema = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise AvroFormatError(f"its schema is not JSON ({error})") from error
    parsed = _Parser().parse(schema, namespace="", depth=0)
    if not isinstance(parsed, Record):
        raise AvroFormatError("its schema is not a record")
    return parsed


def optional_branch(avro_type: AvroType) -> AvroType | None:
    """The other branch of a union with null; None for every other type."""
    if not isinstance(avro_type, Union) or len(avro_type.branches) != 2 or NULL not in avro_type.branches:
        return None
    first, second = avro_type.branches
    return second if first == NULL else first


def schema_json(avro_type: AvroType) -> Any:
    """A schema with the same encoding, as JSON: without annotations, and with generated names."""
    return _Renderer().render(avro_type)


def fields_json(fields: Sequence[RecordField], *, is_annotated: bool) -> list[dict[str, Any]]:
    """Fields as JSON, for one schema: with generated names, and with logical types only if `is_annotated`."""
    renderer = _Renderer()
    rendered: list[dict[str, Any]] = []
    for field in fields:
        described: dict[str, Any] = {"name": field.name, "type": renderer.render(field.type)}
        if is_annotated and field.annotation is not None:
            described["type"] = _annotated(described["type"], orjson.loads(field.annotation))
        if field.default is not None:
            described["default"] = orjson.loads(field.default)
        if field.field_id is not None:
            described["field-id"] = field.field_id
        rendered.append(described)
    return rendered


def _annotated(rendered: Any, annotation: Mapping[str, Any]) -> Any:
    """A rendered type with its logical type; in a union, that of its only branch besides null."""
    if isinstance(rendered, list):
        return [branch if branch == "null" else _annotated(branch, annotation) for branch in rendered]
    return {**(rendered if isinstance(rendered, dict) else {"type": rendered}), **annotation}


def _is_empty(avro_type: AvroType) -> bool:
    """Whether values of the type take no bytes."""
    match avro_type:
        case Primitive(name):
            return name == "null"
        case Fixed(size):
            return size == 0
        case Record(fields):
            return all(_is_empty(field.type) for field in fields)
        case _:
            return False


class _Parser(msgspec.Struct):
    """Parses one schema. Each reference to a named type counts the types in it again."""

    named: dict[str, AvroType] = msgspec.field(default_factory=dict)
    types_in_named: dict[str, int] = msgspec.field(default_factory=dict)
    open_records: set[str] = msgspec.field(default_factory=set)
    types: int = 0

    def parse(self, schema: Any, namespace: str, depth: int) -> AvroType:
        if depth > MAX_SCHEMA_DEPTH:
            raise AvroFormatError(f"its schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        self._count(1)
        if isinstance(schema, str):
            return self._reference(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if isinstance(schema, dict):
            return self._complex(schema, namespace, depth)
        raise AvroFormatError(f"its schema has a {type(schema).__name__} where a type should be")

    def _count(self, types: int) -> None:
        self.types += types
        if self.types > MAX_SCHEMA_TYPES:
            raise AvroFormatError(f"its schema describes more than {MAX_SCHEMA_TYPES} types")

    def _reference(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        for candidate in (_full_name(name, namespace), name):
            if candidate in self.open_records:
                raise AvroFormatError(f"its schema has the recursive type {candidate}")
            if candidate in self.named:
                self._count(self.types_in_named[candidate])
                return self.named[candidate]
        raise AvroFormatError(f"its schema refers to an unknown type {name[:100]!r}")

    def _union(self, schema: list[Any], namespace: str, depth: int) -> Union:
        branches = tuple(self.parse(branch, namespace, depth + 1) for branch in schema)
        if not branches or any(isinstance(branch, Union) for branch in branches):
            raise AvroFormatError("its schema has a union that is empty, or directly inside a union")
        return Union(branches)

    def _complex(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        kind = schema.get("type")
        match kind:
            case "array":
                items = self.parse(schema.get("items"), namespace, depth + 1)
                if _is_empty(items):
                    raise AvroFormatError("its schema has an array whose items take no bytes")
                return Array(items)
            case "map":
                return Map(self.parse(schema.get("values"), namespace, depth + 1))
            case "record" | "error" | "enum" | "fixed":
                return self._named_type(schema, namespace, depth)
            case _:
                return self.parse(kind, namespace, depth + 1)

    def _named_type(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        name = schema.get("name")
        if not isinstance(name, str):
            raise AvroFormatError(f"its schema has a {schema['type']} without a name")
        given = schema.get("namespace")
        full_name = _full_name(name, given if isinstance(given, str) else namespace)
        if full_name in self.named or full_name in self.open_records:
            raise AvroFormatError(f"its schema defines {full_name[:100]!r} twice")
        types_before = self.types
        parsed: AvroType
        match schema["type"]:
            case "enum":
                parsed = Enum(_symbols(schema.get("symbols")))
                self._count(len(parsed.symbols))
            case "fixed":
                parsed = Fixed(_fixed_size(schema.get("size")))
            case _:
                self.open_records.add(full_name)
                parsed = self._record(schema.get("fields"), full_name.rpartition(".")[0], depth)
                self.open_records.remove(full_name)
        self.named[full_name] = parsed
        self.types_in_named[full_name] = self.types - types_before
        return parsed

    def _record(self, fields: Any, namespace: str, depth: int) -> Record:
        if not isinstance(fields, list) or not all(isinstance(item, dict) for item in fields):
            raise AvroFormatError("its schema has a record without a list of fields")
        parsed = tuple(
            RecordField(
                _checked_name(item.get("name")),
                self.parse(item.get("type"), namespace, depth + 1),
                _field_id(item.get("field-id")),
                _annotation(item.get("type")),
                orjson.dumps(item["default"]) if "default" in item else None,
            )
            for item in fields
        )
        if len({item.name for item in parsed}) != len(parsed):
            raise AvroFormatError("its schema has a record with two fields of one name")
        return Record(parsed)


class _Renderer(msgspec.Struct):
    """Gives every named type a unique name, because shared types are repeated in full."""

    names: int = 0

    def render(self, avro_type: AvroType) -> Any:
        match avro_type:
            case Primitive(name):
                return name
            case Fixed(size):
                return {"type": "fixed", "name": self._name(), "size": size}
            case Enum(symbols):
                return {"type": "enum", "name": self._name(), "symbols": list(symbols)}
            case Array(items):
                return {"type": "array", "items": self.render(items)}
            case Map(values):
                return {"type": "map", "values": self.render(values)}
            case Record(fields):
                name = self._name()
                rendered = [{"name": item.name, "type": self.render(item.type)} for item in fields]
                return {"type": "record", "name": name, "fields": rendered}
            case Union(branches):
                return [self.render(branch) for branch in branches]

    def _name(self) -> str:
        self.names += 1
        return f"t{self.names}"


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        raise AvroFormatError(f"its schema has a name that is not one: {str(name)[:100]!r}")
    return name


def _symbols(symbols: Any) -> tuple[str, ...]:
    if not isinstance(symbols, list) or not symbols:
        raise AvroFormatError("its schema has an enum without symbols")
    return tuple(_checked_name(symbol) for symbol in symbols)


def _fixed_size(size: Any) -> int:
    if type(size) is not int or not 0 <= size <= MAX_FIXED_BYTES:
        raise AvroFormatError(f"its schema has a fixed type of {str(size)[:30]} bytes")
    return size


def _annotation(schema: Any) -> bytes | None:
    branches = [branch for branch in schema if branch != "null"] if isinstance(schema, list) else [schema]
    branch = branches[0] if len(branches) == 1 else None
    if not isinstance(branch, dict) or "logicalType" not in branch or branch.get("type") not in _ANNOTATED:
        return None
    return orjson.dumps({key: branch[key] for key in _ANNOTATIONS if key in branch})


def _field_id(value: Any) -> int | None:
    return value if type(value) is int else None
