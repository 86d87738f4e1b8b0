"""Text of columns: CSV, TSV, plain lines, and lines that a pattern takes apart.

All values are read as text, and then recognised or read as their type (`text_types`). An empty value is null, a quoted
empty value is an empty text.
"""

import csv
import io
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv

from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from indextables.ingest.bad_lines import BadLines, Place
from indextables.ingest.columns import Columns, Target, TypeConflictError
from indextables.ingest.inputs import Input
from indextables.ingest.lattice import Seen
from indextables.ingest.source import ReadOptions
from indextables.ingest.text import BLOCK_BYTES, TextBlock, text_blocks
from indextables.ingest.text_types import read_text, recognised_type
from indextables.schema import find_column
from indextables.schema.conversion import LossyConversionError, misfits

LINE_COLUMN: Final = "message"

_DELIMITERS: Final = (",", ";", "\t", "|")
_SNIFFED_BYTES: Final = 64 * 1024
_SNIFFED_RECORDS: Final = 50


class TextRows(msgspec.Struct, frozen=True):
    """Rows of text. `place` and `line` return the place and the text of a row."""

    table: pa.Table
    place: Callable[[int], Place]
    line: Callable[[int], bytes]
    header: bytes = b""


class DelimitedSource:
    """Rows of text, from any of the formats of this module."""

    def __init__(
        self, name: str, rows: Callable[[BadLines], Iterator[TextRows]], *, is_recognised: bool = True
    ) -> None:
        self._name = name
        self._rows = rows
        self._is_recognised = is_recognised

    @property
    def name(self) -> str:
        return self._name

    def infer(self, columns: Columns, bad_lines: BadLines) -> Iterator[int]:
        """Read everything, and add to the columns. Yields the number of rows of each part."""
        for rows in self._rows(bad_lines):
            # To find the line of a row, a file is read again, so it is left to errors.
            for name in rows.table.column_names:
                try:
                    columns.add(name, self._seen(rows.table[name], columns.seen(name)), self._name)
                except TypeConflictError as error:
                    place = rows.place(0) if rows.table.num_rows else self._name
                    raise columns.conflict(place, error) from error
            yield rows.table.num_rows

    def read(self, target: Target, bad_lines: BadLines) -> Iterator[pa.Table]:
        """Read everything, in the schema of the target."""
        for rows in self._rows(bad_lines):
            target.check(rows.table.column_names, Place(self._name, 1))
            yield _typed(rows, target, bad_lines)

    def _seen(self, values: pa.ChunkedArray, before: Seen) -> Seen:
        if not self._is_recognised or (before.is_text and pa.types.is_string(before.type)):
            return Seen(pa.string(), is_text=True)
        return Seen(recognised_type(values), is_text=True)


def _typed(rows: TextRows, target: Target, bad_lines: BadLines) -> pa.Table:
    bad: dict[int, tuple[str, str]] = {}
    columns = []
    for field in target.schema:
        found = find_column(rows.table.schema, field.name)
        if found is None:
            columns.append(pa.chunked_array([pa.nulls(rows.table.num_rows, field.type)]))
            continue
        texts = rows.table[found.name]

        def convert(values: Any, wanted: pa.DataType = field.type) -> Any:
            return read_text(values, wanted)

        try:
            columns.append(convert(texts))
        except LossyConversionError:
            for row, reason in misfits(texts, convert).items():
                bad.setdefault(row, (field.name, reason))
            columns.append(texts)
    for row, (name, reason) in sorted(bad.items()):
        type_ = target.schema.field(name).type
        bad_lines.add(
            rows.place(row),
            f"field {name!r} is {type_}: {reason}",
            rows.line(row),
            remedy=f"pass --type {name}=string when you create the table",
            header=rows.header,
        )
    if bad:
        kept = pa.array([row not in bad for row in range(rows.table.num_rows)])
        columns = [
            column if column.type.equals(field.type) else read_text(column, field.type)
            for column, field in zip((column.filter(kept) for column in columns), target.schema, strict=True)
        ]
    return pa.Table.from_arrays(columns, schema=target.schema)


# --- lines --------------------------------------------------------------------------------------------


def lines_source(source: Input, options: ReadOptions) -> DelimitedSource:
    """Plain lines, one row each, in the column `message`; or the named groups of a pattern, one column each.

    Raises InvalidOptionError for a pattern without named groups.
    """
    pattern = options.pattern
    if pattern is None:
        return DelimitedSource(
            source.name, lambda bad: _plain_lines(source, options, bad), is_recognised=False
        )
    if not pattern.groupindex:
        raise InvalidOptionError(
            f"the pattern {pattern.pattern!r} has no named groups; name each column: (?P<level>[A-Z]+)"
        )
    return DelimitedSource(source.name, lambda bad: _matched_lines(source, options, bad))


