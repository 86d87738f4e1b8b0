"""The text that the demo indexes, which every machine has: the source of Python's standard library."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from indextables.errors import StorageError

SCHEMA: Final = pa.schema(
    [("package", pa.string()), ("path", pa.string()), ("line", pa.int32()), ("text", pa.string())]
)

# Modules that are a single file have no package.
SINGLE_FILES: Final = "modules"

_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "__pycache__", "lib2to3", "idlelib"})


def read_corpus() -> pa.Table:
    """Every line of the standard library that is not blank. Raises StorageError if its source is not there."""
    root = Path(sysconfig.get_paths()["stdlib"])
    tables = [_lines(path, root) for path in _source_files(root)]
    if not tables:
        raise StorageError(
            f"{root}: the source of the standard library is not here; install it, and try again"
        )
    # One chunk: Spark makes a task of each.
    return pa.concat_tables(tables).combine_chunks()


def _source_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py")):
        if not _SKIPPED.intersection(path.relative_to(root).parts):
            yield path


def _lines(path: Path, root: Path) -> pa.Table:
    # A few files of the tests are in other encodings, or in none.
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    relative = path.relative_to(root)
    package = relative.parts[0] if len(relative.parts) > 1 else SINGLE_FILES
    columns = [
        pa.repeat(package, len(kept)),
        pa.repeat(relative.as_posix(), len(kept)),
        pa.array([number for number, _ in kept], pa.int32()),
        pa.array([line for _, line in kept], pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
