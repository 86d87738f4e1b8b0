"""The Tantivy index of a split written on the JVM, as its meta.json describes it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from indextables.errors import InvalidOptionError, SplitCorruptedError
from indextables.split.analyzers import DEFAULT, RAW, check_tokenizer
from indextables.split.fields import FieldKind, FieldMapping, default_record, default_token_bytes
from indextables.split.mapping import DocMapping
from indextables.split.mapping_settings import is_wrapped, kind_of_type


class IndexedField(msgspec.Struct, frozen=True):
    """A field of a foreign index."""

    name: str
    type: str
    tokenizer: str | None
    is_stored: bool
    is_fast: bool


class IndexMeta(msgspec.Struct, frozen=True):
    """What meta.json says: the fields, and the size of each segment."""

    fields: Mapping[str, IndexedField]
    segment_sizes: tuple[int, ...]
    deleted_docs: int

    @property
    def num_docs(self) -> int:
        """How many documents there are that were not deleted."""
        return sum(self.segment_sizes) - self.deleted_docs

    def find(self, name: str) -> IndexedField | None:
        """The field of a column: of its name, or else of the same without regard to case."""
        lowered = name.lower()
        near = (field for key, field in self.fields.items() if key.lower() == lowered)
        return self.fields.get(name) or next(near, None)


def decode_meta(data: bytes, place: str) -> IndexMeta:
    """Read a meta.json. Raises SplitCorruptedError if it is none."""
    try:
        document = orjson.loads(data)
        fields = {entry["name"]: _field(entry) for entry in document["schema"]}
        sizes = tuple(int(segment["max_doc"]) for segment in document["segments"])
        deletes = (segment.get("deletes") or {} for segment in document["segments"])
        deleted = sum(int(each.get("num_deleted_docs", 0)) for each in deletes)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SplitCorruptedError(f"{place}: meta.json cannot be read: {error!r}") from error
    return IndexMeta(fields, sizes, deleted)


def foreign_mapping(meta: IndexMeta, schema: pa.Schema, partition_columns: Sequence[str]) -> DocMapping:
    """How the rows of a foreign split are indexed here: as they were there, as far as the columns' types allow."""
    columns = [column for column in schema if column.name not in partition_columns]
    return DocMapping(tuple(_mapped(column, meta.find(column.name)) for column in columns))


def _field(entry: dict[str, Any]) -> IndexedField:
    options = entry.get("options") or {}
    indexing = options.get("indexing") or {}
    return IndexedField(
        str(entry["name"]),
        str(entry["type"]),
        indexing.get("tokenizer"),
        options.get("stored") is True,
        bool(options.get("fast")),
    )


def _mapped(column: pa.Field, field: IndexedField | None) -> FieldMapping:
    kind = kind_of_type(column)
    tokenizer = _tokenizer(field, kind)
    if field is not None and pa.types.is_string(column.type):
        if field.type == "ip_addr":
            kind = FieldKind.IP
        elif field.type == "json_object":
            kind, tokenizer = FieldKind.JSON, DEFAULT
        elif tokenizer != RAW:
            kind = FieldKind.TEXT
    return FieldMapping(
        column.name,
        kind,
        tokenizer=tokenizer,
        record=default_record(kind),
        max_token_bytes=default_token_bytes(kind),
        fast=kind not in (FieldKind.TEXT, FieldKind.BYTES, FieldKind.NOTHING),
        is_array=kind is FieldKind.JSON and is_wrapped(column.type),
        scale=column.type.scale if pa.types.is_decimal(column.type) else 0,
    )


def _tokenizer(field: IndexedField | None, kind: FieldKind) -> str:
    if kind is FieldKind.JSON:
        return DEFAULT
    if kind is not FieldKind.STRING or field is None or field.tokenizer is None:
        return RAW
    try:
        return check_tokenizer(field.tokenizer)
    except InvalidOptionError:
        # A tokenizer of theirs that is not known here: words are the best guess.
        return DEFAULT
