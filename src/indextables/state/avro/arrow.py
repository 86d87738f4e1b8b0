"""The mapping between Avro and Arrow types, for fields that a reader finds and for foreign columns of a rewrite."""

from typing import Any

import orjson
import pyarrow as pa

from indextables.errors import InvalidSchemaError
from indextables.state.avro.types import (
    NULL,
    Array,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    RecordField,
    Union,
    optional_branch,
)

FIELD_ID = b"field-id"
_ANNOTATION = b"logical-type"

_PRIMITIVE_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_AVRO_NAMES: dict[pa.DataType, str] = {arrow: name for name, arrow in _PRIMITIVE_TYPES.items()}


def arrow_field(field: RecordField) -> pa.Field:
    """The Arrow field for an Avro field, with its id and its logical type in the metadata."""
    metadata: dict[bytes, bytes] = {}
    if field.field_id is not None:
        metadata[FIELD_ID] = str(field.field_id).encode()
    if field.annotation is not None:
        metadata[_ANNOTATION] = field.annotation
    return pa.field(field.name, arrow_type(field.type), is_nullable(field.type), metadata or None)


def arrow_type(avro_type: AvroType) -> pa.DataType:
    """The Arrow type of an Avro type. Values of a union of several types become JSON text."""
    match avro_type:
        case Primitive(name):
            return _PRIMITIVE_TYPES[name]
        case Fixed(size):
            return pa.binary(size) if size else pa.binary()
        case Enum():
            return pa.string()
        case Array(items):
            return pa.list_(pa.field("item", arrow_type(items), is_nullable(items)))
        case Map(values):
            return pa.map_(pa.string(), pa.field("value", arrow_type(values), is_nullable(values)))
        case Record(fields):
            return pa.struct([arrow_field(item).remove_metadata() for item in fields])
        case Union():
            branch = optional_branch(avro_type)
            return pa.string() if branch is None else arrow_type(branch)


def is_nullable(avro_type: AvroType) -> bool:
    return avro_type == NULL or (isinstance(avro_type, Union) and NULL in avro_type.branches)


def is_columnar(avro_type: AvroType) -> bool:
    """Whether the fast decoder supports the type, and yields `arrow_type` up to a cast."""
    match avro_type:
        case Primitive(name):
            return name != "null"
        case Fixed(size):
            return size > 0
        case Enum():
            return True
        case Array(items):
            return is_columnar(items)
        case Map(values):
            return is_columnar(values)
        case Record(fields):
            return bool(fields) and all(is_columnar(item.type) for item in fields)
        case Union():
            branch = optional_branch(avro_type)
            return branch is not None and is_columnar(branch)


def avro_field_json(field: pa.Field) -> dict[str, Any]:
    """A nullable Avro field for a foreign column, with its id and logical type if it has them.

    Raises InvalidSchemaError if no Avro type holds the column.
    """
    avro, metadata = _avro_json(field.type, field.name), field.metadata or {}
    if _ANNOTATION in metadata:
        annotation = orjson.loads(metadata[_ANNOTATION])
        avro = {**(avro if isinstance(avro, dict) else {"type": avro}), **annotation}
    described: dict[str, Any] = {"name": field.name, "type": ["null", avro], "default": None}
    field_id = metadata.get(FIELD_ID)
    if field_id is not None and field_id.isdigit():
        described["field-id"] = int(field_id)
    return described


def _avro_json(arrow: pa.DataType, path: str) -> Any:
    """The Avro type of an Arrow type. The dotted `path` is unique and becomes the namespace of named types."""
    if arrow in _AVRO_NAMES:
        return _AVRO_NAMES[arrow]
    if isinstance(arrow, pa.FixedSizeBinaryType):
        return {"type": "fixed", "name": "fixed_bytes", "namespace": path, "size": arrow.byte_width}
    if isinstance(arrow, pa.MapType):
        if arrow.key_type != pa.string():
            raise InvalidSchemaError(
                f"column {path!r} is a map whose keys are {arrow.key_type}; Avro needs text"
            )
        return {"type": "map", "values": _element_json(arrow.item_field, f"{path}.value")}
    if isinstance(arrow, pa.ListType):
        return {"type": "array", "items": _element_json(arrow.value_field, f"{path}.item")}
    if isinstance(arrow, pa.StructType):
        children = (arrow.field(index) for index in range(arrow.num_fields))
        fields = [
            {"name": child.name, "type": _element_json(child, f"{path}.{child.name}")} for child in children
        ]
        return {"type": "record", "name": "fields", "namespace": path, "fields": fields}
    raise InvalidSchemaError(f"column {path!r} has the type {arrow}, which a manifest cannot hold")


def _element_json(field: pa.Field, path: str) -> Any:
    avro = _avro_json(field.type, path)
    return ["null", avro] if field.nullable and avro != "null" else avro
