"""Inputs that have types of their own: Parquet, Arrow IPC and Avro."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import InvalidSchemaError, InvalidValueError
from indextables.ingest.bad_lines import BadLines, Place
from indextables.ingest.columns import Columns, Target, TypeConflictError
from indextables.ingest.inputs import Input
from indextables.ingest.lattice import Seen, table_type
from indextables.ingest.source import ReadOptions
from indextables.schema import find_column
from indextables.schema.conversion import LossyConversionError, convert, converts, misfits
from indextables.schema.spark_json import TIMESTAMP, TIMESTAMP_NTZ

_BATCH_ROWS: Final = 64 * 1024
_REMEDY: Final = "correct the file, or give the column another --type when you create the table"

# The microseconds around 1970 that are also known as nanoseconds, with a margin.
_NANOSECOND_RANGE_US: Final = 9_200_000_000_000_000

_Open = Callable[[], BinaryIO]
_Opened = tuple[pa.Schema, int, Iterator[pa.RecordBatch]]

_AVRO_TYPES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_AVRO_LOGICAL_TYPES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": TIMESTAMP_NTZ,
    "local-timestamp-micros": TIMESTAMP_NTZ,
}


class TypedSource:
    """One input with a schema. `open_rows` returns it with the batches of the input."""

    def __init__(self, source: Input, options: ReadOptions, format_name: str) -> None:
        self._source, self._options, self._format = source, options, format_name

    @property
    def name(self) -> str:
        return self._source.name

    def infer(self, columns: Columns, bad_lines: BadLines) -> Iterator[int]:
        """Add the types of the schema to the columns. Values are checked when they are read."""
        del bad_lines  # there are no lines
        schema, rows, _ = self._open()
        for field in schema:
            try:
                columns.add(field.name, Seen(table_type(field.type)), self.name)
            except TypeConflictError as error:
                raise columns.conflict(self.name, error) from error
        yield rows

    def read(self, target: Target, bad_lines: BadLines) -> Iterator[pa.Table]:
        """Read everything, in the schema of the target."""
        del bad_lines
        schema, _, batches = self._open()
        target.check(schema.names, self.name)
        row = 1
        for batch in self._translated(batches):
            yield conformed(pa.Table.from_batches([batch]), target.schema, self.name, row)
            row += batch.num_rows

    def _open(self) -> "_Opened":
        try:
            opened = _OPENERS[self._format](lambda: self._source.open(self._options.watch))
            check_names(opened[0].names, self.name)
            return opened
        except InvalidSchemaError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, EOFError) as error:
            raise InvalidSchemaError(f"{self.name} cannot be read as {self._format}: {error}") from error

    def _translated(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except (pa.ArrowException, OSError, ValueError, KeyError, EOFError) as error:
            raise InvalidValueError(f"{self.name} cannot be read to its end: {error}") from error


def check_names(names: Sequence[str], place: str) -> None:
    """Raise InvalidSchemaError for a name that two columns have, ignoring case."""
    folded = [name.lower() for name in names]
    twice = next((name for name in names if folded.count(name.lower()) > 1), None)
    if twice is not None:
        raise InvalidSchemaError(f"{place} has the column {twice!r} twice, ignoring case; rename one")


def conformed(
    table: pa.Table, schema: pa.Schema, name: str, first_row: int, remedy: str = _REMEDY
) -> pa.Table:
    """Rows in the schema of a table.

    Raises InvalidSchemaError and InvalidValueError, with the row, the field and the remedy.
    """
    columns = []
    for field in schema:
        found = find_column(table.schema, field.name)
        if found is None:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
            continue
        if not converts(found.type, field.type):
            raise InvalidSchemaError(
                f"{name}: field {field.name!r} is {found.type}, and {field.type} in the table; "
                f"{remedy}. Nothing was committed"
            )
        column = table[found.name]
        try:
            columns.append(convert(column, field.type))
        except LossyConversionError:

            def attempt(values: Any, wanted: pa.DataType = field.type) -> Any:
                return convert(values, wanted)

            row, reason = min(misfits(column, attempt).items())
            raise InvalidValueError(
                f"{Place(name, first_row + row, 'row')}: field {field.name!r} is {field.type} in the table: {reason}; "
                f"{remedy}. Nothing was committed"
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


# --- formats ------------------------------------------------------------------------------------------


def _open_parquet(open_file: _Open) -> _Opened:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(open_file(), coerce_int96_timestamp_unit="us")
    batches = parquet.iter_batches(batch_size=_BATCH_ROWS)
    old_times = [
        parquet.schema.column(place).name
        for place in range(len(parquet.schema))
        if parquet.schema.column(place).physical_type == "INT96"
        and parquet.schema.column(place).path in parquet.schema_arrow.names
    ]
    if old_times:
        # As nanoseconds, the years beyond 2262 are wrong; as microseconds, the last digits are cut off.
        whole = pq.ParquetFile(open_file()).iter_batches(batch_size=_BATCH_ROWS, columns=old_times)
        batches = _without_nanoseconds(batches, whole)
    return parquet.schema_arrow, parquet.metadata.num_rows, batches


def _without_nanoseconds(
    batches: Iterator[pa.RecordBatch], whole: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batches. Raises ValueError if a time of the old type INT96 has nanoseconds."""
    for batch, exact in zip(batches, whole, strict=True):
        for name in exact.schema.names:
            micros = batch[name].cast(pa.int64())
            is_in_range = pc.less(pc.abs(micros), _NANOSECOND_RANGE_US)
            nanos = exact[name].cast(pa.int64())
            is_cut = pc.and_(
                is_in_range, pc.not_equal(pc.multiply_checked(pc.divide(nanos, 1000), 1000), nanos)
            )
            if pc.any(is_cut, min_count=0).as_py():
                raise ValueError(
                    f"field {name!r} has times with nanoseconds, and tables hold microseconds; write the file again "
                    f"without them"
                )
        yield batch


