"""The doc mapping: how each column of a split is indexed (kind, analyzer, options), and its JSON form.

A writer decides the mapping and records it in the split and in the log, so queries analyze text and encode values
exactly as the index did. Partition columns are not stored in a split and have no mapping.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
import orjson
import tantivy
from msgspec.structs import replace
from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from indextables._caching import shared_memo
from indextables.errors import InvalidOptionError, InvalidSchemaError
from indextables.schema import TableShape
from indextables.schema.spark_json import doc_mapping_hash

# The row number of a document in its split, as a fast i64 field. No column can have this field name, because
# `FieldMapping.index_name` escapes names that start with a tilde.
ROW_FIELD: Final = "~row"

# Tantivy's JSON fields hold objects, so array elements are stored under this key: `tags._values:red`.
# Maps with nested keys are stored the same way, as a list of {"key": …, "value": …}.
ARRAY_KEY: Final = "_values"

RecordOption = Literal["basic", "freq", "position"]
RECORD_OPTIONS: tuple[RecordOption, ...] = ("basic", "freq", "position")

RAW: Final = "raw"
DEFAULT: Final = "default"

# These tokenizers turn a text into one term.
_SINGLE_TERMS: Final = frozenset({RAW, "lowercase"})

DEFAULT_TOKEN_BYTES: Final = 255
# The longest term that Tantivy indexes; it skips longer ones.
MAX_TOKEN_BYTES: Final = 65_530


class FieldKind(Enum):
    """What the terms of a field are."""

    TEXT = "text"  # tokens of a text
    STRING = "string"  # the whole text as one term
    JSON = "json"  # structs, arrays, maps, and text that holds JSON objects
    IP = "ip"
    I64 = "i64"  # all integers
    F64 = "f64"  # -0.0 is stored as 0.0; every NaN is stored as one value that sorts above infinity
    BOOL = "bool"
    DATE = "date"  # i64: days since 1970
    TIMESTAMP = "timestamp"  # i64: microseconds since 1970 in UTC
    TIMESTAMP_NTZ = "timestamp_ntz"  # i64: microseconds since 1970 without a zone
    DECIMAL = "decimal"  # i64: the unscaled number, up to 18 digits
    BIG_DECIMAL = "big_decimal"  # 32 hexadecimal digits that sort like the numbers
    BYTES = "bytes"
    NOTHING = "nothing"  # not indexed


_I64_KINDS: Final = frozenset(
    {FieldKind.I64, FieldKind.DATE, FieldKind.TIMESTAMP, FieldKind.TIMESTAMP_NTZ, FieldKind.DECIMAL}
)
# Text of these kinds passes through an analyzer.
_ANALYZED_KINDS: Final = frozenset({FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON})

_ESCAPE: Final = "~"
# Tantivy rejects names that start with a hyphen, and loses fast fields whose name contains a NUL.
_UNUSABLE_NAME: Final = re.compile(r"^[-~]|[\x00-\x1f]")


class FieldMapping(msgspec.Struct, frozen=True):
    """How one column is indexed.

    `tokenizer`, `record` and `max_token_bytes` apply to text, strings and JSON. `is_array` means that the values of a
    JSON column are stored under ARRAY_KEY. `scale` belongs to decimals. Rows keep a column even if it is not
    `stored`, because MERGE SPLITS indexes them again.

    `stored_name` is the name that the index has for the column, if that is another one. A field with `is_dropped` is in
    the index, but the table has lost the column.
    """

    name: str
    kind: FieldKind
    tokenizer: str = RAW
    record: RecordOption = "basic"
    max_token_bytes: int = DEFAULT_TOKEN_BYTES
    fast: bool = True
    stored: bool = True
    is_array: bool = False
    scale: int = 0
    stored_name: str | None = None
    is_dropped: bool = False

    @property
    def is_indexed(self) -> bool:
        return self.kind is not FieldKind.NOTHING

    @property
    def is_i64(self) -> bool:
        """Whether the index stores 64-bit integers."""
        return self.kind in _I64_KINDS

    @property
    def is_analyzed(self) -> bool:
        """Whether text passes through an analyzer before it is indexed."""
        return self.kind in _ANALYZED_KINDS

    @property
    def has_norms(self) -> bool:
        """Whether the index stores the number of terms of each value, for scores.

        It is one where a value is a single term, and Tantivy does not store it for JSON.
        """
        return self.kind is FieldKind.TEXT and self.tokenizer not in _SINGLE_TERMS

    @property
    def index_name(self) -> str:
        """The field's name in the index: the column's name, escaped where Tantivy rejects it."""
        name = self.stored_name or self.name
        if _UNUSABLE_NAME.search(name):
            return _ESCAPE + name.encode("unicode_escape").decode()
        return name

    @property
    def analyzer(self) -> str:
        """The analyzer's name in the index; `DocMapping.register_tokenizers` registers it."""
        return _analyzer_name(self.tokenizer, self.max_token_bytes)

    @property
    def field_type(self) -> tantivy.FieldType:
        """Tantivy's type of the field, for range queries. A field of kind NOTHING has none."""
        return tantivy.FieldType.Integer if self.is_i64 else _FIELD_TYPES[self.kind]

    def add_to(self, builder: tantivy.SchemaBuilder) -> None:
        """Add the field to a Tantivy schema, if it is indexed."""
        name, fast = self.index_name, self.fast
        if self.is_i64:
            builder.add_integer_field(name, indexed=True, fast=fast)
            return
        match self.kind:
            case FieldKind.TEXT | FieldKind.STRING:
                builder.add_text_field(
                    name, fast=fast, tokenizer_name=self.analyzer, index_option=self.record
                )
            case FieldKind.BIG_DECIMAL:
                builder.add_text_field(name, fast=fast, tokenizer_name=RAW, index_option="basic")
            case FieldKind.JSON:
                builder.add_json_field(
                    name,
                    fast=fast,
                    tokenizer_name=self.analyzer,
                    index_option=self.record,
                    expand_dots_enabled=True,
                )
            case FieldKind.IP:
                builder.add_ip_addr_field(name, indexed=True, fast=fast)
            case FieldKind.F64:
                builder.add_float_field(name, indexed=True, fast=fast)
            case FieldKind.BOOL:
                builder.add_boolean_field(name, indexed=True, fast=fast)
            case FieldKind.BYTES:
                builder.add_bytes_field(name, indexed=True, fast=fast)


