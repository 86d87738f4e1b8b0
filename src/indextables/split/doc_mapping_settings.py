"""The doc mapping that a schema and the settings ask for.

Settings name a column and its choice (`typemap.message = text`), or a choice and its columns
(`typemap.text = title,message`). If the key ends with a column and the value is a choice, the first form applies,
even if the column is called `text`.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, TypeVar, cast

import pyarrow as pa
from msgspec.structs import replace

from indextables.config import Setting, SettingFamily, Settings, registry
from indextables.errors import InvalidOptionError, InvalidSchemaError
from indextables.schema import TableShape, find_column
from indextables.split.doc_mapping import (
    DEFAULT,
    RAW,
    RECORD_OPTIONS,
    DocMapping,
    FieldKind,
    FieldMapping,
    RecordOption,
    check_tokenizer,
    default_record,
    default_token_bytes,
)

T = TypeVar("T")

TYPEMAP_KINDS: Final = {
    "string": FieldKind.STRING,
    "text": FieldKind.TEXT,
    "json": FieldKind.JSON,
    "ip": FieldKind.IP,
}

# Longer decimals do not fit 64 bits.
_MAX_I64_DIGITS: Final = 18

# Fast by default: the kinds that queries sort and aggregate by.
_FAST_KINDS: Final = frozenset(FieldKind) - {
    FieldKind.TEXT,
    FieldKind.JSON,
    FieldKind.BYTES,
    FieldKind.NOTHING,
}

# The first test that is true decides the kind.
_KIND_OF_TYPE: tuple[tuple[Callable[[pa.DataType], bool], FieldKind], ...] = (
    (pa.types.is_boolean, FieldKind.BOOL),
    (pa.types.is_signed_integer, FieldKind.I64),
    (pa.types.is_floating, FieldKind.F64),
    (pa.types.is_string, FieldKind.STRING),
    (pa.types.is_binary, FieldKind.BYTES),
    (pa.types.is_date32, FieldKind.DATE),
    (pa.types.is_struct, FieldKind.JSON),
    (pa.types.is_list, FieldKind.JSON),
    (pa.types.is_map, FieldKind.JSON),
    (pa.types.is_null, FieldKind.NOTHING),
)


def mapping_from_settings(shape: TableShape, settings: Settings) -> DocMapping:
    """Return the mapping that a writer with these settings uses; the schema of `shape` is canonical.

    Raises InvalidOptionError for a setting that names an unknown column, type or tokenizer, or that does not fit its
    column, and InvalidSchemaError for a column that cannot be indexed.
    """
    choices = _Choices(shape.schema, settings)
    choices.refuse_analyzed({name.lower() for name in shape.partition_columns})
    fields = map(choices.field, shape.data_schema)
    if shape.stored_schema is None:
        return DocMapping(tuple(fields))
    return DocMapping(tuple(_with_stored_name(field, shape.stored_names[field.name]) for field in fields))


def _with_stored_name(field: FieldMapping, stored: str) -> FieldMapping:
    return field if stored == field.name else replace(field, stored_name=stored)


class _Choices:
    """The indexing settings, by column."""

    def __init__(self, schema: pa.Schema, settings: Settings) -> None:
        self.kinds = _by_column(schema, settings, registry.INDEXING_TYPEMAP, _read_kind)
        self.tokenizers = _by_column(schema, settings, registry.INDEXING_TOKENIZER, check_tokenizer)
        self.records = _by_column(schema, settings, registry.INDEXING_INDEX_RECORD_OPTION, _read_record)
        self.limits = _by_column(schema, settings, registry.INDEXING_TOKEN_LENGTH, _read_limit)
        self.fast = _named(schema, settings, registry.INDEXING_FAST_FIELDS)
        self.store_only = _named(schema, settings, registry.INDEXING_STORE_ONLY_FIELDS)
        self.index_only = _named(schema, settings, registry.INDEXING_INDEX_ONLY_FIELDS)
        self.text_limit = settings[registry.INDEXING_TEXT_MAX_TOKEN_LENGTH]
        self.text_record = cast("RecordOption", settings[registry.INDEXING_TEXT_INDEX_RECORD_OPTION])
        self.is_json_fast = settings[registry.INDEXING_JSON_MODE] == "full"

    def refuse_analyzed(self, partitions: set[str]) -> None:
        """Reject settings that would tokenize a partition column, which matches by its whole value."""
        for name, kind in self.kinds.items():
            if name.lower() in partitions and kind is not FieldKind.STRING:
                raise InvalidOptionError(
                    f"column {name!r} cannot be indexed as {kind.value}: it is a partition column, which is "
                    f"matched by its value; take it out of {registry.INDEXING_TYPEMAP.prefix}"
                )

    def field(self, column: pa.Field) -> FieldMapping:
        name, kind = column.name, self._kind(column)
        stored = name not in self.index_only
        if name in self.store_only:
            if not stored:
                raise InvalidOptionError(f"column {name!r} is both store-only and index-only; choose one")
            kind = FieldKind.NOTHING
        if kind is FieldKind.NOTHING:
            return FieldMapping(name, kind, fast=False, stored=stored)
        return FieldMapping(
            name,
            kind,
            tokenizer=self._tokenizer(name, kind),
            record=self._record(name, kind),
            max_token_bytes=self._limit(name, kind),
            fast=name in self.fast or kind in _FAST_KINDS or (kind is FieldKind.JSON and self.is_json_fast),
            stored=stored,
            is_array=kind is FieldKind.JSON and is_wrapped(column.type),
            scale=column.type.scale if pa.types.is_decimal(column.type) else 0,
        )

    def _kind(self, column: pa.Field) -> FieldKind:
        natural = kind_of_type(column)
        chosen = self.kinds.get(column.name)
        tokenizer = self.tokenizers.get(column.name)
        if chosen is None and natural is FieldKind.STRING and tokenizer is not None:
            chosen = FieldKind.TEXT
        if chosen is None or chosen is natural:
            return natural
        if natural is not FieldKind.STRING:
            raise InvalidOptionError(
                f"column {column.name!r} has the type {column.type} and cannot be indexed as {chosen.value}; "
                f"take it out of {registry.INDEXING_TYPEMAP.prefix}, or cast it to string"
            )
        return FieldKind.STRING if chosen is FieldKind.TEXT and tokenizer == RAW else chosen

    def _tokenizer(self, name: str, kind: FieldKind) -> str:
        if kind in (FieldKind.TEXT, FieldKind.JSON):
            return self.tokenizers.get(name, DEFAULT)
        if self.tokenizers.get(name, RAW) != RAW:
            raise InvalidOptionError(
                f"column {name!r} is indexed as {kind.value}, which has no tokenizer; "
                f"set {registry.INDEXING_TYPEMAP.prefix}{name} to text"
            )
        return RAW

    def _record(self, name: str, kind: FieldKind) -> RecordOption:
        general = self.text_record if kind in (FieldKind.TEXT, FieldKind.JSON) else default_record(kind)
        return self.records.get(name, general)

    def _limit(self, name: str, kind: FieldKind) -> int:
        general = self.text_limit if kind in (FieldKind.TEXT, FieldKind.JSON) else default_token_bytes(kind)
        return self.limits.get(name, general)


def kind_of_type(column: pa.Field) -> FieldKind:
    """Return the default kind of a column. Raises InvalidSchemaError for a type that tables do not have."""
    data_type = column.type
    if pa.types.is_timestamp(data_type) and data_type.unit == "us":
        return FieldKind.TIMESTAMP if data_type.tz else FieldKind.TIMESTAMP_NTZ
    if pa.types.is_decimal128(data_type):
        return FieldKind.DECIMAL if data_type.precision <= _MAX_I64_DIGITS else FieldKind.BIG_DECIMAL
    for is_type, kind in _KIND_OF_TYPE:
        if is_type(data_type):
            return kind
    raise InvalidSchemaError(
        f"column {column.name!r} has the type {data_type}, which cannot be indexed; cast it to a "
        f"supported type"
    )


def is_wrapped(data_type: pa.DataType) -> bool:
    """Return whether the values of a nested column are not JSON objects, and are stored under ARRAY_KEY."""
    if pa.types.is_map(data_type):
        return bool(pa.types.is_nested(data_type.key_type))
    return bool(pa.types.is_list(data_type))


def _by_column(
    schema: pa.Schema, settings: Settings, family: SettingFamily, read: Callable[[str], T]
) -> dict[str, T]:
    """Return the choices of a family by column; a key that names a column wins over one that names a choice."""
    by_choice: dict[str, T] = {}
    by_column: dict[str, T] = {}
    for ending, text in settings.family(family).items():
        key = f"{family.prefix}{ending}"
        column = find_column(schema, ending)
        choice = _tried(read, text)
        if column is not None and choice is not None:
            by_column[column.name] = choice
            continue
        choice = _tried(read, ending)
        if choice is not None:
            by_choice |= {_existing(schema, name, key): choice for name in _names(text)}
            continue
        # Neither form: report the error of the likelier one.
        _existing(schema, ending, key)
        try:
            read(text)
        except InvalidOptionError as error:
            raise InvalidOptionError(f"{key}: {error}") from error
    return by_choice | by_column


def _named(schema: pa.Schema, settings: Settings, setting: Setting[tuple[str, ...]]) -> frozenset[str]:
    return frozenset(_existing(schema, name, setting.key) for name in settings[setting])


def _existing(schema: pa.Schema, name: str, key: str) -> str:
    column = find_column(schema, name)
    if column is not None:
        return str(column.name)
    near = get_close_matches(name, schema.names, n=1)
    remedy = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
    raise InvalidOptionError(f"{key} names the column {name!r}, which does not exist; {remedy}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _tried(read: Callable[[str], T], text: str) -> T | None:
    try:
        return read(text)
    except InvalidOptionError:
        return None


def _read_kind(text: str) -> FieldKind:
    kind = TYPEMAP_KINDS.get(text.strip().lower())
    if kind is None:
        raise InvalidOptionError(f"type {text!r} does not exist; use one of {', '.join(TYPEMAP_KINDS)}")
    return kind


def _read_record(text: str) -> RecordOption:
    lowered = text.strip().lower()
    if lowered not in RECORD_OPTIONS:
        raise InvalidOptionError(
            f"record option {text!r} does not exist; use one of {', '.join(RECORD_OPTIONS)}"
        )
    return lowered


def _read_limit(text: str) -> int:
    return registry.INDEXING_TEXT_MAX_TOKEN_LENGTH.parse(text)
