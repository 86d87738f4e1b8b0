"""`indextables files`: the live splits of a table."""

import difflib
import enum
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pyarrow as pa
import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, size, when
from indextables.cli.options import (
    AsJson,
    SettingPairs,
    StoragePairs,
    TablePath,
    Timestamp,
    Version,
    open_table,
)
from indextables.cli.output import Column, print_line, print_summary, print_table
from indextables.cli.progress import working
from indextables.cli.row_formats import RowFormat
from indextables.cli.row_output import OutputFile, RowOutput
from indextables.log.deletion_vectors import live_counts
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.storage.urls import is_absolute

EXAMPLES = examples(
    "indextables files ./logs",
    "indextables files ./logs --where \"date = '2026-01-31'\" --limit 20",
    "indextables files s3://bucket/logs --version 7 --columns path,size --json",
    "indextables files ./logs --format paths",
)

# Without the partition values: the path shows them, and terminals are narrow.
_TITLES = {"path": "path", "numRecords": "rows", "size": "size", "addedAtTimestamp": "added"}
_SIZES = frozenset({"size", "uncompressedSizeBytes"})
_TIMES = frozenset({"modificationTime", "addedAtTimestamp"})


class FilesFormat(enum.Enum):
    """What `indextables files` prints."""

    TABLE = RowFormat.TABLE.value
    JSONL = RowFormat.JSONL.value
    CSV = RowFormat.CSV.value
    PARQUET = RowFormat.PARQUET.value
    PATHS = "paths"


def files(
    path: TablePath,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="List only splits that may have rows that satisfy this condition."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="The columns to show, separated by commas."),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0, help="Show at most N files.")] = None,
    as_json: AsJson = False,
    output_format: Annotated[
        FilesFormat | None,
        typer.Option("--format", help="The format of the list; paths is the full path of each file alone."),
    ] = None,
    output_file: OutputFile = None,
    version: Version = None,
    timestamp: Timestamp = None,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """List the live files of a table.

    Reads only the log, and opens no split. With --where, omits files that cannot match.
    """
    chosen, is_paths = _parse_columns(columns), output_format is FilesFormat.PATHS
    if is_paths and (columns is not None or as_json or output_file is not None):
        raise typer.BadParameter("paths have no columns and are printed as lines", param_hint="'--format'")
    row_format = None if output_format is None or is_paths else RowFormat(output_format.value)
    output = RowOutput.of(as_json, row_format, output_file)
    table = open_table(path, option, storage_option, version=version, timestamp=timestamp)
    is_overview = chosen is None and output.is_own_layout and not is_paths
    if is_paths:
        chosen = ["path"]
    elif is_overview:
        chosen = [*_TITLES, "deletionVector"]
    with working("reading the list of files"):
        found = table.files(where=where, columns=chosen)
    shown = found if limit is None else found.slice(0, limit)
    if is_paths:
        root = path.rstrip("/")
        for name in shown["path"].to_pylist():
            print_line(name if is_absolute(name) else f"{root}/{name}")
        return
    if not output.is_own_layout:
        output.write(shown)
        return
    if is_overview:
        shown = _with_live_rows(shown).select(list(_TITLES))
    if shown.num_rows:
        _print_files(shown, _TITLES if columns is None else {})
    _print_limit(shown.num_rows, found.num_rows)
    print_summary(
        count(found.num_rows, "file") if where is None else _skipped(found.num_rows, table.num_files)
    )


def _parse_columns(columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in columns.split(",")))
    for name in names:
        if name not in FILE_ENTRY_SCHEMA.names:
            near = difflib.get_close_matches(name, FILE_ENTRY_SCHEMA.names, n=1)
            remedy = (
                f"did you mean {near[0]}?"
                if near
                else f"the columns are {', '.join(FILE_ENTRY_SCHEMA.names)}"
            )
            raise typer.BadParameter(
                f"a file entry has no column {name!r}; {remedy}", param_hint="'--columns'"
            )
    return names


def _with_live_rows(entries: pa.Table) -> pa.Table:
    """The entries with the number of rows that are not deleted."""
    index = entries.schema.get_field_index("numRecords")
    return entries.set_column(index, entries.schema.field(index), live_counts(entries))


def _print_files(entries: pa.Table, titles: Mapping[str, str]) -> None:
    now_ms = time.time_ns() // 1_000_000
    columns: list[Column] = []
    texts: list[list[str]] = []
    for field in entries.schema:
        show = _formatter(field, now_ms)
        columns.append(_column(field, titles.get(field.name, field.name)))
        values = entries[field.name].to_pylist(maps_as_pydicts="lossy")
        texts.append(["-" if value is None else show(value) for value in values])
    print_table(columns, list(zip(*texts, strict=True)))


def _column(field: pa.Field, title: str) -> Column:
    is_number = pa.types.is_integer(field.type) and field.name not in _TIMES
    return Column(title, "right" if is_number else "left")


def _formatter(field: pa.Field, now_ms: int) -> Callable[[Any], str]:
    if field.name in _SIZES:
        return size
    if field.name in _TIMES:
        return lambda time_ms: when(time_ms, now_ms)
    if field.name == "numRecords":
        return lambda number: f"{number:,}"
    if pa.types.is_map(field.type):
        return lambda values: ", ".join(f"{name}={_text(value)}" for name, value in values.items()) or "-"
    if pa.types.is_list(field.type):
        return lambda values: ", ".join(map(_text, values)) or "-"
    if pa.types.is_boolean(field.type):
        return lambda value: "yes" if value else "no"
    return str


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _print_limit(shown: int, found: int) -> None:
    if shown < found:
        print_summary(f"… {shown:,} of {found:,} shown; omit --limit to see all")


def _skipped(found: int, live: int) -> str:
    return f"{count(found, 'file')} may match, {live - found:,} of {live:,} skipped"