_FIELD_TYPES: Final = {
    FieldKind.TEXT: tantivy.FieldType.Text,
    FieldKind.STRING: tantivy.FieldType.Text,
    FieldKind.BIG_DECIMAL: tantivy.FieldType.Text,
    FieldKind.JSON: tantivy.FieldType.Json,
    FieldKind.IP: tantivy.FieldType.IpAddr,
    FieldKind.F64: tantivy.FieldType.Float,
    FieldKind.BOOL: tantivy.FieldType.Boolean,
    FieldKind.BYTES: tantivy.FieldType.Bytes,
}


def default_token_bytes(kind: FieldKind) -> int:
    """Return the default limit on token length; whole strings have only Tantivy's own limit."""
    return MAX_TOKEN_BYTES if kind is FieldKind.STRING else DEFAULT_TOKEN_BYTES


def default_record(kind: FieldKind) -> RecordOption:
    """Return what the index records of a term by default: positions where phrases make sense."""
    return "position" if kind in (FieldKind.TEXT, FieldKind.JSON) else "basic"


class DocMapping(msgspec.Struct, frozen=True):
    """The mapping of every column of a split, in schema order.

    What writers record has stored names; what readers use has the names of the table (`in_table`).
    """

    fields: tuple[FieldMapping, ...]

    @classmethod
    def from_json(cls, text: str | bytes) -> "DocMapping":
        """Parse the JSON form, as written here or by another writer.

        Columns of unknown types are not indexed. Raises InvalidSchemaError if the text is not a doc mapping.
        """
        return cls(_fields_from_json(text))

    def to_json(self) -> str:
        """Return the JSON form that the log records."""
        return _fields_to_json(self.fields)

    @property
    def hash(self) -> str:
        """The hash by which the log refers to this mapping (docMappingRef)."""
        return doc_mapping_hash(self.to_json())

    def __iter__(self) -> Iterator[FieldMapping]:
        """Iterate over the fields of columns that the table has."""
        return (field for field in self.fields if not field.is_dropped)

    def find(self, name: str) -> FieldMapping | None:
        """Return the mapping of a column; an exact match wins over one that ignores case."""
        exact = next((field for field in self if field.name == name), None)
        lowered = name.lower()
        return exact or next((field for field in self if field.name.lower() == lowered), None)

    def in_table(self, shape: TableShape) -> "DocMapping":
        """Return a recorded mapping with the names that the columns have in the table today."""
        columns = {stored: name for name, stored in shape.stored_names.items()}
        if all(columns.get(field.name) == field.name for field in self.fields):
            return self
        lowered = {stored.lower(): name for stored, name in columns.items()}
        return DocMapping(
            tuple(
                _in_table(field, columns.get(field.name) or lowered.get(field.name.lower()))
                for field in self.fields
            )
        )

    def stored(self) -> "DocMapping":
        """Return the mapping with stored names, as writers record it."""
        if not any(field.stored_name for field in self.fields):
            return self
        fields = (replace(field, name=field.stored_name or field.name, stored_name=None) for field in self)
        return DocMapping(tuple(fields))

    def indexed_fields(self) -> tuple[FieldMapping, ...]:
        """Return the fields of the index, in the order of its schema."""
        return tuple(field for field in self.fields if field.is_indexed)

    def tantivy_schema(self) -> tantivy.Schema:
        """Return the schema of an index with this mapping; the row number is the last field."""
        return _tantivy_schema(self.indexed_fields())

    def register_tokenizers(self, index: tantivy.Index) -> None:
        """Register the analyzers of this mapping with an index, before it is written or queried."""
        needed = {(field.tokenizer, field.max_token_bytes) for field in self.fields if field.is_analyzed}
        for tokenizer, max_token_bytes in sorted(needed):
            _register_analyzer(index, tokenizer, max_token_bytes)


