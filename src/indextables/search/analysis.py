"""Query text through the analyzers of the index, so that both speak of the same tokens."""

from functools import lru_cache
from typing import Final

import msgspec
from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from indextables.split.doc_mapping import FieldMapping
from indextables.split.fields import STEMMED_LANGUAGES, build_analyzer

# Their tokens are parts of words, and all stand at the same position.
NGRAMS: Final = frozenset({"ngram", "edge_ngram"})

_KEEPS_CASE: Final = frozenset({"raw", "simple", "whitespace"})


class AnalyzedToken(msgspec.Struct, frozen=True):
    """A term of the index, its position, and where it stands in the text it was made of."""

    text: str
    position: int
    start: int
    end: int


def tokens(field: FieldMapping, text: str) -> list[AnalyzedToken]:
    """The terms that the index makes of a text in this field."""
    return _tokens(_analyzer(field.tokenizer, field.max_token_bytes), text)


def unstemmed_tokens(field: FieldMapping, text: str) -> list[AnalyzedToken]:
    """The same without the stemmer, which would change the beginnings that a prefix is looked for among."""
    if not is_stemmed(field):
        return tokens(field, text)
    return _tokens(_analyzer("default", field.max_token_bytes), text)


def normalized(field: FieldMapping, text: str) -> str:
    """A part of a token, with its letters changed as the index changes them; it is not cut."""
    normalizer = _normalizer(field.tokenizer)
    if normalizer is None or not text:
        return text
    return "".join(normalizer.analyze(text))


def is_stemmed(field: FieldMapping) -> bool:
    """Whether the index holds the stems of words."""
    return field.tokenizer in STEMMED_LANGUAGES


def _tokens(analyzer: TextAnalyzer, text: str) -> list[AnalyzedToken]:
    return [
        AnalyzedToken(token.text, token.position, token.char_offset_from, token.char_offset_to)
        for token in analyzer.pre_tokenize(text).tokens
    ]


@lru_cache(maxsize=64)
def _analyzer(tokenizer: str, max_token_bytes: int) -> TextAnalyzer:
    return build_analyzer(tokenizer, max_token_bytes)


@lru_cache(maxsize=64)
def _normalizer(tokenizer: str) -> TextAnalyzer | None:
    if tokenizer in _KEEPS_CASE:
        return None
    builder = TextAnalyzerBuilder(Tokenizer.raw()).filter(Filter.lowercase())
    return (builder.filter(Filter.ascii_fold()) if tokenizer == "ascii_fold" else builder).build()
