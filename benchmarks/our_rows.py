"""Our side of the row benchmarks: tables with splits, searches, scans and sizes."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from benchmarks.rows import SCHEMA, TEXT_COLUMN
from indextables import IndexTable
from indextables.config import Settings
from indextables.ops.search import SearchRequest, best_hits
from indextables.storage import open_store
from indextables.table import TableContext, load_snapshot

_CACHE_PATH = "spark.indextables.cache.disk.path"


def create_table(path: Path) -> IndexTable:
    """An empty table."""
    return IndexTable.create(str(path), SCHEMA, text=[TEXT_COLUMN])


def build_table(path: Path, rows: pa.Table) -> None:
    """Build a table with these rows in one split."""
    create_table(path).append(rows)


def open_table(path: Path | str, cache: Path, storage_options: Mapping[str, str] | None = None) -> IndexTable:
    """Open the table, with an index cache in this folder."""
    return IndexTable(str(path), storage_options=storage_options, options={_CACHE_PATH: str(cache)})


def search(table: IndexTable, words: str, limit: int) -> pa.Table:
    """The best rows for some terms in the messages, with all columns."""
    return table.search(words, fields=[TEXT_COLUMN], limit=limit)


def latest_ids(table: IndexTable, words: str, limit: int) -> list[int]:
    """The ids of the latest rows for some terms in the messages."""
    found = table.search(words, columns=["id"], fields=[TEXT_COLUMN], limit=limit, sort="-ts")
    ids: list[int] = found["id"].to_pylist()
    return ids


def counted_search(table: IndexTable, words: str, limit: int) -> pa.Table:
    """What `search` returns, with the number of all hits."""
    return table.search(words, fields=[TEXT_COLUMN], limit=limit, count=True)


def open_search(path: Path, cache: Path, limit: int) -> Callable[[str], list[int]]:
    """Search an open table: from the query text to the row numbers of the best hits."""
    context = TableContext(open_store(str(path)), Settings.resolve({_CACHE_PATH: str(cache)}))
    snapshot = load_snapshot(context)

    def search_rows(text: str) -> list[int]:
        question = SearchRequest.of(snapshot, text, None, [TEXT_COLUMN])
        _, hits = best_hits(snapshot, question, limit)
        rows: list[int] = hits.rows.tolist()
        return rows

    return search_rows


def split_file(path: Path) -> Path:
    """The file of the table's only split."""
    (split,) = path.glob("*.split")
    return split
