"""`indextables index`: index files into a table, without Spark."""

import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.dataset as ds
import typer

from indextables.cli.command import examples
from indextables.cli.formatting import count, duration, size
from indextables.cli.json_output import print_json
from indextables.cli.options import AsJson, SettingPairs, StoragePairs, parse_pairs, parse_settings
from indextables.cli.output import print_line
from indextables.cli.progress import working
from indextables.errors import InvalidSchemaError, TableNotFoundError
from indextables.index_table import IndexTable

EXAMPLES = examples(
    "indextables index events.parquet ./events --text message",
    "indextables index logs/*.jsonl ./logs --partition-by date --text message,stack",
    "indextables index more.csv ./events",
)


class FileFormat(StrEnum):
    """The supported file formats."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_FORMAT_OF_SUFFIX = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
}


def index(
    places: Annotated[
        list[str],
        typer.Argument(metavar="FILE... PATH", help="Parquet, CSV or JSON Lines files, then the table."),
    ],
    text: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to tokenize, for a new table.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns to partition by, for a new table.")
    ] = None,
    file_format: Annotated[
        FileFormat | None, typer.Option("--format", help="The files' format, if their names do not show it.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace all rows of the table.")] = False,
    as_json: AsJson = False,
    option: SettingPairs = None,
    storage_option: StoragePairs = None,
) -> None:
    """Index files into a table, creating it if needed.

    All files become visible in one commit, or none does.
    """
    *files, path = places
    if not files:
        raise typer.BadParameter("give at least one file, then the table", param_hint="'FILE... PATH'")
    rows = _open_files(files, file_format)
    settings, storage = parse_settings(option), parse_pairs(storage_option)
    started = time.perf_counter()
    try:
        table = IndexTable(path, options=settings, storage_options=storage)
        _check_unchanged(table, _names(partition_by), _names(text))
    except TableNotFoundError:
        table = IndexTable.create(
            path,
            rows.schema,
            partition_by=_names(partition_by),
            text=_names(text),
            options=settings,
            storage_options=storage,
        )
    with working(f"indexing {count(len(files), 'file')}"):
        version = table.overwrite(_batches(rows)) if overwrite else table.append(_batches(rows))
    seconds = time.perf_counter() - started
    if as_json:
        print_json(
            {
                "version": version,
                "num_rows": table.num_rows,
                "num_files": table.num_files,
                "total_bytes": table.total_bytes,
            }
        )
        return
    print_line(f"version {version} of {path}, in {duration(seconds)}")
    print_line(
        f"the table has {count(table.num_rows or 0, 'row')} in {count(table.num_files, 'split')}, "
        f"{size(table.total_bytes)}"
    )


def _check_unchanged(table: IndexTable, partition_by: Sequence[str], text: Sequence[str]) -> None:
    """Reject options that differ from the existing table: partitioning and indexing are fixed at creation."""
    if partition_by and list(partition_by) != table.partition_columns:
        raise typer.BadParameter(
            f"the table exists and is partitioned by {', '.join(table.partition_columns) or 'no column'}; omit the "
            f"option",
            param_hint="'--partition-by'",
        )
    highlighter = table.highlighter("*")
    other = [name for name in text if not highlighter.is_text(name)]
    if other:
        raise typer.BadParameter(
            f"the table exists, and {', '.join(other)} is not a text column in it; omit the option",
            param_hint="'--text'",
        )


def _open_files(files: Sequence[str], file_format: FileFormat | None) -> ds.Dataset:
    formats = {file_format or _FORMAT_OF_SUFFIX.get(Path(file).suffix.lower()) for file in files}
    for file in files:
        if not Path(file).is_file():
            raise typer.BadParameter(f"file {file} does not exist", param_hint="'FILE... PATH'")
    if len(formats) != 1 or None in formats:
        raise typer.BadParameter(
            "the file names do not show one format; pass --format parquet, csv or json",
            param_hint="'FILE... PATH'",
        )
    (found,) = formats
    assert found is not None  # just checked
    try:
        return ds.dataset(list(files), format=found.value)
    except (pa.ArrowException, OSError) as error:
        raise InvalidSchemaError(f"the files cannot be read as {found.value}: {error}") from error


def _batches(rows: ds.Dataset) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, _read(rows))


def _read(rows: ds.Dataset) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows.to_batches()
    except (pa.ArrowException, OSError) as error:
        raise InvalidSchemaError(f"the files cannot be read completely: {error}") from error


def _names(columns: str | None) -> list[str]:
    return [name.strip() for name in (columns or "").split(",") if name.strip()]
