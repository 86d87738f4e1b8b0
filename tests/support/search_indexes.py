"""Small in-memory indexes for the search tests, with the documents of splits."""

import pyarrow as pa
import tantivy

from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import matching_rows
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import row_index


def text_field(name: str, tokenizer: str = "default", **options: object) -> FieldMapping:
    """A tokenized column with positions."""
    return FieldMapping(name, FieldKind.TEXT, tokenizer, **{"record": "position", "fast": False, **options})


def string_field(name: str, **options: object) -> FieldMapping:
    """A column of whole strings, as the default settings map it."""
    return FieldMapping(name, FieldKind.STRING, **{"max_token_bytes": 65_530, **options})


def json_field(name: str, tokenizer: str = "default", **options: object) -> FieldMapping:
    """A column of JSON objects."""
    return FieldMapping(name, FieldKind.JSON, tokenizer, **{"record": "position", **options})


def build_index(mapping: DocMapping, rows: pa.Table) -> tantivy.Searcher:
    """Return an in-memory index of rows, numbered from 0."""
    return row_index(rows, mapping)


def found_rows(index: tantivy.Searcher, mapping: DocMapping, text: str, **scope: object) -> list[int]:
    """Return the numbers of the rows that a query finds."""
    query = compile_query(parse_query(text), SearchScope(mapping, **scope))
    return matching_rows(index, query).tolist()
