"""Where the rows of an answer go: to stdout or into a file, in a format of the user's choice.

A command makes a `RowOutput` of its options `--json`, `--format` and `-o` before its work begins, and gives it the
rows. Without these options, the command prints its own layout. Summaries go to stderr: stdout has the rows alone.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import pyarrow as pa
import typer

from indextables.cli.formatting import count
from indextables.cli.new_file import new_file
from indextables.cli.output import is_terminal, print_summary, print_table
from indextables.cli.row_formats import (
    WRITERS,
    RowFormat,
    WriteRows,
    text_cells,
    text_columns,
    write_json_array,
)
from indextables.cli.standard_output import is_reader_gone
from indextables.errors import StorageError

OutputFormat = Annotated[
    RowFormat | None,
    typer.Option("--format", help="Print the rows as an aligned table, JSON lines, CSV or Parquet."),
]
OutputFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the rows to this file, by default in the format of its suffix. - is stdout.",
    ),
]

_CHUNK_ROWS: Final = 10_000
# The first rows appear at once, and decide the widths of a table of text.
_FIRST_ROWS: Final = 1_000

_STDOUT: Final = "-"
_SUFFIXES: Final = {
    ".jsonl": RowFormat.JSONL,
    ".ndjson": RowFormat.JSONL,
    ".csv": RowFormat.CSV,
    ".parquet": RowFormat.PARQUET,
    ".txt": RowFormat.TABLE,
}


class RowOutput(msgspec.Struct, frozen=True):
    """What the options of a command say about its rows.

    Attributes:
        format: The format; None for the command's own layout, or the array of `--json`.
        is_json: Whether the rows are to be one JSON array.
        file: The file to write; None for stdout.
    """

    format: RowFormat | None
    is_json: bool = False
    file: Path | None = None

    @classmethod
    def of(cls, as_json: bool, output_format: RowFormat | None, file: str | None) -> "RowOutput":
        """Check the options of a command. Raises typer.BadParameter for options that do not go together."""
        if as_json and output_format is not None:
            raise typer.BadParameter("give one of them, not both", param_hint="'--json' and '--format'")
        path = None if file is None or file == _STDOUT else _checked(file)
        if path is not None and not as_json and output_format is None:
            output_format = _SUFFIXES.get(path.suffix.lower())
            as_json = path.suffix.lower() == ".json"
            if output_format is None and not as_json:
                raise typer.BadParameter(
                    f"the name {file} has no suffix of a format; add --format jsonl, csv, parquet or table",
                    param_hint="'--output'",
                )
        if output_format is RowFormat.PARQUET and path is None:
            raise typer.BadParameter("Parquet needs a file: add -o FILE", param_hint="'--format'")
        return cls(output_format, as_json, path)

    @property
    def is_own_layout(self) -> bool:
        """Whether the command prints the rows itself."""
        return self.format is None and not self.is_json

    def write(self, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Write the rows as they come, in bounded memory.

        If the rows go to a file, says so on stderr. Ends early if the reader of stdout is gone.
        """
        schema, chunks = rows.schema, _Chunks(rows)
        write = write_json_array if self.format is None else WRITERS[self.format]
        if self.file is not None:
            self._write_file(self.file, write, schema, chunks)
        elif self.format is RowFormat.TABLE and is_terminal():
            for chunk in chunks:
                print_table(text_columns(schema), text_cells(chunk))
        else:
            sys.stdout.flush()
            write(schema, chunks, sys.stdout.buffer)

    @staticmethod
    def _write_file(path: Path, write: WriteRows, schema: pa.Schema, chunks: "_Chunks") -> None:
        try:
            with new_file(path) as stream:
                write(schema, chunks, stream)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
        print_summary(f"{count(chunks.num_rows, 'row')} written to {path}")


class _Chunks:
    """Rows as small tables, counted, until the reader of stdout is gone."""

    def __init__(self, rows: pa.Table | pa.RecordBatchReader) -> None:
        self.num_rows = 0
        self._rows = rows

    def __iter__(self) -> Iterator[pa.Table]:
        batches: Iterable[pa.RecordBatch] = (
            self._rows.to_batches() if isinstance(self._rows, pa.Table) else self._rows
        )
        for batch in batches:
            start = 0
            while start < batch.num_rows and not is_reader_gone():
                chunk = batch.slice(start, _CHUNK_ROWS if self.num_rows else _FIRST_ROWS)
                yield pa.Table.from_batches([chunk])
                start += chunk.num_rows
                self.num_rows += chunk.num_rows
            if is_reader_gone():
                return


def _checked(file: str) -> Path:
    """The path of a file to write. Raises typer.BadParameter if there can be none."""
    path = Path(file).expanduser()
    if "://" in file:
        raise typer.BadParameter(f"{file} is a URL; name a local file", param_hint="'--output'")
    if path.is_dir():
        raise typer.BadParameter(f"{file} is a directory; name a file in it", param_hint="'--output'")
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no directory {path.parent}", param_hint="'--output'")
    return path
