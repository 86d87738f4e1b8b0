"""Builds Tantivy indexes in local directories: the index of a new split, and indexes of some rows in memory.

`DocumentEncoder` turns Arrow columns into documents: it encodes values a column at a time and adds them row by row.
"""

import base64
import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import tantivy
from tantivy import Document

from indextables.errors import InvalidValueError, SplitWriteError
from indextables.pruning.values import order_keys
from indextables.split.doc_mapping import (
    ARRAY_KEY,
    MAX_TOKEN_BYTES,
    ROW_FIELD,
    DocMapping,
    FieldKind,
    FieldMapping,
)
from indextables.split.index_files import META_FILE, translating
from indextables.split.slim_index import (
    MAX_HEAP_BYTES,
    MIN_HEAP_BYTES,
    SegmentWatch,
    complete_index,
    create_index,
    sort_index,
)

_Values: TypeAlias = npt.NDArray[Any]
_Convert: TypeAlias = Callable[[Any], Any]
_Add: TypeAlias = Callable[[Document, str, Any], None]

_DECIMAL_WORDS: Final = 2  # a decimal has 128 bits; the low 64 hold up to 18 digits
_MAX_ECHO_LENGTH: Final = 80


class IndexBuilder:
    """One index under construction. Rows are numbered in the order in which they are added.

    One thread writes the index: one segment, or several if the heap is too small, which `finish` merges. Documents are
    in row order, and each stores its row number. The index is incomplete until `finish`. To discard a builder, call
    `abort`, because its thread writes into the directory.

    A builder that is not sorted from the start is faster. But if its heap overflows many times in a few rows, `add` or
    `finish` may raise RowsOutOfOrderError. A sorted one never does.
    """

    def __init__(
        self, directory: Path, mapping: DocMapping, heap_bytes: int, *, is_sorted: bool = False
    ) -> None:
        self._directory = directory
        self._mapping = mapping
        self._what = f"building an index in {directory}"
        self._heap_bytes = min(max(heap_bytes, MIN_HEAP_BYTES), MAX_HEAP_BYTES)
        self._watch = None if is_sorted else SegmentWatch(directory)
        with translating(self._what, SplitWriteError):
            self._writer = self._writer_of(create_index(directory, mapping, is_sorted=is_sorted))
        self._encoder = DocumentEncoder(mapping)
        self._next_row = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Index some rows.

        Raises InvalidValueError for a value that does not fit its mapping, and SplitWriteError if the index cannot be
        written, usually because the disk is full.
        """
        add = self._writer.add_document
        with translating(self._what, SplitWriteError):
            for document in self._encoder.documents(rows, self._next_row):
                add(document)
            if self._watch is not None and self._watch.has_overflowed():
                self._watch = None
                self._end_writer()
                self._writer = self._writer_of(sort_index(self._directory, self._mapping))
        self._next_row += rows.num_rows

    def finish(self) -> list[Path]:
        """Complete the index and return its files. Raises SplitWriteError."""
        with translating(self._what, SplitWriteError):
            self._end_writer()
            only_segment = None if self._watch is None else self._watch.only_segment
            complete_index(self._directory, self._mapping, only_segment)
        return index_files(self._directory)

    def abort(self) -> None:
        """Stop writing, so the directory can be removed. Does nothing after `finish`."""
        # The index is discarded; the error that led here is the one to report.
        with contextlib.suppress(SplitWriteError), translating(self._what, SplitWriteError):
            self._writer.rollback()

    def _writer_of(self, index: tantivy.Index) -> tantivy.IndexWriter:
        return index.writer(self._heap_bytes, num_threads=1)

    def _end_writer(self) -> None:
        self._writer.commit()
        # Background merges replace segment files.
        self._writer.wait_merging_threads()


def row_index(rows: pa.Table, mapping: DocMapping) -> tantivy.Searcher:
    """Index some rows in memory. Raises InvalidValueError and SplitWriteError."""
    encoder = DocumentEncoder(mapping)
    with translating("indexing rows in memory", SplitWriteError):
        index = tantivy.Index(mapping.tantivy_schema())
        mapping.register_tokenizers(index)
        writer = index.writer(MIN_HEAP_BYTES, num_threads=1)
        first_row = 0
        for batch in rows.to_batches():
            for document in encoder.documents(batch, first_row):
                writer.add_document(document)
            first_row += batch.num_rows
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        return index.searcher()


def index_files(directory: Path) -> list[Path]:
    """Return the files that meta.json refers to, without locks and leftovers."""
    meta = orjson.loads((directory / META_FILE).read_bytes())
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    files = [path for path in directory.iterdir() if path.name.partition(".")[0] in segments]
    return [*sorted(files), directory / META_FILE]


class DocumentEncoder:
    """Encodes record batches as documents of indexes with one mapping."""

    def __init__(self, mapping: DocMapping) -> None:
        self._fields = mapping.indexed_fields()
        fields = [(_ADD[field.kind], field.index_name) for field in self._fields]
        # By position, because this lookup runs for every value.
        self._targets: list[tuple[int, _Add, str]] = [
            (position, add, name)
            for position, (add, name) in enumerate([*fields, (Document.add_integer, ROW_FIELD)])
        ]

    def documents(self, rows: pa.RecordBatch, first_row: int) -> Iterator[Document]:
        """Return one document per row, in order; the first one is row `first_row` of the split.

        Raises InvalidValueError, with the column and the row, for a value that does not fit its mapping.
        """
        columns = [index_values(field, rows.column(field.name)) for field in self._fields]
        columns.append(list(range(first_row, first_row + rows.num_rows)))
        targets = self._targets
        name: str = ROW_FIELD
        value: Any = None
        row: tuple[Any, ...] = (first_row,)
        try:
            for row in zip(*columns, strict=True):
                document = Document()
                for position, add, name in targets:
                    value = row[position]
                    if value is not None:
                        add(document, name, value)
                yield document
        except (ValueError, TypeError) as error:
            raise self._invalid_value(name, value, row[-1], error) from error

    def _invalid_value(self, name: str, value: object, row: object, error: Exception) -> InvalidValueError:
        field = next(field for field in self._fields if field.index_name == name)
        echo = repr(value)
        shown = echo if len(echo) <= _MAX_ECHO_LENGTH else f"{echo[:_MAX_ECHO_LENGTH]}…"
        return InvalidValueError(
            f"column {field.name!r} is indexed as {field.kind.value}, but row {row} has {shown}: {error}; "
            f"clean the data, or index the column as string"
        )


def index_values(field: FieldMapping, column: pa.Array) -> list[Any]:
    """Return the values of a column as the index stores them; None for null."""
    try:
        values = _ENCODE[field.kind](column, field)
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"column {field.name!r} has text that is not utf-8: {error}") from error
    if column.null_count:
        values = values.astype(object)
        values[_mask(column.is_null())] = None
    listed: list[Any] = values.tolist()
    return listed


# The encoders return any values for nulls.


def _integers(column: pa.Array, _: FieldMapping) -> _Values:
    values: _Values = column.cast(pa.int64()).fill_null(0).to_numpy()
    return values


def _days(column: pa.Array, _: FieldMapping) -> _Values:
    values: _Values = column.cast(pa.int32()).fill_null(0).to_numpy()
    return values


def _floats(column: pa.Array, _: FieldMapping) -> _Values:
    numbers: _Values = column.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    return numbers


def _plain(column: pa.Array, _: FieldMapping) -> _Values:
    values: _Values = column.to_numpy(zero_copy_only=False)
    return values


def _bytes(column: pa.Array, field: FieldMapping) -> _Values:
    values = _plain(column, field)
    too_long = pc.fill_null(pc.greater(pc.binary_length(column), MAX_TOKEN_BYTES), False)
    if pc.any(too_long).as_py():
        values = values.copy()  # Arrow's are read-only
        values[_mask(too_long)] = None
    return values


def _decimals(column: pa.Array, _: FieldMapping) -> _Values:
    words = np.frombuffer(column.buffers()[1] or b"", np.int64)
    return words[
        column.offset * _DECIMAL_WORDS : (column.offset + len(column)) * _DECIMAL_WORDS : _DECIMAL_WORDS
    ]


def _big_decimals(column: pa.Array, _: FieldMapping) -> _Values:
    keys = order_keys(column).fill_null(b"").to_pylist()
    return _objects([key.hex() for key in keys])


def _json(column: pa.Array, field: FieldMapping) -> _Values:
    if pa.types.is_string(column.type):
        return _plain(column, field)
    return _objects(_json_objects(column, field))


def _objects(values: list[Any]) -> _Values:
    objects = np.empty(len(values), object)
    objects[:] = values
    return objects


def _mask(truths: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = truths.to_numpy(zero_copy_only=False)
    return mask


_ENCODE: dict[FieldKind, Callable[[pa.Array, FieldMapping], _Values]] = {
    FieldKind.TEXT: _plain,
    FieldKind.STRING: _plain,
    FieldKind.JSON: _json,
    FieldKind.IP: _plain,
    FieldKind.I64: _integers,
    FieldKind.F64: _floats,
    FieldKind.BOOL: _plain,
    FieldKind.DATE: _days,
    FieldKind.TIMESTAMP: _integers,
    FieldKind.TIMESTAMP_NTZ: _integers,
    FieldKind.DECIMAL: _decimals,
    FieldKind.BIG_DECIMAL: _big_decimals,
    FieldKind.BYTES: _bytes,
}

_ADD: dict[FieldKind, _Add] = {
    FieldKind.TEXT: Document.add_text,
    FieldKind.STRING: Document.add_text,
    FieldKind.JSON: Document.add_json,
    FieldKind.IP: Document.add_ip_addr,
    FieldKind.I64: Document.add_integer,
    FieldKind.F64: Document.add_float,
    FieldKind.BOOL: Document.add_boolean,
    FieldKind.DATE: Document.add_integer,
    FieldKind.TIMESTAMP: Document.add_integer,
    FieldKind.TIMESTAMP_NTZ: Document.add_integer,
    FieldKind.DECIMAL: Document.add_integer,
    FieldKind.BIG_DECIMAL: Document.add_text,
    FieldKind.BYTES: Document.add_bytes,
}


# Nested values become JSON objects in the index; the rows keep them unchanged. Dates and timestamps become ISO 8601
# text, decimals become numbers, bytes become Base64. JSON has no NaN and no infinity, so these become null.


def _json_objects(column: pa.Array, field: FieldMapping) -> list[dict[str, Any] | None]:
    """Return the values of a struct, array or map column as JSON objects; null stays null."""
    # Arrow formats timestamps of any year as text; Python's types end with the year 9999.
    plain = column.cast(_plain_type(column.type))
    convert = _converter(column.type)
    values = plain.to_pylist()
    if field.is_array:
        return [None if value is None else {ARRAY_KEY: convert(value)} for value in values]
    return [None if value is None else convert(value) for value in values]


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type with text for dates and timestamps, and floats for decimals."""
    if pa.types.is_struct(data_type):
        return pa.struct([member.with_type(_plain_type(member.type)) for member in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(data_type.value_field.with_type(_plain_type(data_type.value_type)))
    if pa.types.is_map(data_type):
        key, item = data_type.key_field, data_type.item_field
        return pa.map_(key.with_type(_plain_type(key.type)), item.with_type(_plain_type(item.type)))
    if pa.types.is_temporal(data_type):
        return pa.string()
    return pa.float64() if pa.types.is_decimal(data_type) else data_type


def _converter(data_type: pa.DataType) -> _Convert:
    """Return the conversion from Python values of the plain type to JSON values."""
    if pa.types.is_struct(data_type):
        return _struct([(member.name, _or_null(_converter(member.type))) for member in data_type])
    if pa.types.is_map(data_type):
        return _map(data_type)
    if pa.types.is_list(data_type):
        convert = _or_null(_converter(data_type.value_type))
        return lambda values: [convert(value) for value in values]
    for is_type, convert in _ATOMIC:
        if is_type(data_type):
            return convert
    return lambda value: value


def _struct(members: list[tuple[str, _Convert]]) -> _Convert:
    return lambda value: {name: convert(value[name]) for name, convert in members}


def _map(data_type: pa.MapType) -> _Convert:
    key, item = _converter(data_type.key_type), _or_null(_converter(data_type.item_type))
    if pa.types.is_nested(data_type.key_type):
        return lambda entries: [{"key": key(name), "value": item(value)} for name, value in entries]
    return lambda entries: {_key(key(name)): item(value) for name, value in entries}


def _key(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _moment(value: str) -> str | None:
    # Arrow formats values out of range as a message in angle brackets.
    return None if value.startswith("<") else value.replace(" ", "T", 1)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


_ATOMIC: tuple[tuple[Callable[[pa.DataType], bool], _Convert], ...] = (
    (pa.types.is_floating, _finite),
    (pa.types.is_temporal, _moment),
    (pa.types.is_binary, _base64),
)
