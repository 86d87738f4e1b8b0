"""Builds tables once per kind and size, and copies them for benchmarks that change them."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks import delta, iceberg, lance_rows, our_rows, ours, raw_tantivy
from benchmarks.files import DataFile, generate_files
from benchmarks.rows import generate_rows
from benchmarks.sizes import Sizes


class Workshop:
    """A folder of generated tables, and the sizes to generate them in."""

    def __init__(self, folder: Path, sizes: Sizes, console: Console) -> None:
        self.sizes = sizes
        self._folder = folder
        self._console = console
        self._scratch = 0
        self._rows: dict[int, pa.Table] = {}

    def our_table(self, files: int, state_format: str = "avro") -> Path:
        """Our table with this number of files, with a checkpoint in this format."""
        return self._built_files(
            f"ours-{state_format}",
            files,
            lambda path: ours.build_table(path, self.generate(files), state_format),
        )

    def delta_table(self, files: int) -> Path:
        """The same files in a Delta table, with a checkpoint."""
        return self._built_files(
            "deltalake", files, lambda path: delta.build_table(path, self.generate(files))
        )

    def iceberg_table(self, files: int) -> Path:
        """The same files in an Iceberg table."""
        return self._built_files(
            "pyiceberg", files, lambda path: iceberg.build_table(path, self.generate(files))
        )

    def our_rows(self, rows: int) -> Path:
        """Our table with this number of rows, with its splits."""
        return self._built_rows("ours", rows, our_rows.build_table)

    def lance_rows(self, rows: int) -> Path:
        """The same rows in a Lance dataset with a full-text index."""
        return self._built_rows("lance", rows, lance_rows.build_dataset)

    def tantivy_rows(self, rows: int) -> Path:
        """The same rows in a plain Tantivy index."""
        return self._built_rows("tantivy", rows, raw_tantivy.build_index)

    def rows(self, count: int) -> pa.Table:
        """Generated rows."""
        if count not in self._rows:
            self._rows[count] = generate_rows(count)
        return self._rows[count]

    def built(self, name: str, what: str, build: Callable[[Path], None]) -> Path:
        """Build something once, and keep it under this name."""
        path = self._folder / name
        ready = path.with_suffix(".ready")
        if ready.exists():
            return path
        # An interrupted run may have left this.
        shutil.rmtree(path, ignore_errors=True)
        started = time.perf_counter()
        build(path)
        ready.touch()
        self.say(f"built {what} in {time.perf_counter() - started:.1f} s")
        return path

    def generate(self, files: int, *, batch: int = 0) -> Iterator[DataFile]:
        """Generated files, in partitions of the configured size."""
        return generate_files(files, self.sizes.partition_files, batch=batch)

    def copy_of(self, table: Path) -> Path:
        """A copy of a table, to be changed."""
        path = self.new_path()
        shutil.copytree(table, path)
        return path

    def new_path(self) -> Path:
        """A path for a table that is used once."""
        self._scratch += 1
        return self._folder / f"scratch-{self._scratch}"

    def discard_scratch(self) -> None:
        """Delete the tables that are used once."""
        for path in self._folder.glob("scratch-*"):
            shutil.rmtree(path)

    def say(self, text: str) -> None:
        """Print the progress."""
        self._console.print(f"  {text}", highlight=False)

    def _built_files(self, kind: str, files: int, build: Callable[[Path], None]) -> Path:
        name = f"{kind}-{files}-by-{self.sizes.partition_files}"
        return self.built(name, f"{kind} with {files:,} files", build)

    def _built_rows(self, kind: str, rows: int, build: Callable[[Path, pa.Table], None]) -> Path:
        return self.built(
            f"{kind}-{rows}-rows", f"{kind} with {rows:,} rows", lambda path: build(path, self.rows(rows))
        )


@contextmanager
def open_workshop(folder: Path | None, sizes: Sizes, console: Console) -> Iterator[Workshop]:
    """A workshop in a folder that keeps its tables for the next run, or in a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="indextables-bench-") as temporary:
            yield Workshop(Path(temporary), sizes, console)
        return
    folder.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(folder.resolve(), sizes, console)
    workshop.discard_scratch()
    try:
        yield workshop
    finally:
        workshop.discard_scratch()
