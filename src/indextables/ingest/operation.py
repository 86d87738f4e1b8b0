"""Indexing inputs into a table: all of them in one commit, which also creates the table if there is none.

A new table takes two passes: the first one reads all input to find the columns and their types, the second one reads it
in these types. An existing table has its types, so one pass is enough. In both cases every value is checked, and
nothing is committed unless all of them fit.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import pyarrow as pa

from indextables import ops
from indextables.config.registry import INDEXING_TYPEMAP
from indextables.errors import InvalidOptionError, TableNotFoundError
from indextables.index_table import IndexTable, table_at
from indextables.ingest.bad_lines import FAIL, SKIP, BadLines
from indextables.ingest.columns import ADD, IGNORE, Columns, Target, TypeConflictError
from indextables.ingest.declared import DeclaredTypes
from indextables.ingest.formats import Format, format_of, format_of_name, open_source
from indextables.ingest.inputs import Input, find_inputs
from indextables.ingest.lattice import Seen
from indextables.ingest.source import ReadOptions, Source
from indextables.ingest.text import Encoding
from indextables.ingest.text_choice import SAMPLE_ROWS, choose_text_columns
from indextables.ingest.text_types import read_text, recognised_type
from indextables.schema import canonical_schema, find_column
from indextables.storage.urls import Scheme, parse_root
from indextables.table import Snapshot, TableContext
from indextables.table.create import plan_table

_SAMPLED_INPUTS: Final = 8
_BATCH_ROWS: Final = 16 * 1024


class IngestRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to index, and how. None leaves a choice to what the inputs show.

    `text` are the columns to tokenize, `exact` string columns to leave alone. `new_fields` is "add", "ignore" or
    "fail", `bad_lines` "fail", "skip" or a file. `pattern` takes lines apart by its named groups.
    """

    places: tuple[str, ...]
    path: str
    format: Format | None = None
    text: tuple[str, ...] | None = None
    exact: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    new_fields: str | None = None
    bad_lines: str = FAIL
    encoding: str = "utf-8"
    delimiter: str | None = None
    has_header: bool = True
    pattern: str | None = None
    overwrite: bool = False
    dry_run: bool = False
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    storage_options: Mapping[str, str] = msgspec.field(default_factory=dict)


class IngestProgress(msgspec.Struct, frozen=True):
    """How far a pass is: its rows, and the share of the bytes of all inputs."""

    description: str
    rows: int
    done_bytes: int
    total_bytes: int


class ColumnReport(msgspec.Struct, frozen=True):
    """A column of the table, and how it is searched. `is_chosen` means that its values decided so, not the caller."""

    name: str
    type: str
    search: str
    is_chosen: bool = False


class IngestResult(msgspec.Struct, frozen=True):
    """What was indexed. Of a dry run, what would have been: `table` is None then."""

    num_inputs: int
    num_rows: int
    num_bad_lines: int
    first_bad_line: str | None
    is_new_table: bool
    columns: tuple[ColumnReport, ...]
    left_out: tuple[str, ...] = ()
    table: IndexTable | None = None

    @property
    def has_text(self) -> bool:
        """Whether a column is full text."""
        return any(column.search.startswith(ops.describe.FULL_TEXT) for column in self.columns)


ShowProgress = Callable[[IngestProgress], None]


def ingest(
    request: IngestRequest,
    show: ShowProgress = lambda _: None,
    planned: Callable[[tuple[ColumnReport, ...]], None] = lambda _: None,
) -> IngestResult:
    """Index inputs into a table. `planned` is called with the columns of a new table before its rows are written.

    Raises InvalidOptionError for inputs that cannot be opened, InvalidSchemaError for fields that do not fit, and
    InvalidValueError for lines and values that do not, each with the input, the line and a remedy. Nothing is committed
    then.
    """
    return _Ingestion(request, show, planned).run()


def read_all(request: IngestRequest) -> pa.Table:
    """The rows of inputs, in memory, with the columns and types that they show; the request has no path of a table.

    Raises what `ingest` raises.
    """
    return _Ingestion(request, lambda _: None, lambda _: None).read_all()