def _in_table(field: FieldMapping, name: str | None) -> FieldMapping:
    if name is None:
        return replace(field, is_dropped=True)
    return field if name == field.name else replace(field, name=name, stored_name=field.name)


@shared_memo("split.doc_mapping.schemas", "Tantivy schemas by their fields", max_entries=64)
def _tantivy_schema(fields: tuple[FieldMapping, ...]) -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for field in fields:
        field.add_to(builder)
    builder.add_integer_field(ROW_FIELD, fast=True)
    return builder.build()


# Analyzers. A name that Tantivy defines means the same here, except for the limit on token length: Tantivy silently
# drops tokens of 40 bytes and more. A limit other than the default is part of the analyzer's name, so an index and
# its queries cannot disagree.

STEMMED_LANGUAGES: Final = {
    "ar_stem": "arabic",
    "da_stem": "danish",
    "nl_stem": "dutch",
    "en_stem": "english",
    "fi_stem": "finnish",
    "fr_stem": "french",
    "de_stem": "german",
    "el_stem": "greek",
    "hu_stem": "hungarian",
    "it_stem": "italian",
    "no_stem": "norwegian",
    "pt_stem": "portuguese",
    "ro_stem": "romanian",
    "ru_stem": "russian",
    "es_stem": "spanish",
    "sv_stem": "swedish",
    "ta_stem": "tamil",
    "tr_stem": "turkish",
}

# A tokenizer, and the filters that run after the one that drops long tokens.
_Pipeline: TypeAlias = tuple[Tokenizer, tuple[Filter, ...]]

_PIPELINES: Final[dict[str, Callable[[], _Pipeline]]] = {
    DEFAULT: lambda: (Tokenizer.simple(), (Filter.lowercase(),)),
    RAW: lambda: (Tokenizer.raw(), ()),
    "simple": lambda: (Tokenizer.simple(), ()),
    "whitespace": lambda: (Tokenizer.whitespace(), ()),
    "lowercase": lambda: (Tokenizer.raw(), (Filter.lowercase(),)),
    "ascii_fold": lambda: (Tokenizer.simple(), (Filter.lowercase(), Filter.ascii_fold())),
    "ngram": lambda: (Tokenizer.ngram(2, 3), (Filter.lowercase(),)),
    "edge_ngram": lambda: (Tokenizer.ngram(1, 15, prefix_only=True), (Filter.lowercase(),)),
}

