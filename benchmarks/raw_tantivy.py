"""The raw library: the same documents in a plain Tantivy index."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import tantivy

from benchmarks.rows import TEXT_COLUMN
from indextables.config import Settings
from indextables.config.registry import INDEX_WRITER_HEAP_SIZE

_ROW = "row"
_HEAP_BYTES = Settings.resolve({})[INDEX_WRITER_HEAP_SIZE]

Search = Callable[[str], Sequence[object]]


def build_index(path: Path, rows: pa.Table) -> None:
    """Index these rows with the same fields, options and heap as ours, on one thread."""
    path.mkdir(parents=True)
    index = tantivy.Index(_schema(), path=str(path))
    writer = index.writer(_HEAP_BYTES, num_threads=1)
    columns = (
        rows["id"].to_pylist(),
        rows["level"].to_pylist(),
        rows["ts"].cast(pa.int64()).to_pylist(),
        rows[TEXT_COLUMN].to_pylist(),
    )
    for row, (id_, level, ts, message) in enumerate(zip(*columns, strict=True)):
        writer.add_document(tantivy.Document(id=id_, level=level, ts=ts, message=message, row=row))
    writer.commit()
    writer.wait_merging_threads()


def open_search(path: Path, limit: int) -> Search:
    """Search an open index: from the query text to the row numbers of the best hits."""
    index = tantivy.Index.open(str(path))
    index.reload()
    searcher = index.searcher()

    def search(text: str) -> Sequence[object]:
        query = index.parse_query(text, [TEXT_COLUMN])
        hits = searcher.search(query, limit, count=False).hits
        return searcher.fast_field_values(_ROW, [address for _, address in hits])

    return search


def open_sorted_search(path: Path, limit: int) -> Search:
    """Search an open index: from the query text to the ids of the latest hits."""
    index = tantivy.Index.open(str(path))
    index.reload()
    searcher = index.searcher()

    def search(text: str) -> Sequence[object]:
        query = index.parse_query(text, [TEXT_COLUMN])
        hits = searcher.search(query, limit, count=False, order_by_field="ts").hits
        return searcher.fast_field_values("id", [address for _, address in hits])

    return search


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", indexed=True, fast=True)
    builder.add_text_field("level", fast=True, tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("ts", indexed=True, fast=True)
    builder.add_text_field(TEXT_COLUMN, tokenizer_name="default", index_option="position")
    builder.add_integer_field(_ROW, fast=True)
    return builder.build()