def _plain_lines(source: Input, options: ReadOptions, bad_lines: BadLines) -> Iterator[TextRows]:
    for block in text_blocks(source, options.encoding, bad_lines, options.watch):
        lines = _lines_of(block)
        yield _line_rows(
            source.name, {LINE_COLUMN: lines}, lines, range(block.first_line, block.first_line + len(lines))
        )


def _matched_lines(source: Input, options: ReadOptions, bad_lines: BadLines) -> Iterator[TextRows]:
    assert options.pattern is not None  # the caller has checked
    match, names = options.pattern.fullmatch, list(options.pattern.groupindex)
    for block in text_blocks(source, options.encoding, bad_lines, options.watch):
        values: dict[str, list[str | None]] = {name: [] for name in names}
        matched, numbers = [], []
        for number, line in enumerate(_lines_of(block), block.first_line):
            found = match(line)
            if found is None:
                if line.strip():
                    bad_lines.add(
                        Place(source.name, number),
                        "the line does not match the pattern",
                        line.encode(),
                        remedy="change the pattern, which must match whole lines",
                    )
                continue
            for name, value in found.groupdict().items():
                values[name].append(value)
            matched.append(line)
            numbers.append(number)
        yield _line_rows(source.name, values, matched, numbers)


def _lines_of(block: TextBlock) -> list[str]:
    lines = block.data.decode().split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _line_rows(name: str, values: dict[str, Any], lines: Sequence[str], numbers: Sequence[int]) -> TextRows:
    table = pa.table({column: pa.array(texts, pa.string()) for column, texts in values.items()})
    return TextRows(table, lambda row: Place(name, numbers[row]), lambda row: lines[row].encode())


# --- CSV ----------------------------------------------------------------------------------------------


def csv_source(source: Input, options: ReadOptions) -> DelimitedSource:
    """CSV with any delimiter. Raises InvalidSchemaError for a header without names, or with one name twice."""
    return DelimitedSource(source.name, lambda bad: _csv_rows(source, options, bad))


def _csv_rows(source: Input, options: ReadOptions, bad_lines: BadLines) -> Iterator[TextRows]:
    head = _first_text(source, options, bad_lines)
    if not head.strip():
        return
    delimiter = options.delimiter or _find_delimiter(head)
    names = _column_names(source.name, head, delimiter, options)
    reader = _CsvReader(source, options, bad_lines, delimiter, names)
    yield from reader.rows()


class _CsvReader:
    """Reads one CSV input with Arrow.

    Arrow takes a value whose closing quote is missing for one that ends with the input. So a last row is added to the
    input, which must come out as a row.
    """

    def __init__(
        self, source: Input, options: ReadOptions, bad_lines: BadLines, delimiter: str, names: Sequence[str]
    ) -> None:
        self._source, self._options, self._bad_lines = source, options, bad_lines
        self._delimiter, self._names = delimiter, names
        self._end = secrets.token_hex(16)
        # The numbers of the bad records.
        self._skipped: list[int] = []
        self._header = _csv_line(names, delimiter) if options.has_header else b""
        self._failure: InvalidValueError | None = None

    def rows(self) -> Iterator[TextRows]:
        pending: pa.RecordBatch | None = None
        first = 0
        for batch in self._batches():
            if pending is not None:
                yield self._text_rows(pending, first)
                first += pending.num_rows
            pending = batch
        last = None if pending is None else pending.column(0)[-1].as_py()
        if pending is None or last != self._end:
            raise InvalidValueError(
                f"{self._source.name}: a quoted value is not closed before the end of the file; close it with a "
                f"quote, or restore the rest of the file. Nothing was committed"
            )
        yield self._text_rows(pending.slice(0, pending.num_rows - 1), first)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        stream = pa.PythonFile(_Joined(self._texts()), mode="r")
        try:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK_BYTES,
                    column_names=None if self._options.has_header else list(self._names),
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self._skip
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(self._names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=False,
                ),
            )
            if tuple(reader.schema.names) != tuple(self._names):
                raise InvalidSchemaError(
                    f"{Place(self._source.name, 1)}: the header is ambiguous; it reads as "
                    f"{', '.join(reader.schema.names)} and as {', '.join(self._names)}; write it without quotes"
                )
            for batch in reader:
                if batch.num_rows:
                    yield batch.rename_columns([name.strip() for name in self._names])
        except pa.ArrowInvalid as error:
            if self._failure is not None:
                raise self._failure from None
            raise InvalidValueError(
                f"{self._source.name} cannot be read as CSV: {error}; pass --delimiter, or correct the file"
            ) from error

    def _texts(self) -> Iterator[bytes]:
        for block in text_blocks(self._source, self._options.encoding, self._bad_lines, self._options.watch):
            yield block.data
        yield b"\n" + _csv_line([self._end, *[""] * (len(self._names) - 1)], self._delimiter) + b"\n"

    def _skip(self, row: pa_csv.InvalidRow) -> str:
        self._skipped.append(row.number)
        reason = f"there are {row.actual_columns} values, and {row.expected_columns} columns"
        try:
            self._bad_lines.add(self._place_of(row.number), reason, row.text.encode(), header=self._header)
        except InvalidValueError as error:
            # Arrow calls this function, and does not pass its errors on.
            self._failure = error
            return "error"
        return "skip"

    def _text_rows(self, batch: pa.RecordBatch, first: int) -> TextRows:
        table = pa.Table.from_batches([batch])

        def place(row: int) -> Place:
            number = first + row + 1 + (1 if self._options.has_header else 0)
            for skipped in self._skipped:
                number += skipped <= number
            return self._place_of(number)

        def line(row: int) -> bytes:
            values = [table.column(index)[row].as_py() for index in range(table.num_columns)]
            return _csv_line(["" if value is None else value for value in values], self._delimiter)

        return TextRows(table, place, line, self._header)

    def _place_of(self, number: int) -> Place:
        """The line of a record, which counts from 1: quoted values may span lines, so the input is read again."""
        if not self._bad_lines.fails:
            return Place(self._source.name, number, "record")
        texts = text_blocks(self._source, self._options.encoding, BadLines(), None)
        lines = (line for block in texts for line in io.StringIO(block.data.decode(), newline=""))
        reader = csv.reader(lines, delimiter=self._delimiter)
        start, records = 1, 0
        for record in reader:
            records += bool(record)
            if records == number:
                break
            start = reader.line_num + 1
        return Place(self._source.name, start)


