"""Text analyzers by name: the tokenizers that a mapping may choose, with a limit on the length of tokens.

The names that Tantivy has itself mean the same here, but for the limit: Tantivy drops tokens of 40 bytes and
more without a word. An analyzer with another limit than the usual one has the limit in its name, so that an
index and its queries can only agree.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import Final, Literal, TypeAlias

import msgspec
import tantivy
from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from indextables.errors import InvalidOptionError

RAW: Final = "raw"
DEFAULT: Final = "default"

DEFAULT_TOKEN_BYTES: Final = 255
# What a term of Tantivy may hold at most; longer ones are left out of the index.
MAX_TOKEN_BYTES: Final = 65_530

STEMMED_LANGUAGES: dict[str, str] = {
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

# A tokenizer, and the filters that follow the one for long tokens.
_Parts: TypeAlias = tuple[Tokenizer, tuple[Filter, ...]]

_PLAIN: dict[str, Callable[[], _Parts]] = {
    DEFAULT: lambda: (Tokenizer.simple(), (Filter.lowercase(),)),
    RAW: lambda: (Tokenizer.raw(), ()),
    "simple": lambda: (Tokenizer.simple(), ()),
    "whitespace": lambda: (Tokenizer.whitespace(), ()),
    "lowercase": lambda: (Tokenizer.raw(), (Filter.lowercase(),)),
    "ascii_fold": lambda: (Tokenizer.simple(), (Filter.lowercase(), Filter.ascii_fold())),
    "ngram": lambda: (Tokenizer.ngram(2, 3), (Filter.lowercase(),)),
    "edge_ngram": lambda: (Tokenizer.ngram(1, 15, prefix_only=True), (Filter.lowercase(),)),
}

TOKENIZERS: tuple[str, ...] = (*_PLAIN, *STEMMED_LANGUAGES)


def check_tokenizer(name: str) -> str:
    """The tokenizer as it is spelled here. Raises InvalidOptionError for one that does not exist."""
    lowered = name.strip().lower()
    if lowered not in TOKENIZERS:
        raise InvalidOptionError(f"tokenizer {name!r} does not exist; use one of {', '.join(TOKENIZERS)}")
    return lowered


def analyzer_name(tokenizer: str, max_token_bytes: int) -> str:
    """The name under which an index knows a tokenizer with this limit."""
    usual = MAX_TOKEN_BYTES if tokenizer == RAW else DEFAULT_TOKEN_BYTES
    return tokenizer if max_token_bytes == usual else f"{tokenizer}_{max_token_bytes}"


def build_analyzer(tokenizer: str, max_token_bytes: int) -> TextAnalyzer:
    """The analyzer that indexes and queries use. Raises InvalidOptionError for an unknown tokenizer."""
    name = check_tokenizer(tokenizer)
    source, filters = _stemmed(name) if name in STEMMED_LANGUAGES else _PLAIN[name]()
    builder = TextAnalyzerBuilder(source)
    if max_token_bytes < MAX_TOKEN_BYTES:
        # Tantivy keeps what is shorter than the limit that it is given.
        builder = builder.filter(Filter.remove_long(max_token_bytes + 1))
    for each in filters:
        builder = builder.filter(each)
    return builder.build()


def register_analyzer(index: tantivy.Index, tokenizer: str, max_token_bytes: int) -> None:
    """Make an analyzer known to an index, for its terms and for its fast fields."""
    if tokenizer == RAW and max_token_bytes == MAX_TOKEN_BYTES:
        return  # Tantivy's own does the same, faster
    name = analyzer_name(tokenizer, max_token_bytes)
    analyzer = build_analyzer(tokenizer, max_token_bytes)
    index.register_tokenizer(name, analyzer)
    index.register_fast_field_tokenizer(name, analyzer)


def _stemmed(name: str) -> _Parts:
    return Tokenizer.simple(), (Filter.lowercase(), Filter.stemmer(STEMMED_LANGUAGES[name]))


# One column in the index: what kind of terms it has, and how they are made.


# Every document's row number in its split: a fast i64 field. No column's field has this name, because
# `FieldMapping.index_name` escapes those that begin like it.
ROW_FIELD: Final = "~row"

# Tantivy's JSON fields hold objects, so that the elements of an array lie under this key: `tags._values:red`.
# So do the entries of a map whose keys are no plain values, as {"key": …, "value": …}.
ARRAY_KEY: Final = "_values"

RecordOption = Literal["basic", "freq", "position"]
RECORD_OPTIONS: tuple[RecordOption, ...] = ("basic", "freq", "position")

# Longer decimals do not fit 64 bits whatever their digits.
MAX_I64_DIGITS: Final = 18

_ESCAPE: Final = "~"
# Tantivy refuses names that begin with a hyphen, and loses fast fields whose name holds a NUL.
_UNUSABLE = re.compile(r"^[-~]|[\x00-\x1f]")


class FieldKind(Enum):
    """What a field's terms are made of."""

    TEXT = "text"  # tokenised text
    STRING = "string"  # the whole text as one term
    JSON = "json"  # structs, arrays, maps, and text that holds JSON objects
    IP = "ip"
    I64 = "i64"  # all integers
    F64 = "f64"  # -0.0 counts as 0.0, and every NaN as one that sorts above infinity
    BOOL = "bool"
    DATE = "date"  # i64: days since 1970
    TIMESTAMP = "timestamp"  # i64: microseconds since 1970 in UTC
    TIMESTAMP_NTZ = "timestamp_ntz"  # i64: microseconds since 1970 in no zone
    DECIMAL = "decimal"  # i64: the number without its point, for up to 18 digits
    BIG_DECIMAL = "big_decimal"  # text of 32 hexadecimal digits that sorts like the numbers
    BYTES = "bytes"
    NOTHING = "nothing"  # not in the index


