"""`indextables index`: index files into a table, without Spark."""

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, parse_pairs, parse_settings
from indextables.cli.output import Column, print_hint, print_line, print_table, print_warning
from indextables.cli.progress import progressing_rows
from indextables.errors import InvalidOptionError

if TYPE_CHECKING:
    from indextables.ingest.operation import ColumnReport, IngestRequest, IngestResult

EXAMPLES = examples(
    "indextables index events.csv ./events",
    "indextables index 'logs/*.jsonl.gz' ./logs --partition-by date --text message,stack",
    "indextables index logs/ ./logs --dry-run",
    "indextables index app.log ./logs --pattern '(?P<level>[A-Z]+) (?P<message>.*)' --bad-lines skip",
    "zcat big.csv.gz | indextables index - ./events --format csv --type zip=string",
)

_READING = "How files are read"
_CREATING = "For a new table"


class FileFormat(StrEnum):
    """The supported file formats."""

    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    LINES = "lines"
    PARQUET = "parquet"
    ARROW = "arrow"
    AVRO = "avro"


class NewFields(StrEnum):
    """What becomes of fields that the table, or the first file, does not have."""

    ADD = "add"
    IGNORE = "ignore"
    FAIL = "fail"


def index(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... PATH",
            help="Files, folders, globs or object-store URLs, or - for standard input; then the table. Files may be "
            "compressed: .gz, .zst, .bz2, .xz.",
        ),
    ],
    text: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="String columns to tokenize for full-text search.", rich_help_panel=_CREATING
        ),
    ] = None,
    exact: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="String columns that match as a whole, not as text.",
            rich_help_panel=_CREATING,
        ),
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to partition by.", rich_help_panel=_CREATING)
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="NAME=TYPE",
            help="The type of a column, such as price=double, id=string or payload=json. May be repeated.",
            rich_help_panel=_CREATING,
        ),
    ] = None,
    file_format: Annotated[
        FileFormat | None,
        typer.Option(
            "--format",
            help="The format, if names and contents do not show it. `json` is JSON lines or arrays; `lines` makes each "
            "line a row.",
            rich_help_panel=_READING,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="C", help="The delimiter of CSV; found in the file.", rich_help_panel=_READING),
    ] = None,
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="The first line of CSV holds values.", rich_help_panel=_READING),
    ] = False,
    encoding: Annotated[
        str,
        typer.Option(metavar="NAME", help="The encoding of text, such as latin-1.", rich_help_panel=_READING),
    ] = "utf-8",
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Take lines apart: a regular expression for whole lines; its named groups are the columns.",
            rich_help_panel=_READING,
        ),
    ] = None,
    new_fields: Annotated[
        NewFields | None,
        typer.Option(
            help="Fields that the table does not have: ignore them, or fail, the default. For a new table, those that "
            "the first file does not have: add, the default.",
            rich_help_panel=_READING,
        ),
    ] = None,
    bad_lines: Annotated[
        str,
        typer.Option(
            metavar="fail|skip|FILE",
            help="Lines that cannot be read: fail, skip them, or write them to a file.",
            rich_help_panel=_READING,
        ),
    ] = "fail",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the columns and how they are searched; write nothing.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace all rows of the table.")] = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Index files into a table, creating it if needed.

    Columns and types come from all the input. All files become visible in one commit, or none does; a failure leaves no
    new table behind.
    """
    *files, path = places
    if not files:
        raise typer.BadParameter("give at least one file, then the table", param_hint="'FILE... PATH'")
    # The readers are imported when a command line is complete.
    from indextables.ingest.formats import Format
    from indextables.ingest.operation import IngestRequest

    request = IngestRequest(
        places=tuple(files),
        path=path,
        format=None if file_format is None else Format(file_format.value),
        text=None if text is None else _names(text),
        exact=_names(exact),
        partition_by=_names(partition_by),
        types=tuple(type_ or ()),
        new_fields=None if new_fields is None else new_fields.value,
        bad_lines=bad_lines,
        encoding=encoding,
        delimiter="\t" if delimiter == "\\t" else delimiter,
        has_header=not no_header,
        pattern=pattern,
        overwrite=overwrite,
        dry_run=dry_run,
        options=parse_settings(option),
        storage_options=parse_pairs(storage_option),
    )
    started = time.perf_counter()
    result = _run(request, is_quiet=as_json)
    if as_json:
        print_json(_document(result))
        return
    _print_result(result, path, time.perf_counter() - started)


def _run(request: "IngestRequest", *, is_quiet: bool) -> "IngestResult":
    from indextables.ingest.operation import ingest

    try:
        with progressing_rows() as show:
            return ingest(request, show, (lambda _: None) if is_quiet else _print_columns)
    except InvalidOptionError as error:
        raise typer.BadParameter(str(error)) from error


def _print_columns(columns: "tuple[ColumnReport, ...]") -> None:
    rows = [
        (
            column.name,
            column.type,
            f"{column.search}{' ← chosen; --text/--exact to change' if column.is_chosen else ''}",
        )
        for column in columns
    ]
    print_table([Column("column"), Column("type"), Column("search")], rows)


def _print_result(result: "IngestResult", path: str, seconds: float) -> None:
    _warn(result)
    read = f"{count(result.num_rows, 'row')} from {count(result.num_inputs, 'file')}"
    bad = f", {count(result.num_bad_lines, 'bad line')} left out" if result.num_bad_lines else ""
    table = result.table
    if table is None:
        print_line(f"{read} would be indexed into {path}{bad}; nothing was written")
        return
    print_line(f"{read} in version {table.version} of {path}, in {duration(seconds)}{bad}")
    print_line(
        f"the table has {count(table.num_rows or 0, 'row')} in {count(table.num_files, 'split')}, "
        f"{size(table.total_bytes)}"
    )


def _warn(result: "IngestResult") -> None:
    if result.left_out:
        names = ", ".join(result.left_out[:3])
        print_warning(
            f"{count(len(result.left_out), 'file')} left out, because the name does not show the format: {names}; pass "
            f"--format to index all files"
        )
    if result.first_bad_line is not None:
        print_warning(
            f"{count(result.num_bad_lines, 'bad line')} left out; the first: {result.first_bad_line}"
        )
    if result.is_new_table and not result.has_text:
        print_hint("no column is full text: queries match whole values only; name text columns with --text")


def _document(result: "IngestResult") -> dict[str, object]:
    table = result.table
    return {
        "version": None if table is None else table.version,
        "num_rows": None if table is None else table.num_rows,
        "num_files": None if table is None else table.num_files,
        "total_bytes": None if table is None else table.total_bytes,
        "num_inputs": result.num_inputs,
        "num_indexed_rows": result.num_rows,
        "num_bad_lines": result.num_bad_lines,
        "first_bad_line": result.first_bad_line,
        "left_out": list(result.left_out),
        "columns": [
            {"name": column.name, "type": column.type, "search": column.search, "is_chosen": column.is_chosen}
            for column in result.columns
        ],
    }


def _names(columns: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (columns or "").split(",") if name.strip())
