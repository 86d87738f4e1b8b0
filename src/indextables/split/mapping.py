"""How the columns of a table are indexed: one `FieldMapping` per column, together the `DocMapping`.

A mapping is decided when rows are written, and recorded in the split and in the log, so that queries analyze
text and encode values exactly as the index did. Partition columns are not in a split and have no mapping.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import pyarrow as pa
import tantivy

from indextables.config import Settings
from indextables.schema.mapping_hash import doc_mapping_hash
from indextables.split.analyzers import build_analyzer, register_analyzer
from indextables.split.fields import ARRAY_KEY, ROW_FIELD, FieldKind, FieldMapping, RecordOption
from indextables.split.mapping_json import fields_from_json, fields_to_json
from indextables.split.mapping_settings import mapped_fields
from indextables.split.terms import IndexTerm, index_term

__all__ = [
    "ARRAY_KEY",
    "ROW_FIELD",
    "DocMapping",
    "FieldKind",
    "FieldMapping",
    "IndexTerm",
    "RecordOption",
    "index_term",
]


class DocMapping(msgspec.Struct, frozen=True):
    """The mapping of every column of a split, in the order of the schema."""

    fields: tuple[FieldMapping, ...]

    @classmethod
    def from_schema(
        cls, schema: pa.Schema, partition_columns: Sequence[str], settings: Settings
    ) -> "DocMapping":
        """The mapping that a writer with these settings uses.

        Raises InvalidOptionError for a setting that names an unknown column, type or tokenizer, or that does
        not fit its column, and InvalidSchemaError for a column that cannot be indexed.
        """
        return cls(mapped_fields(schema, partition_columns, settings))

    @classmethod
    def from_json(cls, text: str | bytes) -> "DocMapping":
        """The mapping of a doc mapping's JSON, ours or another writer's.

        Types that are not known here are not indexed. Raises InvalidSchemaError if it is no mapping at all.
        """
        return cls(fields_from_json(text))

    def to_json(self) -> str:
        """The mapping as the log keeps it: the keys of other writers, and our own where those say too little."""
        return fields_to_json(self.fields)

    @property
    def hash(self) -> str:
        """The hash by which the log refers to this mapping (docMappingRef)."""
        return doc_mapping_hash(self.to_json())

    def __iter__(self) -> Iterator[FieldMapping]:
        return iter(self.fields)

    def find(self, name: str) -> FieldMapping | None:
        """The mapping of a column: spelled exactly so, or else the same without regard to case."""
        exact = next((field for field in self.fields if field.name == name), None)
        lowered = name.lower()
        return exact or next((field for field in self.fields if field.name.lower() == lowered), None)

    def indexed_fields(self) -> tuple[FieldMapping, ...]:
        """The fields that an index has, in the order of its schema."""
        return tuple(field for field in self.fields if field.is_indexed)

    def tantivy_schema(self) -> tantivy.Schema:
        """The schema of an index with this mapping; the field of row numbers comes last."""
        return _tantivy_schema(self.indexed_fields())

    def register_tokenizers(self, index: tantivy.Index) -> None:
        """Make the analyzers of this mapping known to an index: before it is written, and before queries."""
        needed = {(field.tokenizer, field.max_token_bytes) for field in self.fields if field.is_analyzed}
        for tokenizer, max_token_bytes in sorted(needed):
            register_analyzer(index, tokenizer, max_token_bytes)

    def analyzer(self, field: FieldMapping) -> tantivy.TextAnalyzer:
        """The analyzer of a field, which turns query text into the terms that the index holds."""
        return build_analyzer(field.tokenizer, field.max_token_bytes)


@lru_cache(maxsize=64)
def _tantivy_schema(fields: tuple[FieldMapping, ...]) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for field in fields:
        field.add_to(builder)
    builder.add_integer_field(ROW_FIELD, fast=True)
    return builder.build()