class _Joined(io.RawIOBase):
    """Parts of a file, read as one."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = size if size >= 0 else BLOCK_BYTES
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return b""
            self._rest = memoryview(part)
        data, self._rest = self._rest[:wanted], self._rest[wanted:]
        return bytes(data)


def _first_text(source: Input, options: ReadOptions, bad_lines: BadLines) -> str:
    for block in text_blocks(
        source, options.encoding, BadLines("skip") if not bad_lines.fails else bad_lines
    ):
        return block.data[: max(_SNIFFED_BYTES, block.data.find(b"\n") + 1)].decode(errors="ignore")
    return ""


def _find_delimiter(head: str) -> str:
    """The delimiter that gives the same number of columns in every record, most of them, and commas in doubt."""
    best, most = _DELIMITERS[0], 1
    for delimiter in _DELIMITERS:
        records = _records(head, delimiter)
        counts = {len(record) for record in records}
        if len(counts) == 1 and (columns := counts.pop()) > most:
            best, most = delimiter, columns
            if delimiter == _DELIMITERS[0]:
                break
    if most == 1:
        # Ragged rows: the header decides.
        first = next(iter(_records(head, _DELIMITERS[0])), [""])
        counts_in_header = {each: len(next(iter(_records(head, each)), [""])) for each in _DELIMITERS}
        best = max(_DELIMITERS, key=lambda each: counts_in_header[each]) if len(first) == 1 else best
    return best


def _records(head: str, delimiter: str) -> list[list[str]]:
    """The first whole records; the last one may be cut off."""
    lines = io.StringIO(head, newline="")
    records: list[list[str]] = []
    try:
        for record in csv.reader(lines, delimiter=delimiter):
            if record:
                records.append(record)
            if len(records) > _SNIFFED_RECORDS:
                break
    except csv.Error:
        pass
    is_cut = len(head) >= _SNIFFED_BYTES - 4 or not head.endswith("\n")
    return records[:-1] if is_cut and len(records) > 1 else records


def _column_names(name: str, head: str, delimiter: str, options: ReadOptions) -> tuple[str, ...]:
    first = next(iter(_records(head, delimiter)), [])
    if not options.has_header:
        if options.column_names:
            return options.column_names
        return tuple(f"column_{number}" for number in range(1, len(first) + 1))
    unnamed = next((number for number, column in enumerate(first, 1) if not column.strip()), None)
    if unnamed is not None:
        raise InvalidSchemaError(
            f"{Place(name, 1)}: column {unnamed} of the header has no name; name it, or pass --no-header"
        )
    folded = [column.strip().lower() for column in first]
    twice = next((column for column in first if folded.count(column.strip().lower()) > 1), None)
    if twice is not None:
        raise InvalidSchemaError(
            f"{Place(name, 1)}: the header names the column {twice!r} twice; rename one, or pass --no-header"
        )
    return tuple(first)


def _csv_line(values: Sequence[str], delimiter: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(values)
    return text.getvalue().encode()