def _open_arrow(open_file: _Open) -> _Opened:
    file = open_file()
    magic = file.read(6)
    file.seek(0)
    if magic == b"ARROW1":
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return reader.schema, reader.count_rows(), batches
    stream = pa.ipc.open_stream(file)
    return stream.schema, 0, iter(stream)


def _open_avro(open_file: _Open) -> _Opened:
    import fastavro

    reader = fastavro.reader(open_file())
    type_ = _avro_type(reader.writer_schema, {})
    if not pa.types.is_struct(type_):
        raise ValueError("its values are not records")
    schema = pa.schema(list(type_))
    return schema, 0, _avro_batches(iter(reader), schema)


def _avro_batches(rows: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while part := list(islice(rows, _BATCH_ROWS // 8)):
        yield pa.RecordBatch.from_pylist(part, schema=schema)


def _avro_type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    """The Arrow type of an Avro schema, as fastavro returns its values. Raises ValueError."""
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        if schema in _AVRO_TYPES:
            return _AVRO_TYPES[schema]
        raise ValueError(f"the Avro type {schema!r} is not known, or contains itself")
    if isinstance(schema, list):
        types = [_avro_type(each, named) for each in schema if each != "null"]
        if len(types) > 1:
            raise ValueError(f"a union of {', '.join(map(str, types))} has no common type")
        return types[0] if types else pa.null()
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return _avro_type(kind, named)
    if kind == "record":
        record = pa.struct([(field["name"], _avro_type(field["type"], named)) for field in schema["fields"]])
        named[schema["name"]] = record
        return record
    if kind == "array":
        return pa.list_(_avro_type(schema["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), _avro_type(schema["values"], named))
    if logical == "decimal":
        type_: pa.DataType = pa.decimal128(schema["precision"], schema.get("scale", 0))
    elif logical == "uuid":
        type_ = pa.string()
    else:
        type_ = _AVRO_LOGICAL_TYPES.get(logical) or _avro_type(kind, named)
    if "name" in schema:
        named[schema["name"]] = type_
    return type_


_OPENERS: Final = {"parquet": _open_parquet, "arrow": _open_arrow, "avro": _open_avro}
