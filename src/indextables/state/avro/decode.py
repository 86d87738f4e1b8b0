"""Decodes Avro records to Arrow: a fast columnar decoder, and a slow one for few records and unusual schemas.

The fast decoder is DataFusion's. It silently stops at the end of a truncated file, and it never returns from a block
that holds more records than it claims. So it never gets the file itself. It gets the blocks as one block that claims
endless records, followed by guard records, and is asked for one record more than the file should have. That last record
is the first guard exactly if the file has as many records as its blocks claim.
"""

import io
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import IO, Any

import msgspec
import orjson
import pyarrow as pa

from indextables._caching import shared_memo
from indextables.state.avro.arrow import arrow_field, is_columnar
from indextables.state.avro.container import (
    CONCATENABLE,
    MAX_BLOCK_BYTES,
    MAX_FILE_BYTES,
    Codec,
    Compression,
    Container,
    decompress,
    encode_bytes,
    encode_header,
    encode_long,
    size_bound,
)
from indextables.state.avro.types import (
    NULL,
    Array,
    AvroFormatError,
    AvroType,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    optional_branch,
    schema_json,
)

# For so few records both decoders take the same time, not counting the start-up of the fast one.
_FEW_RECORDS = 64

# Uncompressed bytes that are decoded at a time. This bounds the memory beyond the result.
_GROUP_BYTES = 16 << 20
# Larger batches are no faster, and the decoder holds several of them.
_MAX_BATCH_ROWS = 4096
_ENDLESS = 1 << 40
_GUARD_FIELD = "path"
_STRING = Primitive("string")


def decode_records(
    container: Container, known_types: Mapping[str, pa.DataType], columns: Set[str] | None = None
) -> pa.Table:
    """All records, in order, one column per field of the writer's schema.

    A column in `known_types` may have another type, if its values can be cast to the known type. The schema must have a
    string field `path`. With `columns`, other columns may be left out. Raises AvroFormatError if the blocks do not hold
    exactly as many records as they claim, or if a record is damaged; OSError if there is no room for temporary files.
    """
    if (
        container.num_records <= _FEW_RECORDS
        or _runtime.was_lost_in_fork
        or not _is_columnar(container.schema)
    ):
        return decode_rows(container, known_types)
    layout = _layout_of(container.schema)
    wanted = layout.arrow_schema.names
    if columns is not None:
        wanted = [name for name in wanted if name in columns or name == _GUARD_FIELD]
    schema = pa.schema([layout.arrow_schema.field(name) for name in wanted])
    batches = [batch for group in _groups(container) for batch in _decode_group(layout, group, wanted)]
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).cast(schema)


@shared_memo("state.avro.decode.columnar", "whether an Avro schema is columnar", max_entries=32)
def _is_columnar(schema: Record) -> bool:
    return is_columnar(schema) and any(
        field.name == _GUARD_FIELD and _STRING in (field.type, optional_branch(field.type))
        for field in schema.fields
    )


# The fast decoder


class _Runtime(msgspec.Struct):
    """The fast decoder's threads do not survive a fork. A forked child must not use them: it would wait forever."""

    was_started: bool = False
    was_lost_in_fork: bool = False

    def lose(self) -> None:
        self.was_lost_in_fork = self.was_started


_runtime = _Runtime()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_runtime.lose)


class _Layout(msgspec.Struct, frozen=True):
    """What the fast decoder derives from a schema. It is cached: a large table has many manifests and few schemas.

    A guard record is `guard_prefix`, the guard, and `guard_suffix`.
    """

    arrow_schema: pa.Schema
    schema_json: bytes
    guard_prefix: bytes
    guard_suffix: bytes


@shared_memo("state.avro.decode.layouts", "layouts of columnar Avro schemas", max_entries=32)
def _layout_of(schema: Record) -> _Layout:
    prefix, suffix = _around_guard(schema)
    return _Layout(
        arrow_schema=pa.schema([arrow_field(field) for field in schema.fields]),
        schema_json=orjson.dumps(schema_json(schema)),
        guard_prefix=prefix,
        guard_suffix=suffix,
    )


class _Group(msgspec.Struct, frozen=True):
    """Payloads whose concatenation is the compressed form of `count` records."""

    compression: Compression
    payloads: Sequence[memoryview | bytes]
    count: int


def _groups(container: Container) -> Iterator[_Group]:
    is_concatenable = container.compression in CONCATENABLE
    compression = container.compression if is_concatenable else Compression.NONE
    payloads: list[memoryview | bytes] = []
    count = group_bytes = file_bytes = 0
    for block in container.blocks:
        payload: memoryview | bytes = block.payload
        if is_concatenable:
            size = size_bound(compression, block.payload, MAX_BLOCK_BYTES)
        else:
            payload = decompress(container.compression, block.payload, MAX_BLOCK_BYTES)
            size = len(payload)
        file_bytes += size
        if file_bytes > MAX_FILE_BYTES:
            raise AvroFormatError(f"it holds more than the {MAX_FILE_BYTES} bytes allowed")
        if payloads and group_bytes + size > _GROUP_BYTES:
            yield _Group(compression, payloads, count)
            payloads, count, group_bytes = [], 0, 0
        payloads.append(payload)
        count += block.count
        group_bytes += size
    if payloads:
        yield _Group(compression, payloads, count)