TOKENIZERS: tuple[str, ...] = (*_PIPELINES, *STEMMED_LANGUAGES)


def check_tokenizer(name: str) -> str:
    """Return the canonical spelling of a tokenizer. Raises InvalidOptionError for an unknown one."""
    lowered = name.strip().lower()
    if lowered not in TOKENIZERS:
        raise InvalidOptionError(f"tokenizer {name!r} does not exist; use one of {', '.join(TOKENIZERS)}")
    return lowered


def build_analyzer(tokenizer: str, max_token_bytes: int) -> TextAnalyzer:
    """Build the analyzer for indexing and for queries. Raises InvalidOptionError for an unknown tokenizer."""
    name = check_tokenizer(tokenizer)
    source, filters = _stemming_pipeline(name) if name in STEMMED_LANGUAGES else _PIPELINES[name]()
    builder = TextAnalyzerBuilder(source)
    if max_token_bytes < MAX_TOKEN_BYTES:
        # Tantivy keeps tokens that are shorter than the limit.
        builder = builder.filter(Filter.remove_long(max_token_bytes + 1))
    for each in filters:
        builder = builder.filter(each)
    return builder.build()


def _stemming_pipeline(name: str) -> _Pipeline:
    return Tokenizer.simple(), (Filter.lowercase(), Filter.stemmer(STEMMED_LANGUAGES[name]))


def _analyzer_name(tokenizer: str, max_token_bytes: int) -> str:
    default = MAX_TOKEN_BYTES if tokenizer == RAW else DEFAULT_TOKEN_BYTES
    return tokenizer if max_token_bytes == default else f"{tokenizer}_{max_token_bytes}"


def _register_analyzer(index: tantivy.Index, tokenizer: str, max_token_bytes: int) -> None:
    """Register an analyzer for the terms and for the fast fields of an index."""
    if tokenizer == RAW and max_token_bytes == MAX_TOKEN_BYTES:
        return  # Tantivy's built-in one does the same, faster.
    name = _analyzer_name(tokenizer, max_token_bytes)
    analyzer = build_analyzer(tokenizer, max_token_bytes)
    index.register_tokenizer(name, analyzer)
    index.register_fast_field_tokenizer(name, analyzer)


# The JSON form: a list of fields with the keys that other writers use. Our own keys (`kind`, `scale`, `array`,
# `record`, `tokenLength`) are written only where they add information, so a mapping that other writers can express
# has the same JSON, and the same hash, as theirs.

# The type that a kind is written as. Where it does not determine the kind, `kind` is written, too.
_TYPES: Final = {
    FieldKind.TEXT: "text",
    FieldKind.STRING: "text",
    FieldKind.JSON: "json",
    FieldKind.IP: "ip",
    FieldKind.I64: "i64",
    FieldKind.F64: "f64",
    FieldKind.BOOL: "bool",
    FieldKind.DATE: "i64",
    FieldKind.TIMESTAMP: "i64",
    FieldKind.TIMESTAMP_NTZ: "i64",
    FieldKind.DECIMAL: "i64",
    FieldKind.BIG_DECIMAL: "text",
    FieldKind.BYTES: "bytes",
    FieldKind.NOTHING: "none",
}
_KINDS_WRITTEN_EXPLICITLY: Final = frozenset(
    {
        FieldKind.DATE,
        FieldKind.TIMESTAMP,
        FieldKind.TIMESTAMP_NTZ,
        FieldKind.DECIMAL,
        FieldKind.BIG_DECIMAL,
    }
)