I64_KINDS: Final = frozenset(
    {FieldKind.I64, FieldKind.DATE, FieldKind.TIMESTAMP, FieldKind.TIMESTAMP_NTZ, FieldKind.DECIMAL}
)
# The kinds whose text passes through an analyzer.
ANALYZED_KINDS: Final = frozenset({FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON})


class FieldMapping(msgspec.Struct, frozen=True):
    """One column in the index.

    `tokenizer`, `record` and `max_token_bytes` count for text, strings and JSON. `is_array` says that the
    values of a JSON column lie under ARRAY_KEY. `scale` is a decimal's. A column is kept among the rows even
    if it is not `stored`, because merging splits indexes their rows again.
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

    @property
    def is_indexed(self) -> bool:
        """Whether the column can be searched."""
        return self.kind is not FieldKind.NOTHING

    @property
    def is_i64(self) -> bool:
        """Whether the index holds 64-bit integers."""
        return self.kind in I64_KINDS

    @property
    def is_analyzed(self) -> bool:
        """Whether text passes through an analyzer on its way into the index."""
        return self.kind in ANALYZED_KINDS

    @property
    def index_name(self) -> str:
        """The name of the field in the index: the column's own, unless Tantivy cannot take that."""
        return (
            _ESCAPE + self.name.encode("unicode_escape").decode()
            if _UNUSABLE.search(self.name)
            else self.name
        )

    @property
    def analyzer(self) -> str:
        """The name of the analyzer in the index, which `DocMapping.register_tokenizers` makes known."""
        return analyzer_name(self.tokenizer, self.max_token_bytes)

    @property
    def field_type(self) -> tantivy.FieldType:
        """Tantivy's type of the field, as range queries want it. A field of kind NOTHING has none."""
        return tantivy.FieldType.Integer if self.is_i64 else _FIELD_TYPES[self.kind]

    def add_to(self, builder: tantivy.SchemaBuilder) -> None:
        """Add the field to a schema; one that is not indexed adds nothing."""
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


def default_token_bytes(kind: FieldKind) -> int:
    """The limit on tokens that counts if no setting says otherwise: none but Tantivy's own for exact text."""
    return MAX_TOKEN_BYTES if kind is FieldKind.STRING else DEFAULT_TOKEN_BYTES


def default_record(kind: FieldKind) -> RecordOption:
    """What the index keeps of a term if no setting says otherwise: positions where phrases make sense."""
    return "position" if kind in (FieldKind.TEXT, FieldKind.JSON) else "basic"


_FIELD_TYPES = {
    FieldKind.TEXT: tantivy.FieldType.Text,
    FieldKind.STRING: tantivy.FieldType.Text,
    FieldKind.BIG_DECIMAL: tantivy.FieldType.Text,
    FieldKind.JSON: tantivy.FieldType.Json,
    FieldKind.IP: tantivy.FieldType.IpAddr,
    FieldKind.F64: tantivy.FieldType.Float,
    FieldKind.BOOL: tantivy.FieldType.Boolean,
    FieldKind.BYTES: tantivy.FieldType.Bytes,
}