class _Ingestion:
    def __init__(
        self, request: IngestRequest, show: ShowProgress, planned: Callable[[tuple[ColumnReport, ...]], None]
    ) -> None:
        self._request = request
        self._planned = planned
        self._declared = DeclaredTypes.parse(request.types)
        # A dry run writes nothing, so it only counts the bad lines.
        self._bad_lines = BadLines(
            SKIP if request.dry_run and request.bad_lines != FAIL else request.bad_lines
        )
        self._table = _open(request)
        self._inputs, self._left_out = find_inputs(
            request.places,
            lambda name: request.format is not None or format_of_name(name) is not None,
            request.storage_options,
            request.options,
        )
        self._formats = [self._format_of(each) for each in self._inputs]
        _check_effects(request, frozenset(self._formats))
        self._meter = _Meter(show, self._inputs)
        self._read_options = self._reading()

    def run(self) -> IngestResult:
        request, table = self._request, self._table
        if table is not None:
            self._check_unchanged(table)
            new_fields = IGNORE if request.new_fields == IGNORE else FAIL
            target = Target(self._with_new_fields(table), new_fields)
            if request.dry_run:
                return self._result(self._count(target), column_reports(table.snapshot), None)
            rows = self._rows(target)
            reader = pa.RecordBatchReader.from_batches(target.schema, rows.batches())
            if request.overwrite:
                table.overwrite(reader)
            else:
                table.append(reader, merge_schema=request.new_fields == ADD)
            return self._result(rows.count, column_reports(table.snapshot), table)
        schema = self._infer()
        text, chosen = self._text_columns(schema)
        planned = self._plan(schema, text)
        columns = column_reports(planned, chosen)
        self._planned(columns)
        target = Target(planned.schema, IGNORE if request.new_fields == IGNORE else FAIL)
        if request.dry_run:
            return self._result(self._count(target), columns, None)
        rows = self._rows(target)
        with removing_new_folder(request.path):
            reader = pa.RecordBatchReader.from_batches(target.schema, rows.batches())
            snapshot = ops.write.create_with_rows(planned, reader).snapshot
        return self._result(rows.count, columns, table_at(snapshot))

    def read_all(self) -> pa.Table:
        target = Target(self._infer(), FAIL)
        return pa.concat_tables([target.schema.empty_table(), *self._tables("reading", target)])

    def _result(
        self, num_rows: int, columns: tuple[ColumnReport, ...], table: IndexTable | None
    ) -> IngestResult:
        self._bad_lines.close()
        return IngestResult(
            len(self._inputs),
            num_rows,
            self._bad_lines.count,
            self._bad_lines.first,
            self._table is None,
            columns,
            tuple(self._left_out),
            table,
        )

    # --- the inputs ------------------------------------------------------------------------------------

    def _reading(self) -> ReadOptions:
        request = self._request
        names = tuple(self._table.schema.names) if self._table is not None and not request.has_header else ()
        if request.delimiter is not None and len(request.delimiter) != 1:
            raise InvalidOptionError(
                f"the delimiter must be one character, not {request.delimiter!r}; for tabs, pass --format tsv"
            )
        return ReadOptions(
            encoding=Encoding(request.encoding),
            delimiter=request.delimiter,
            has_header=request.has_header,
            column_names=names,
            pattern=_compiled(request.pattern),
            watch=self._meter.watch,
        )

    def _format_of(self, each: Input) -> Format:
        if self._request.format is not None:
            return self._request.format
        return Format.LINES if self._request.pattern is not None else format_of(each)

    def _sources(self, description: str) -> Iterator[tuple[Input, Source]]:
        self._meter.start(description)
        for each, format_ in zip(self._inputs, self._formats, strict=True):
            yield each, open_source(each, format_, self._read_options)
            self._meter.end_input(each)

    def _with_new_fields(self, table: IndexTable) -> pa.Schema:
        """The schema of an existing table, with the new columns of all inputs if they are to be added."""
        request = self._request
        if request.new_fields != ADD:
            return table.schema
        if request.overwrite:
            raise InvalidOptionError(
                "--new-fields add: --overwrite keeps the columns of the table; add them with `indextables alter`, or "
                "append"
            )
        known = {field.name: field.type for field in table.schema}
        added = [field for field in self._infer(known) if find_column(table.schema, field.name) is None]
        return pa.schema([*table.schema, *added])

    def _infer(self, known: Mapping[str, pa.DataType] | None = None) -> pa.Schema:
        """The columns of all inputs; the types of `known` ones are given."""
        columns = Columns({**(known or {}), **self._declared.types}, self._request.new_fields or ADD)
        # Bad lines are recorded in the second pass, which meets them again.
        bad_lines = BadLines(FAIL if self._bad_lines.fails else SKIP)
        for each, source in self._sources("reading"):
            for rows in source.infer(columns, bad_lines):
                self._meter.add_rows(rows)
            for name, value in each.folders:
                seen = Seen(recognised_type(pa.chunked_array([[value]], pa.string())), is_text=True)
                try:
                    columns.add(name, seen, each.name)
                except TypeConflictError as error:
                    raise columns.conflict(each.name, error) from error
            columns.end_input()
        return canonical_schema(columns.schema())

    def _rows(self, target: Target) -> "_Rows":
        return _Rows(self._tables("indexing", target), self._meter)

    def _tables(self, description: str, target: Target) -> Iterator[pa.Table]:
        for each, source in self._sources(description):
            folders = [
                (field, value)
                for name, value in each.folders
                if (field := find_column(target.schema, name)) is not None
            ]
            for table in source.read(target.without([field.name for field, _ in folders]), self._bad_lines):
                yield _with_folders(table, folders, target.schema)

    def _count(self, target: Target) -> int:
        rows = self._rows(target)
        for _ in rows.batches():
            pass
        return rows.count

    # --- a new table -----------------------------------------------------------------------------------

    def _text_columns(self, schema: pa.Schema) -> tuple[tuple[str, ...], frozenset[str]]:
        """The text columns, and those of them that their values have decided."""
        request = self._request
        declared = tuple(name for name, kind in self._declared.indexed_as.items() if kind == "text")
        if request.text is not None or _chooses_text(request.options):
            return tuple(dict.fromkeys([*(request.text or ()), *declared])), frozenset()
        fixed = {*request.exact, *request.partition_by, *self._declared.indexed_as}
        unknown = next((name for name in request.exact if schema.get_field_index(name) < 0), None)
        if unknown is not None:
            raise InvalidOptionError(
                f"--exact names {unknown!r}, which is not a column; the columns are {', '.join(schema.names)}"
            )
        chosen = choose_text_columns(self._sample(schema), fixed)
        return (*declared, *chosen), frozenset(chosen)

    def _sample(self, schema: pa.Schema) -> pa.Table:
        """The first rows of the first inputs."""
        target = Target(schema, IGNORE)
        tables = []
        for each, format_ in list(zip(self._inputs, self._formats, strict=True))[:_SAMPLED_INPUTS]:
            options = msgspec.structs.replace(self._read_options, watch=None)
            rows = open_source(each, format_, options).read(target, BadLines(SKIP))
            tables.append(next(rows, schema.empty_table()).slice(0, SAMPLE_ROWS))
        return pa.concat_tables([schema.empty_table(), *tables])

    def _plan(self, schema: pa.Schema, text: Sequence[str]) -> Snapshot:
        request = self._request
        context = TableContext.at(request.path, request.storage_options, request.options)
        properties = {
            **ops.write.indexing_properties(request.options),
            **{f"{INDEXING_TYPEMAP.prefix}{name}": kind for name, kind in self._declared.indexed_as.items()},
            **ops.write.text_properties(schema, text),
        }
        return plan_table(context, schema, request.partition_by, properties)

    def _check_unchanged(self, table: IndexTable) -> None:
        """Reject choices that differ from the existing table: they are made when a table is created."""
        request = self._request
        if request.partition_by and list(request.partition_by) != table.partition_columns:
            partitions = ", ".join(table.partition_columns) or "no column"
            raise InvalidOptionError(
                f"--partition-by: the table exists and is partitioned by {partitions}; omit the option"
            )
        search = {report.name: report.search for report in column_reports(table.snapshot)}
        for option, names, is_text in (
            ("--text", request.text or (), True),
            ("--exact", request.exact, False),
        ):
            other = [
                name for name in names if search.get(name, "").startswith(ops.describe.FULL_TEXT) != is_text
            ]
            if other:
                state = "is not a text column in it" if is_text else "is a text column in it"
                raise InvalidOptionError(
                    f"{option}: the table exists, and {', '.join(other)} {state}; omit the option"
                )
        for name, type_ in self._declared.types.items():
            field = find_column(table.schema, name)
            if field is None or not field.type.equals(type_):
                found = "no such column" if field is None else f"the type {field.type} there"
                raise InvalidOptionError(
                    f"--type {name}={type_}: the table exists, and {name!r} has {found}; omit the option"
                )


