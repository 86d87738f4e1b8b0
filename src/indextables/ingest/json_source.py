"""JSON lines, and files that are one JSON array or a few JSON documents.

Arrow reads whole blocks, fast. Where it refuses a block, or would change a value, the block is read line by line
(`json_values`), which also finds the line to report.

Arrow's reader changes some values without an error: integers beyond 64 bits, and all integers in a column of fractions,
become doubles; text that looks like a time becomes one. It even crashes on a line that is no object. So a block is
checked first, texts are asked for as texts, and large numbers in columns of doubles are looked at again.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from indextables._structs import decodable
from indextables.errors import InvalidSchemaError
from indextables.ingest.bad_lines import BadLines, Place
from indextables.ingest.columns import IGNORE, Columns, Target, TypeConflictError
from indextables.ingest.inputs import Input
from indextables.ingest.json_values import (
    ListConflictError,
    NotJsonError,
    column_of,
    parse_object,
    type_of,
)
from indextables.ingest.lattice import Seen, table_type
from indextables.ingest.source import ReadOptions
from indextables.ingest.text import BLOCK_BYTES, text_blocks
from indextables.ingest.text_types import exact_integers, read_text, recognised_type
from indextables.schema import find_column
from indextables.schema.conversion import LossyConversionError, convert_parts, misfits

# A block with a line that Arrow cannot read is halved until it is this small, and then read line by line.
_SMALL_BYTES: Final = 128 * 1024

# A whole number of so many digits that the type may not hold it; for floats, any number too large for them, too.
_LONG_INTEGER: Final = {
    pa.float64(): re.compile(rb"[0-9]{16}[0-9]*(?![0-9.eE])"),
    pa.float32(): re.compile(rb"[0-9]{8}|[eE]"),
}


@decodable
class _Object(msgspec.Struct):
    """Any JSON object; decoding one checks its syntax."""


_OBJECTS: Final = msgspec.json.Decoder(_Object)
_DOCUMENTS: Final = msgspec.json.Decoder(msgspec.Raw)


class _CannotReadError(Exception):
    """Arrow cannot read a block, or would change a value in it."""


class _Block(msgspec.Struct, frozen=True):
    """JSON objects, one per line, or one per item if `items` are given. `first` is the number of the first one."""

    name: str
    data: bytes
    first: int
    items: tuple[bytes, ...] | None = None

    def records(self) -> Iterator[tuple[Place, bytes]]:
        """The objects, with their places."""
        if self.items is not None:
            for number, item in enumerate(self.items, self.first):
                yield Place(self.name, number, "item"), item
            return
        for number, line in enumerate(self.data.split(b"\n"), self.first):
            if line.strip():
                yield Place(self.name, number), line

    @property
    def num_records(self) -> int:
        if self.items is not None:
            return len(self.items)
        return sum(1 for line in self.data.split(b"\n") if line.strip())

    @property
    def num_lines(self) -> int:
        """The number of lines, blank ones included, or of items."""
        if self.items is not None:
            return len(self.items)
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))

    def halves(self) -> tuple["_Block", ...]:
        """Two blocks, or none if this one is small."""
        if len(self.data) <= _SMALL_BYTES:
            return ()
        if self.items is not None:
            middle = len(self.items) // 2
            return tuple(
                _item_block(self.name, items, self.first + start)
                for start, items in ((0, self.items[:middle]), (middle, self.items[middle:]))
                if items
            )
        end = self.data.find(b"\n", len(self.data) // 2) + 1
        if not end or end == len(self.data):
            return ()
        later = self.first + self.data.count(b"\n", 0, end)
        return (_Block(self.name, self.data[:end], self.first), _Block(self.name, self.data[end:], later))


class JsonSource:
    """One input of JSON objects."""

    def __init__(self, source: Input, options: ReadOptions) -> None:
        self._source = source
        self._options = options
        # The columns of the block that Arrow is to read as texts.
        self._texts: dict[str, pa.DataType] = {}

    @property
    def name(self) -> str:
        return self._source.name

    def infer(self, columns: Columns, bad_lines: BadLines) -> Iterator[int]:
        """Read everything, and add to the columns. Yields the number of rows of each part."""
        for block in self._blocks(bad_lines):
            yield self._infer_block(block, columns, bad_lines)

    def read(self, target: Target, bad_lines: BadLines) -> Iterator[pa.Table]:
        """Read everything, in the schema of the target."""
        try:
            wanted = pa.schema([(field.name, _asked_type(field.type)) for field in target.schema])
        except _CannotReadError:
            wanted = None
        for block in self._blocks(bad_lines):
            yield from _read_block(block, wanted, target, bad_lines)

    def _blocks(self, bad_lines: BadLines) -> Iterator[_Block]:
        blocks = text_blocks(self._source, self._options.encoding, bad_lines, self._options.watch)
        first = next(blocks, None)
        if first is None:
            return
        if _is_one_document(first.data):
            data = b"".join([first.data, *(block.data for block in blocks)])
            items = _items(data)
            if items is not None:
                yield from _item_blocks(self.name, items)
                return
            # It is not: its lines are reported.
            yield _Block(self.name, data, 1)
            return
        yield _Block(self.name, first.data, first.first_line)
        for block in blocks:
            yield _Block(self.name, block.data, block.first_line)

    def _infer_block(self, block: _Block, columns: Columns, bad_lines: BadLines) -> int:
        try:
            table = self._parse_with_texts(block)
            for name in table.column_names:
                seen = columns.seen(name).type
                columns.add(
                    name, Seen(_seen_type(table[name], seen, block.data)), Place(self.name, block.first)
                )
        except (_CannotReadError, TypeConflictError, InvalidSchemaError):
            halves = block.halves()
            if halves:
                return sum(self._infer_block(half, columns, bad_lines) for half in halves)
            return _infer_lines(block, columns, bad_lines)
        return int(table.num_rows)

    def _parse_with_texts(self, block: _Block) -> pa.Table:
        """The block as Arrow infers it, but with text instead of times."""
        table = _parse(block, pa.schema(list(self._texts.items())))
        texts = {name: _texts_in(table.schema.field(name).type) for name in table.column_names}
        is_changed = any(_has_time(field.type) for field in table.schema)
        for name, type_ in texts.items():
            if type_ is not None:
                self._texts[name] = type_
        if not is_changed:
            return table
        # Columns that are asked for come first; the order of the input is that of the first table.
        return _parse(block, pa.schema(list(self._texts.items()))).select(table.column_names)


# --- parts of an input --------------------------------------------------------------------------------


def _is_one_document(data: bytes) -> bool:
    """Whether an input is an array, or an object that spans lines."""
    start = data.lstrip()
    if start.startswith(b"["):
        return True
    line = start.partition(b"\n")[0]
    try:
        parse_object(line)
    except NotJsonError:
        return start.startswith(b"{") and _items(start, is_partial=True) is not None
    return False


def _items(data: bytes, *, is_partial: bool = False) -> list[bytes] | None:
    """The elements of an array, or the documents of a file. None if it is not JSON.

    Of a partial input, only the first document is looked at: whether it spans lines.
    """
    try:
        if is_partial:
            return None if _spans_no_lines(data) else []
        if data.lstrip().startswith(b"["):
            return [bytes(item) for item in msgspec.json.decode(data, type=list[msgspec.Raw])]
        return [bytes(item) for item in _DOCUMENTS.decode_lines(data)]
    except msgspec.DecodeError:
        return None


def _spans_no_lines(data: bytes) -> bool:
    """Whether the first line ends an object, or breaks off in the middle of a value."""
    line = data.partition(b"\n")[0].rstrip()
    return not line.endswith((b"{", b"[", b",", b":"))


def _item_blocks(name: str, items: Sequence[bytes]) -> Iterator[_Block]:
    start = size = 0
    for place, item in enumerate(items):
        size += len(item)
        if size >= BLOCK_BYTES:
            yield _item_block(name, items[start : place + 1], start + 1)
            start, size = place + 1, 0
    if start < len(items):
        yield _item_block(name, items[start:], start + 1)


def _item_block(name: str, items: Sequence[bytes], first: int) -> _Block:
    return _Block(name, b"\n".join(items), first, tuple(items))


# --- Arrow's way --------------------------------------------------------------------------------------


def _parse(block: _Block, asked: pa.Schema) -> pa.Table:
    try:
        count = len(_OBJECTS.decode_lines(block.data))
    except msgspec.DecodeError as error:
        raise _CannotReadError from error
    # Counting the blank lines takes longer than counting the lines.
    if count != block.num_lines and count != block.num_records:
        raise _CannotReadError
    if not count:
        return asked.empty_table()
    try:
        table = pa_json.read_json(
            pa.BufferReader(block.data),
            # One block, whose types are those of all its rows.
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
            parse_options=pa_json.ParseOptions(
                explicit_schema=asked,
                newlines_in_values=block.items is not None,
                unexpected_field_behavior="infer",
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise _CannotReadError from error
    if table.num_rows != count:
        raise _CannotReadError
    return table


def _texts_in(data_type: pa.DataType) -> pa.DataType | None:
    """The parts of a type that hold text, all as strings; None if there are none."""
    if pa.types.is_string(data_type) or pa.types.is_timestamp(data_type):
        return pa.string()
    if pa.types.is_list(data_type):
        element = _texts_in(data_type.value_type)
        return None if element is None else pa.list_(element)
    if pa.types.is_struct(data_type):
        fields = [(field.name, _texts_in(field.type)) for field in data_type]
        texts = [(name, type_) for name, type_ in fields if type_ is not None]
        return pa.struct(texts) if texts else None
    return None


def _has_time(data_type: pa.DataType) -> bool:
    if pa.types.is_list(data_type):
        return _has_time(data_type.value_type)
    if pa.types.is_struct(data_type):
        return any(_has_time(field.type) for field in data_type)
    return bool(pa.types.is_timestamp(data_type))


def _seen_type(column: pa.ChunkedArray, before: pa.DataType, data: bytes) -> pa.DataType:
    """The type of a column. Raises _CannotReadError if Arrow may have changed a number."""
    type_ = column.type
    if pa.types.is_string(type_):
        return pa.string() if pa.types.is_string(before) else recognised_type(column, only_times=True)
    if pa.types.is_floating(type_):
        _check_numbers(column, data)
    if pa.types.is_struct(type_):
        known = {field.name: field.type for field in before} if pa.types.is_struct(before) else {}
        return pa.struct(
            [
                (
                    field.name,
                    _seen_type(pc.struct_field(column, [place]), known.get(field.name, pa.null()), data),
                )
                for place, field in enumerate(type_)
            ]
        )
    if pa.types.is_list(type_):
        element = before.value_type if pa.types.is_list(before) else pa.null()
        return pa.list_(pa.field("element", _seen_type(pc.list_flatten(column), element, data)))
    return table_type(type_)


def _check_numbers(column: Any, data: bytes) -> None:
    large = pc.greater_equal(pc.abs(column), exact_integers(column.type))
    if pc.any(large, min_count=0).as_py() and _LONG_INTEGER[column.type].search(data):
        raise _CannotReadError


def _asked_type(wanted: pa.DataType) -> pa.DataType:
    """The type that Arrow is asked for, to get a wanted one. Raises _CannotReadError if it has none."""
    if pa.types.is_date(wanted) or pa.types.is_timestamp(wanted):
        return pa.string()
    if pa.types.is_struct(wanted):
        return pa.struct([(field.name, _asked_type(field.type)) for field in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(_asked_type(wanted.value_type))
    if pa.types.is_map(wanted) or pa.types.is_binary(wanted):
        raise _CannotReadError
    return wanted


def _read_block(
    block: _Block, wanted: pa.Schema | None, target: Target, bad_lines: BadLines
) -> Iterator[pa.Table]:
    if wanted is None:
        yield _read_lines(block, target, bad_lines)
        return
    try:
        table = _convert(_parse(block, wanted), wanted, target, block.data)
    except (_CannotReadError, LossyConversionError):
        halves = block.halves()
        for half in halves:
            yield from _read_block(half, wanted, target, bad_lines)
        if not halves:
            yield _read_lines(block, target, bad_lines)
    else:
        yield table


def _convert(table: pa.Table, wanted: pa.Schema, target: Target, data: bytes) -> pa.Table:
    is_ignored = target.new_fields == IGNORE
    for name in table.column_names:
        known = find_column(target.schema, name)
        # A name in another case, or a new field: the slow way tells which.
        if (known is None and not is_ignored) or (known is not None and known.name != name):
            raise _CannotReadError
    columns = []
    for field in target.schema:
        column = table[field.name]
        if not is_ignored and not column.type.equals(wanted.field(field.name).type):
            raise _CannotReadError  # a new field in a struct
        _check_leaves(column, data)
        chunks = [convert_parts(chunk, field.type, _read_leaf) for chunk in column.chunks]
        columns.append(pa.chunked_array(chunks, field.type))
    return pa.Table.from_arrays(columns, schema=target.schema)


def _read_leaf(array: Any, wanted: pa.DataType) -> Any:
    if not pa.types.is_string(array.type):
        raise _CannotReadError
    return read_text(array, wanted)


def _check_leaves(column: Any, data: bytes) -> None:
    if pa.types.is_floating(column.type):
        _check_numbers(column, data)
    elif pa.types.is_struct(column.type):
        for place in range(column.type.num_fields):
            _check_leaves(pc.struct_field(column, [place]), data)
    elif pa.types.is_list(column.type):
        _check_leaves(pc.list_flatten(column), data)


# --- line by line -------------------------------------------------------------------------------------


def _parsed(block: _Block, bad_lines: BadLines) -> Iterator[tuple[Place, bytes, dict[str, Any]]]:
    for place, line in block.records():
        try:
            yield place, line, parse_object(line)
        except NotJsonError as error:
            bad_lines.add(place, str(error), line)


def _infer_lines(block: _Block, columns: Columns, bad_lines: BadLines) -> int:
    count = 0
    for place, _, row in _parsed(block, bad_lines):
        count += 1
        for name, value in row.items():
            try:
                type_ = pa.null() if columns.is_declared(name) else type_of(value, name)
                columns.add(name, Seen(type_), place)
            except TypeConflictError as error:
                raise columns.conflict(place, error) from error
            except ListConflictError as error:
                raise InvalidSchemaError(
                    f"{place}: the elements of {str(error)!r} have no common type; pass --type {name}=string to keep "
                    f"the values of {name!r} as JSON text, or correct the input. Nothing was committed"
                ) from error
    return count


def _read_lines(block: _Block, target: Target, bad_lines: BadLines) -> pa.Table:
    names = {field.name.lower(): field.name for field in target.schema}
    places: list[Place] = []
    lines: list[bytes] = []
    values: dict[str, list[Any]] = {name: [] for name in target.schema.names}
    for place, line, row in _parsed(block, bad_lines):
        target.check(list(row), place)
        known = {names[name.lower()]: value for name, value in row.items() if name.lower() in names}
        if len({name.lower() for name in row}) != len(row):
            bad_lines.add(place, "two fields have the same name, ignoring case", line)
            continue
        places.append(place)
        lines.append(line)
        for name, column in values.items():
            column.append(known.get(name))
    bad: dict[int, tuple[str, str]] = {}
    arrays: list[pa.Array] = []
    for field in target.schema:

        def build(part: list[Any], wanted: pa.DataType = field.type) -> pa.Array:
            return column_of(part, wanted, ignores_new=target.new_fields == IGNORE)

        try:
            arrays.append(build(values[field.name]))
        except LossyConversionError:
            for row_number, reason in misfits(values[field.name], build).items():
                bad.setdefault(row_number, (field.name, reason))
    for row_number, (name, reason) in sorted(bad.items()):
        bad_lines.add(
            places[row_number],
            f"field {name!r} is {target.schema.field(name).type}: {reason}",
            lines[row_number],
            remedy=f"pass --type {name}=string when you create the table",
        )
    if bad:
        arrays = [
            column_of(
                [value for row, value in enumerate(values[field.name]) if row not in bad],
                field.type,
                ignores_new=target.new_fields == IGNORE,
            )
            for field in target.schema
        ]
    return pa.Table.from_arrays(arrays, schema=target.schema)
