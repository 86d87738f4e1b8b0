"""A value as the index holds it: what a query for that value has to look for."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import TypeAlias

import msgspec
import pyarrow as pa
import tantivy

from indextables._caching import shared_memo
from indextables.config import Settings
from indextables.errors import InvalidPredicateError
from indextables.predicates import Value
from indextables.schema.mapping_hash import doc_mapping_hash
from indextables.split.doc_mapping_json import fields_from_json, fields_to_json
from indextables.split.doc_mapping_settings import mapped_fields
from indextables.split.fields import (
    ARRAY_KEY,
    ROW_FIELD,
    FieldKind,
    FieldMapping,
    RecordOption,
    build_analyzer,
    register_analyzer,
)

IndexTerm: TypeAlias = bool | int | float | str | bytes

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Two's complement in 128 bits with its sign flipped: as hexadecimal digits, it sorts like the numbers.
BIG_DECIMAL_DIGITS = 32
_BIG_DECIMAL_ZERO = 1 << 127


def index_term(field: FieldMapping, value: Value) -> IndexTerm:
    """The term of a value in this field. Text is not analyzed: it is the term itself.

    `value` is of the column's type, as `predicates.bind` makes it. Raises InvalidPredicateError for a value
    of another type, for a field that has no terms of single values (JSON), and for one that is not indexed.
    """
    try:
        return _term(field, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InvalidPredicateError(
            f"column {field.name!r} is indexed as {field.kind.value}, which has no term for {value!r}"
        ) from error


def _term(field: FieldMapping, value: Value) -> IndexTerm:
    match field.kind, value:
        case (FieldKind.TEXT | FieldKind.STRING, str()):
            return value
        case FieldKind.IP, str():
            return str(ip_address(value))
        case FieldKind.BOOL, bool():
            return value
        case FieldKind.I64, int() if not isinstance(value, bool):
            return value
        case FieldKind.F64, float() | int() if not isinstance(value, bool):
            return float(value) + 0.0  # -0.0 becomes 0.0
        case ((FieldKind.TIMESTAMP | FieldKind.TIMESTAMP_NTZ), datetime()):
            return _microseconds(value)
        case FieldKind.DATE, date() if not isinstance(value, datetime):
            return (value - _EPOCH_DAY).days
        case FieldKind.DECIMAL, Decimal() | int():
            return _unscaled(Decimal(value), field.scale)
        case FieldKind.BIG_DECIMAL, Decimal() | int():
            key = _unscaled(Decimal(value), field.scale) + _BIG_DECIMAL_ZERO
            return f"{key:0{BIG_DECIMAL_DIGITS}x}"
        case FieldKind.BYTES, bytes():
            return value
    raise TypeError("no term")


def _microseconds(value: datetime) -> int:
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def _unscaled(value: Decimal, scale: int) -> int:
    # Arithmetic of decimals rounds to the digits of a context; that of integers does not.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeError("not a finite number")
    number = int("".join(map(str, digits)))
    shift = exponent + scale
    power: int = 10 ** abs(shift)
    unscaled, lost = (number * power, 0) if shift >= 0 else divmod(number, power)
    if lost:
        raise ValueError("more digits than the column has")
    return -unscaled if sign else unscaled


# How the columns of a table are indexed: one `FieldMapping` per column, together the `DocMapping`.
#
# A mapping is decided when rows are written, and recorded in the split and in the log, so that queries
# analyze text and encode values exactly as the index did. Partition columns are not in a split and have no
# mapping.


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


@shared_memo("split.doc_mapping.mappings", "doc mappings by their JSON", max_entries=64)
def _tantivy_schema(fields: tuple[FieldMapping, ...]) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for field in fields:
        field.add_to(builder)
    builder.add_integer_field(ROW_FIELD, fast=True)
    return builder.build()