def column_reports(snapshot: Snapshot, chosen: frozenset[str] = frozenset()) -> tuple[ColumnReport, ...]:
    """The columns of a table, and how each is searched."""
    search = ops.describe.column_search(snapshot)
    return tuple(
        ColumnReport(
            field.name,
            "text" if search[field.name].startswith(ops.describe.FULL_TEXT) else str(field.type),
            search[field.name],
            field.name in chosen,
        )
        for field in snapshot.schema
    )


@contextlib.contextmanager
def removing_new_folder(path: str) -> Iterator[None]:
    """Remove the local folder of a table that could not be created, if it is new and empty."""
    location = parse_root(path)
    folder = Path(f"/{location.path}") if location.scheme is Scheme.LOCAL else None
    is_new = folder is not None and not folder.exists()
    try:
        yield
    except BaseException:
        if folder is not None and is_new:
            for parent, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    Path(parent).rmdir()
        raise


class _Rows:
    """Tables as batches, with their rows counted."""

    def __init__(self, tables: Iterator[pa.Table], meter: "_Meter") -> None:
        self._tables, self._meter = tables, meter
        self.count = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        before = 0
        for table in self._tables:
            after = self._meter.position()
            taken = 0
            for batch in table.to_batches(_BATCH_ROWS):
                yield batch
                # The writer has taken the batch when it asks for the next one.
                taken += batch.num_rows
                share = before + (after - before) * taken // table.num_rows
                self._meter.add_rows(batch.num_rows, share)
            self.count += table.num_rows
            before = after


