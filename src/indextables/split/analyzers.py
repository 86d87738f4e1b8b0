"""Text analyzers by name: the tokenizers that a mapping may choose, with a limit on the length of tokens.

The names that Tantivy has itself mean the same here, but for the limit: Tantivy drops tokens of 40 bytes and
more without a word. An analyzer with another limit than the usual one has the limit in its name, so that an
index and its queries can only agree.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

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