# The type names of all writers.
_KINDS: Final = {
    "text": FieldKind.TEXT,
    "str": FieldKind.TEXT,
    "json": FieldKind.JSON,
    "json_object": FieldKind.JSON,
    "object": FieldKind.JSON,
    "ip": FieldKind.IP,
    "ip_addr": FieldKind.IP,
    "i64": FieldKind.I64,
    "u64": FieldKind.I64,
    "f64": FieldKind.F64,
    "bool": FieldKind.BOOL,
    "boolean": FieldKind.BOOL,
    "date": FieldKind.TIMESTAMP,
    "datetime": FieldKind.TIMESTAMP,
    "bytes": FieldKind.BYTES,
}


def _fields_to_json(fields: Iterable[FieldMapping]) -> str:
    documents = [_to_document(field) for field in fields]
    return orjson.dumps(documents, option=orjson.OPT_SORT_KEYS).decode()


def _to_document(field: FieldMapping) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": field.name,
        "type": _TYPES[field.kind],
        "fast": field.fast,
        "indexed": field.is_indexed,
        "stored": field.stored,
    }
    if field.kind in _KINDS_WRITTEN_EXPLICITLY:
        document["kind"] = field.kind.value
    if field.kind in (FieldKind.DECIMAL, FieldKind.BIG_DECIMAL):
        document["scale"] = field.scale
    if field.is_array:
        document["array"] = True
    if field.is_analyzed:
        document["tokenizer"] = field.tokenizer
        if field.record != default_record(field.kind):
            document["record"] = field.record
        if field.max_token_bytes != default_token_bytes(field.kind):
            document["tokenLength"] = field.max_token_bytes
    return document


def _fields_from_json(text: str | bytes) -> tuple[FieldMapping, ...]:
    try:
        documents = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidSchemaError(f"the doc mapping is not JSON: {error}") from error
    if not isinstance(documents, list):
        raise InvalidSchemaError('the doc mapping is not a list of fields, [{"name":…,"type":…}]')
    fields = tuple(map(_from_document, documents))
    if len({field.name for field in fields}) != len(fields):
        raise InvalidSchemaError("the doc mapping names a field twice")
    return fields


def _from_document(document: object) -> FieldMapping:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not document["name"]:
        raise InvalidSchemaError("the doc mapping has a field that is not an object with a name")
    name = document["name"]
    kind = _kind(document)
    if kind is FieldKind.NOTHING:
        return FieldMapping(name, kind, fast=False, stored=document.get("stored") is not False)
    return FieldMapping(
        name,
        kind,
        tokenizer=_tokenizer(name, document, kind),
        record=_record(document, kind),
        max_token_bytes=_whole_number(document, "tokenLength", default_token_bytes(kind), MAX_TOKEN_BYTES),
        fast=document.get("fast") is True,
        stored=document.get("stored") is not False,
        is_array=document.get("array") is True,
        scale=_whole_number(document, "scale", 0, 38),
    )


def _kind(document: dict[str, Any]) -> FieldKind:
    if document.get("indexed") is False:
        return FieldKind.NOTHING
    if "kind" in document:
        try:
            return FieldKind(document["kind"])
        except ValueError:
            return FieldKind.NOTHING
    given = document.get("type")
    kind = _KINDS.get(given, FieldKind.NOTHING) if isinstance(given, str) else FieldKind.NOTHING
    return FieldKind.STRING if kind is FieldKind.TEXT and document.get("tokenizer") == RAW else kind


def _tokenizer(name: str, document: dict[str, Any], kind: FieldKind) -> str:
    default = DEFAULT if kind in (FieldKind.TEXT, FieldKind.JSON) else RAW
    try:
        return check_tokenizer(str(document.get("tokenizer") or default))
    except InvalidOptionError as error:
        raise InvalidSchemaError(f"the doc mapping's field {name!r}: {error}") from error


def _record(document: dict[str, Any], kind: FieldKind) -> RecordOption:
    given = document.get("record")
    return cast("RecordOption", given) if given in RECORD_OPTIONS else default_record(kind)


def _whole_number(document: dict[str, Any], key: str, default: int, highest: int) -> int:
    given = document.get(key, default)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= highest:
        raise InvalidSchemaError(f"the doc mapping's field {document['name']!r} has {key} {given!r}")
    return given