def _decode_group(layout: _Layout, group: _Group, columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Decode a group. Enough guards follow to fill the last batch, because the decoder returns only full batches."""
    rows = group.count + 1
    num_batches = -(-rows // _MAX_BATCH_ROWS)
    batch_rows = -(-rows // num_batches)
    guard = secrets.token_hex(16)
    guard_record = layout.guard_prefix + encode_bytes(guard.encode()) + layout.guard_suffix
    guards = guard_record * (num_batches * batch_rows - group.count)
    with tempfile.NamedTemporaryFile(prefix="indextables-", suffix=".avro") as file:
        _write_guarded(file, layout, group, guards)
        table = _read(Path(file.name), columns, rows, batch_rows)
    if len(table) != rows or not _is_guarded(table.column(_GUARD_FIELD), guard):
        raise AvroFormatError(f"its blocks do not hold the {group.count} records that they claim")
    batches: list[pa.RecordBatch] = table.slice(0, group.count).to_batches()
    return batches


def _write_guarded(file: IO[bytes], layout: _Layout, group: _Group, guards: bytes) -> None:
    codec = Codec(group.compression)
    header, sync = encode_header(layout.schema_json, codec, num_records=None)
    payloads = [*group.payloads, codec.compress(guards)]
    size = sum(len(payload) for payload in payloads)
    file.writelines((header, encode_long(_ENDLESS), encode_long(size), *payloads, sync))
    file.flush()


def _around_guard(schema: Record) -> tuple[bytes, bytes]:
    """The bytes before and after the guard, in a record that is otherwise as short as the schema allows."""
    at = next(index for index, field in enumerate(schema.fields) if field.name == _GUARD_FIELD)
    before, guard, after = schema.fields[:at], schema.fields[at].type, schema.fields[at + 1 :]
    branch = encode_long(guard.branches.index(_STRING)) if isinstance(guard, Union) else b""
    prefix = b"".join(_shortest(field.type) for field in before) + branch
    return prefix, b"".join(_shortest(field.type) for field in after)


def _shortest(avro_type: AvroType) -> bytes:
    match avro_type:
        case Primitive("float"):
            return bytes(4)
        case Primitive("double"):
            return bytes(8)
        case Primitive() | Enum() | Array() | Map():
            return bytes(1)
        case Fixed(size):
            return bytes(size)
        case Record(fields):
            return b"".join(_shortest(field.type) for field in fields)
        case Union(branches):
            return encode_long(branches.index(NULL))


def _read(file: Path, columns: Sequence[str], rows: int, batch_rows: int) -> pa.Table:
    # Imported lazily: it is a large library, and many uses of a table never decode a manifest.
    from datafusion import SessionConfig, SessionContext

    _runtime.was_started = True
    config = SessionConfig().with_target_partitions(1).with_batch_size(batch_rows)
    try:
        records = SessionContext(config).read_avro(file.as_uri())
        if len(columns) < len(records.schema()):
            records = records.select(*(f'"{name}"' for name in columns))
        batches = records.limit(rows).collect()
    except Exception as error:  # the library raises bare exceptions
        raise AvroFormatError(f"a block is damaged ({_first_line(error)})") from error
    if not batches:
        raise AvroFormatError("its blocks hold no records")
    return pa.Table.from_batches(batches)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def _is_guarded(paths: pa.ChunkedArray, guard: str) -> bool:
    """Whether the last path is a guard, and the one before is not."""
    is_last_guard = paths[-1].as_py() == guard
    return is_last_guard and (len(paths) == 1 or paths[-2].as_py() != guard)


# The slow decoder: record by record, by way of Python values


def read_rows(container: Container) -> Iterator[dict[str, Any]]:
    """The records as dictionaries: maps as dictionaries, enums as text, logical types as their underlying types.

    Raises AvroFormatError if a block is damaged, too large, or does not hold as many records as it claims.
    """
    # Imported lazily: it is slow to import, and a table with few versions has no Avro files.
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
            except Exception as error:  # the library raises many kinds; each means a damaged record
                raise AvroFormatError(
                    f"block {number} is damaged ({type(error).__name__}: {error})"
                ) from error
            yield row  # type: ignore[misc]  # the schema is a record
        if stream.read(1):
            raise AvroFormatError(f"block {number} holds more than the {block.count} records that it claims")


def decode_rows(container: Container, known_types: Mapping[str, pa.DataType]) -> pa.Table:
    """What `decode_records` returns, for every schema, record by record."""
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


def _has_no_plain_type(avro_type: AvroType) -> bool:
    return isinstance(avro_type, Union) and optional_branch(avro_type) is None


def _plain(value: Any, avro_type: AvroType) -> Any:
    """A value in the form of `arrow_type`: maps as items, and values of general unions as JSON text."""
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
    # Avro's own JSON encoding: each byte is the character with that code point.
    return json.dumps(value, ensure_ascii=False, default=lambda data: bytes(data).decode("latin-1"))
