"""Avro records → Python values → Arrow, one by one: for schemas without columns, and for single records."""

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from indextables.state.avro_arrow import arrow_field
from indextables.state.avro_codec import decompress
from indextables.state.avro_container import MAX_BLOCK_BYTES, MAX_FILE_BYTES, Container
from indextables.state.avro_types import (
    Array,
    AvroFormatError,
    AvroType,
    Map,
    Record,
    Union,
    optional_branch,
    schema_json,
)


def read_rows(container: Container) -> Iterator[dict[str, Any]]:
    """The records as dictionaries: maps as dictionaries, enums as text, logical types as what they annotate.

    Raises AvroFormatError if a block holds more, fewer or other records than it claims, or too much.
    """
    # Here, because it takes its time to import, and a table with few versions has no Avro files.
    import fastavro

    schema = fastavro.parse_schema(schema_json(container.schema))
    file_bytes = 0
    for number, block in enumerate(container.blocks, start=1):
        content = decompress(container.compression, block.payload, MAX_BLOCK_BYTES)
        file_bytes += len(content)
        if file_bytes > MAX_FILE_BYTES:
            raise AvroFormatError(f"it holds more than the {MAX_FILE_BYTES} bytes allowed")
        stream = io.BytesIO(content)
        for _ in range(block.count):
            try:
                row = fastavro.schemaless_reader(stream, schema, None)
            except Exception as error:  # whatever the library stumbles over, the record is damaged
                raise AvroFormatError(
                    f"block {number} is damaged ({type(error).__name__}: {error})"
                ) from error
            yield row  # type: ignore[misc]  # the schema is a record
        if stream.read(1):
            raise AvroFormatError(f"block {number} holds more than the {block.count} records that it claims")


def encode_row(schema: Mapping[str, Any], row: Mapping[str, Any]) -> bytes:
    """A record as it stands in a block. Raises what fastavro does if it is not of the schema."""
    import fastavro  # see read_rows

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), row)
    return stream.getvalue()


def decode_rows(container: Container, known_types: Mapping[str, pa.DataType]) -> pa.Table:
    """The same table as `avro_decode.decode_records` yields, for every schema, and slowly."""
    values: dict[str, list[Any]] = {field.name: [] for field in container.schema.fields}
    for row in read_rows(container):
        for name, column in values.items():
            column.append(row[name])
    fields: list[pa.Field] = []
    columns: list[pa.Array] = []
    for avro_field in container.schema.fields:
        field = arrow_field(avro_field)
        known = known_types.get(avro_field.name)
        if known is not None and _has_no_plain_type(avro_field.type):
            fields.append(field.with_type(known))
            columns.append(_array(avro_field.name, map(_without_dicts, values[avro_field.name]), known))
        else:
            fields.append(field)
            plain = (_plain(value, avro_field.type) for value in values[avro_field.name])
            columns.append(_array(avro_field.name, plain, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _array(name: str, values: Iterator[Any], arrow: pa.DataType) -> pa.Array:
    try:
        return pa.array(list(values), arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise AvroFormatError(f"its field {name!r} has values that are not {arrow} ({error})") from error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


def _has_no_plain_type(avro_type: AvroType) -> bool:
    return isinstance(avro_type, Union) and optional_branch(avro_type) is None


def _plain(value: Any, avro_type: AvroType) -> Any:
    """A value as `avro_arrow.arrow_type` has it: maps as items, and values of several types as JSON text."""
    if value is None:
        return None
    match avro_type:
        case Array(items):
            return [_plain(item, items) for item in value]
        case Map(values):
            return [(key, _plain(item, values)) for key, item in value.items()]
        case Record(fields):
            return {field.name: _plain(value[field.name], field.type) for field in fields}
        case Union():
            branch = optional_branch(avro_type)
            return _json_text(value) if branch is None else _plain(value, branch)
        case _:
            return value


def _without_dicts(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def _json_text(value: Any) -> str:
    # Avro's own JSON form: a byte is the character with its number.
    return json.dumps(value, ensure_ascii=False, default=lambda data: bytes(data).decode("latin-1"))