class _Meter:
    """Follows the raw bytes that readers have consumed."""

    def __init__(self, show: ShowProgress, inputs: Sequence[Input]) -> None:
        self._show = show
        self._total = sum(each.size for each in inputs)
        self._description, self._rows, self._done = "", 0, 0
        self._file: BinaryIO | None = None

    def watch(self, file: BinaryIO) -> None:
        self._file = file

    def start(self, description: str) -> None:
        self._description, self._rows, self._done, self._file = description, 0, 0, None

    def end_input(self, each: Input) -> None:
        self._done += each.size
        self._file = None

    def position(self) -> int:
        """How many of the bytes were read."""
        is_open = self._file is not None and not self._file.closed
        return self._done + (self._file.tell() if is_open and self._file is not None else 0)

    def add_rows(self, rows: int, done: int | None = None) -> None:
        """Show that rows were read, or written if `done` bytes are done."""
        self._rows += rows
        shown = self.position() if done is None else done
        self._show(IngestProgress(self._description, self._rows, shown, self._total))


def _open(request: IngestRequest) -> IndexTable | None:
    if not request.path:
        return None
    try:
        return IndexTable(
            request.path, options=dict(request.options), storage_options=dict(request.storage_options)
        )
    except TableNotFoundError:
        return None


def _check_effects(request: IngestRequest, formats: frozenset[Format]) -> None:
    """Raise InvalidOptionError for an option that no input takes: it would be ignored without a word."""
    tables, typed = {Format.CSV, Format.TSV}, {Format.PARQUET, Format.ARROW, Format.AVRO}
    for option, is_given, takers in (
        ("--delimiter", request.delimiter is not None, tables),
        ("--no-header", not request.has_header, tables),
        ("--pattern", request.pattern is not None, {Format.LINES}),
        ("--encoding", not Encoding(request.encoding).is_utf8, set(Format) - typed),
    ):
        if is_given and not formats & takers:
            raise InvalidOptionError(
                f"{option} has no effect on {', '.join(sorted(formats))}; it is for "
                f"{', '.join(sorted(takers))}; omit it, or pass another --format"
            )


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidOptionError(f"the pattern {pattern!r} is not a regular expression: {error}") from error


def _chooses_text(options: Mapping[str, str]) -> bool:
    """Whether the settings name text columns."""
    prefix = INDEXING_TYPEMAP.prefix.lower()
    return any(
        key.lower().startswith(prefix) and "text" in (key.lower().removeprefix(prefix), value.strip().lower())
        for key, value in options.items()
    )


def _with_folders(
    table: pa.Table, folders: Sequence[tuple[pa.Field, str | None]], schema: pa.Schema
) -> pa.Table:
    if not folders:
        return table
    for field, value in folders:
        texts = pa.chunked_array([pa.array([value] * table.num_rows, pa.string())])
        table = table.append_column(field, read_text(texts, field.type))
    return table.select(schema.names)
