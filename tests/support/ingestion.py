"""Files to index, and the request that indexes them."""

import bz2
import gzip
import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from backports import zstd

from indextables.ingest.operation import IngestRequest, IngestResult, ingest

COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstd.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def index(path: Path, *files: Path | str, **choices: Any) -> IngestResult:
    """Index files into the table at `path`."""
    return ingest(IngestRequest(places=tuple(map(str, files)), path=str(path), **choices))


def rows_of(result: IngestResult) -> list[dict[str, Any]]:
    """The rows of a table after an ingestion."""
    assert result.table is not None
    return result.table.to_arrow().to_pylist()


def json_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def text_file(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path
