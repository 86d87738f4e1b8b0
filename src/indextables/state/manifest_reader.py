"""Reads the file entries of manifests, including those of other writers.

Fields are found by name, or by field id if a writer renamed them; missing fields take their defaults, and unknown
fields become additional columns. A damaged manifest raises an error; it never silently drops entries.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from indextables._caching import shared_memo
from indextables.errors import InvalidOptionError, ManifestCorruptedError, StorageError
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.fields import FILE_ENTRY_FIELDS, REQUIRED
from indextables.state.avro.container import Container, parse_container
from indextables.state.avro.decode import decode_records
from indextables.state.avro.types import AvroFormatError, Record

# Every version of the format has these fields.
_REQUIRED_FIELDS = frozenset(field.name for field in FILE_ENTRY_FIELDS if field.manifest_default is REQUIRED)
_DEFAULTS = {field.name: field.manifest_default for field in FILE_ENTRY_FIELDS}

_KNOWN_FIELDS = {field.name: field for field in FILE_ENTRY_SCHEMA}
_KNOWN_TYPES = {name: field.type for name, field in _KNOWN_FIELDS.items()}
_NAMES_BY_ID = {field.field_id: field.name for field in FILE_ENTRY_FIELDS}


def read_manifest(
    data: bytes,
    *,
    name: str = "a manifest",
    columns: Sequence[str] | None = None,
    expected_entries: int | None = None,
) -> pa.Table:
    """The entries of a manifest, in order, with the columns of `FILE_ENTRY_SCHEMA` and its foreign columns.

    A foreign column has the natural Arrow type of its Avro type, and its field id and logical type, if any, under
    `b"field-id"` and `b"logical-type"` in its metadata. `columns` selects columns, in that order. `name` is the file's,
    for messages.

    Raises ManifestCorruptedError if the manifest is damaged, exceeds the limits in `state.avro.container`, or does not
    have exactly `expected_entries`; InvalidOptionError for an unknown column; StorageError if there is no room for a
    temporary file.
    """
    try:
        return _decode(_parse(data, expected_entries), columns, name)
    except AvroFormatError as error:
        raise ManifestCorruptedError(f"{name} cannot be read: {error}") from error
    except OSError as error:
        raise StorageError(
            f"{name} cannot be decoded without room for temporary files ({error.strerror}); free disk space, or set "
            f"TMPDIR to another directory"
        ) from error


class FetchedManifest(msgspec.Struct, frozen=True):
    """The bytes of a manifest, and the number of entries that its state expects."""

    data: bytes
    name: str
    expected_entries: int


def read_manifests(files: Sequence[FetchedManifest], columns: Sequence[str] | None) -> list[pa.Table]:
    """The results of `read_manifest`. Decoding small manifests with the same schema together is much cheaper.

    Raises what `read_manifest` raises for the first manifest that cannot be read.
    """
    try:
        containers = [_parse(file.data, file.expected_entries) for file in files]
        return [
            entries
            for _, alike in groupby(containers, lambda container: (container.schema, container.compression))
            for entries in _decode_together(list(alike), columns, files[0].name)
        ]
    except (AvroFormatError, OSError):
        # Read them one by one, to name the one at fault.
        return [
            read_manifest(file.data, name=file.name, columns=columns, expected_entries=file.expected_entries)
            for file in files
        ]


def _decode_together(
    containers: Sequence[Container], columns: Sequence[str] | None, name: str
) -> Iterator[pa.Table]:
    together = replace(
        containers[0],
        blocks=tuple(block for container in containers for block in container.blocks),
        num_records=sum(container.num_records for container in containers),
    )
    entries, start = _decode(together, columns, name), 0
    for container in containers:
        yield entries.slice(start, container.num_records)
        start += container.num_records


def _decode(container: Container, columns: Sequence[str] | None, name: str) -> pa.Table:
    selected = _select(columns, [field.name for field in container.schema.fields], name)
    return _resolve(decode_records(container, _KNOWN_TYPES, frozenset(selected)), selected)


def _parse(data: bytes, expected_entries: int | None) -> Container:
    container = parse_container(data)
    container = replace(container, schema=_with_known_names(container.schema))
    _validate(container, expected_entries)
    return container


@shared_memo("state.manifest_reader.schemas", "manifest schemas with our field names", max_entries=32)
def _with_known_names(schema: Record) -> Record:
    """The schema with our name for every renamed field, which its id identifies; a field of that name wins."""
    present = {field.name for field in schema.fields}
    renamed = {
        field.name: known
        for field in schema.fields
        if field.name not in _KNOWN_FIELDS
        and field.field_id is not None
        and (known := _NAMES_BY_ID.get(field.field_id)) is not None
        and known not in present
    }
    if not renamed or len(set(renamed.values())) < len(renamed):
        return schema
    return Record(tuple(replace(field, name=renamed.get(field.name, field.name)) for field in schema.fields))


def _validate(container: Container, expected_entries: int | None) -> None:
    if expected_entries is not None and container.num_records != expected_entries:
        raise AvroFormatError(f"it has {container.num_records} entries, and should have {expected_entries}")
    missing = _REQUIRED_FIELDS.difference(field.name for field in container.schema.fields)
    if missing:
        raise AvroFormatError(f"its schema has no field {', '.join(sorted(missing))}")


def _select(columns: Sequence[str] | None, available: Sequence[str], name: str) -> list[str]:
    everything = list(dict.fromkeys([*_KNOWN_FIELDS, *available]))
    if columns is None:
        return everything
    for column in columns:
        if column not in everything:
            raise InvalidOptionError(f"{name} has no column {column!r}")
    return list(columns)


def _resolve(decoded: pa.Table, selected: Sequence[str]) -> pa.Table:
    """The selected columns: known ones in their known types, foreign ones unchanged."""
    columns = dict(zip(decoded.column_names, decoded.columns, strict=True))
    fields: list[pa.Field] = []
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for name in selected:
        known = _KNOWN_FIELDS.get(name)
        column = columns.get(name)
        if known is None:
            fields.append(decoded.field(name).with_nullable(True))
            arrays.append(columns[name])
        else:
            fields.append(known)
            arrays.append(_default_column(known, len(decoded)) if column is None else _convert(column, known))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _convert(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
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


def _default_column(field: pa.Field, rows: int) -> pa.Array:
    default = pa.array([_DEFAULTS[field.name]], field.type)
    return default.take(pa.array(np.zeros(rows, np.int64)))
