"""Small indexes for the tests of search, built and opened as those of splits are."""

import tempfile
from pathlib import Path

import pyarrow as pa
import tantivy

from indextables.search import SearchScope, compile_query, matching_rows, parse_query
from indextables.split.index_builder import MIN_HEAP_BYTES, IndexBuilder
from indextables.split.index_reader import open_index
from indextables.split.mapping import DocMapping, FieldKind, FieldMapping

# Where there is a file system in memory, nothing waits for a disk.
MEMORY = Path("/dev/shm")


def text_field(name: str, tokenizer: str = "default", **options: object) -> FieldMapping:
    """A tokenised column with positions."""
    return FieldMapping(name, FieldKind.TEXT, tokenizer, **{"record": "position", "fast": False, **options})


def string_field(name: str, **options: object) -> FieldMapping:
    """A column of whole texts, as settings make it."""
    return FieldMapping(name, FieldKind.STRING, **{"max_token_bytes": 65_530, **options})


def json_field(name: str, tokenizer: str = "default", **options: object) -> FieldMapping:
    """A column of JSON objects."""
    return FieldMapping(name, FieldKind.JSON, tokenizer, **{"record": "position", **options})


def build_index(mapping: DocMapping, rows: pa.Table) -> tantivy.Index:
    """An index over the rows, which are numbered from 0."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        directory = Path(name)
        builder = IndexBuilder(directory, mapping, MIN_HEAP_BYTES)
        for batch in rows.to_batches():
            builder.add(batch)
        builder.finish()
        return open_index(directory, mapping, name)


def found_rows(index: tantivy.Index, mapping: DocMapping, text: str, **scope: object) -> list[int]:
    """The numbers of the rows that a query finds."""
    query = compile_query(parse_query(text), SearchScope(mapping, **scope))
    return matching_rows(index, query).tolist()
