"""A manifest → file entries, whoever wrote it.

Fields are found by name; missing ones take their default, unknown ones become further columns. A manifest
that is damaged in any way is an error, never a smaller table.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import InvalidOptionError, ManifestCorruptedError, StorageError
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.fields import FILE_ENTRY_FIELDS, REQUIRED
from indextables.state.avro.container import Container, parse_container
from indextables.state.avro.decode import decode_records
from indextables.state.avro.types import AvroFormatError

# Every version of the format has these fields.
_REQUIRED_FIELDS = frozenset(field.name for field in FILE_ENTRY_FIELDS if field.manifest_default is REQUIRED)
_DEFAULTS = {field.name: field.manifest_default for field in FILE_ENTRY_FIELDS}

_KNOWN_FIELDS = {field.name: field for field in FILE_ENTRY_SCHEMA}
_KNOWN_TYPES = {name: field.type for name, field in _KNOWN_FIELDS.items()}


def read_manifest(
    data: bytes,
    *,
    name: str = "a manifest",
    columns: Sequence[str] | None = None,
    expected_entries: int | None = None,
) -> pa.Table:
    """The entries of a manifest, in order, with the columns of `FILE_ENTRY_SCHEMA` and those it has beyond.

    A column that we do not know has the natural Arrow type of its Avro type, and its field id and logical type, if any,
    under `b"field-id"` and `b"logical-type"` in its metadata. `columns` chooses columns, in that order.
    `name` is the file's, for messages.

    Raises ManifestCorruptedError if the manifest is damaged, exceeds the limits in `avro_container`, or does
    not have exactly `expected_entries`; InvalidOptionError for a column that exists nowhere; StorageError if
    there is no room for a temporary file.
    """
    try:
        return _decoded(_parsed(data, expected_entries), columns, name)
    except AvroFormatError as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error
    except OSError as error:
        raise StorageError(
            f"{name} cannot be decoded without room for temporary files ({error.strerror}); "
            f"free some, or set TMPDIR to another place"
        ) from error


class ManifestFile(msgspec.Struct, frozen=True):
    """A manifest as it was fetched, and how many entries it should have."""

    data: bytes
    name: str
    expected_entries: int


def read_manifests(files: Sequence[ManifestFile], columns: Sequence[str] | None) -> list[pa.Table]:
    """What `read_manifest` gives for each; small manifests of one kind are far cheaper together.

    Raises what `read_manifest` raises for the first one that cannot be read.
    """
    try:
        containers = [_parsed(file.data, file.expected_entries) for file in files]
        return [
            entries
            for _, alike in groupby(containers, lambda container: (container.schema, container.compression))
            for entries in _decoded_together(list(alike), columns, files[0].name)
        ]
    except (AvroFormatError, OSError):
        # One by one, it shows which of them is to blame.
        return [
            read_manifest(file.data, name=file.name, columns=columns, expected_entries=file.expected_entries)
            for file in files
        ]


def _decoded_together(
    containers: Sequence[Container], columns: Sequence[str] | None, name: str
) -> Iterator[pa.Table]:
    together = replace(
        containers[0],
        blocks=tuple(block for container in containers for block in container.blocks),
        num_records=sum(container.num_records for container in containers),
    )
    entries, start = _decoded(together, columns, name), 0
    for container in containers:
        yield entries.slice(start, container.num_records)
        start += container.num_records


def _decoded(container: Container, columns: Sequence[str] | None, name: str) -> pa.Table:
    chosen = _chosen(columns, [field.name for field in container.schema.fields], name)
    return _resolved(decode_records(container, _KNOWN_TYPES, frozenset(chosen)), chosen)


def _parsed(data: bytes, expected_entries: int | None) -> Container:
    container = parse_container(data)
    _validate(container, expected_entries)
    return container


def _validate(container: Container, expected_entries: int | None) -> None:
    if expected_entries is not None and container.num_records != expected_entries:
        raise AvroFormatError(f"it has {container.num_records} entries, and should have {expected_entries}")
    missing = _REQUIRED_FIELDS.difference(field.name for field in container.schema.fields)
    if missing:
        raise AvroFormatError(f"its schema has no field {', '.join(sorted(missing))}")


def _chosen(columns: Sequence[str] | None, available: Sequence[str], name: str) -> list[str]:
    everything = list(dict.fromkeys([*_KNOWN_FIELDS, *available]))
    if columns is None:
        return everything
    for column in columns:
        if column not in everything:
            raise InvalidOptionError(f"{name} has no column {column!r}")
    return list(columns)


def _resolved(decoded: pa.Table, chosen: Sequence[str]) -> pa.Table:
    """The chosen columns: ours in our types, the others as they are."""
    columns = dict(zip(decoded.column_names, decoded.columns, strict=True))
    fields: list[pa.Field] = []
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for name in chosen:
        known = _KNOWN_FIELDS.get(name)
        column = columns.get(name)
        if known is None:
            fields.append(decoded.field(name).with_nullable(True))
            arrays.append(columns[name])
        else:
            fields.append(known)
            arrays.append(_default(known, len(decoded)) if column is None else _converted(column, known))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.null_count and not field.nullable:
        raise AvroFormatError(f"{column.null_count} of its entries have no {field.name!r}")
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise AvroFormatError(
            f"its field {field.name!r} is {column.type}, not {field.type} ({error})"
        ) from error


def _default(field: pa.Field, rows: int) -> pa.Array:
    default = pa.array([_DEFAULTS[field.name]], field.type)
    return default.take(pa.array(np.zeros(rows, np.int64)))
