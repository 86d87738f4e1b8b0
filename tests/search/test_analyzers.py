"""Index and query use the same analyzer: a row is found by its own text."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import matching_rows
from indextables.search.parser import Phrase, Place, Term
from indextables.search.text_query import tokens
from indextables.split.doc_mapping import TOKENIZERS, DocMapping
from support.search_indexes import build_index, found_rows, string_field, text_field

PLACE = Place("", 0, 0)

# These index the whole text, or its prefixes.
CUT_NOWHERE = {"raw", "lowercase", "edge_ngram"}

TEXTS = [
    "The quick-brown fox's running; RUNNING shoes",
    "naïve Ünïcode ÇA straße ΣΊΣΥΦΟΣ İstanbul",
    "日本語のテキスト 한국어 中文",
    "emoji 😀 family 👩‍👩‍👧 flag 🇩🇪 done",
    "שלום עולם مرحبا بالعالم \u202eabc",
    "combining e\u0301 a\u0308 zero\u200bwidth",
    "user@example.com http://example.com/a?b=c&d=e 10.0.0.1",
    "x" * 39 + " " + "y" * 40 + " " + "z" * 255,
    "new\nline\ttab  double",
]


def rows_of(index, mapping, node):
    return matching_rows(index, compile_query(node, SearchScope(mapping))).tolist()


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_every_text_finds_itself(tokenizer):
    mapping = DocMapping((text_field("x", tokenizer, max_token_bytes=500),))
    index = build_index(mapping, pa.table({"x": TEXTS}))
    for number, text in enumerate(TEXTS):
        assert number in rows_of(index, mapping, Phrase(None, PLACE, text))


@pytest.mark.parametrize("tokenizer", sorted(set(TOKENIZERS) - CUT_NOWHERE))
def test_every_word_finds_its_text(tokenizer):
    mapping = DocMapping((text_field("x", tokenizer),))
    index = build_index(mapping, pa.table({"x": TEXTS}))
    for number, text in enumerate(TEXTS):
        for word in text.split():
            if tokens(mapping.fields[0], word):
                assert number in rows_of(index, mapping, Term(None, PLACE, word)), word


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=40)
@given(st.sampled_from(TOKENIZERS), st.lists(texts, min_size=1, max_size=4))
def test_any_text_finds_itself(tokenizer, values):
    mapping = DocMapping((text_field("x", tokenizer), string_field("s")))
    index = build_index(mapping, pa.table({"x": values, "s": values}))
    scope_x, scope_s = (SearchScope(mapping, default_fields=(name,)) for name in "xs")
    for number, text in enumerate(values):
        phrase = Phrase(None, PLACE, text)
        if tokens(mapping.fields[0], text):
            assert number in matching_rows(index, compile_query(phrase, scope_x))
        same = [other for other, value in enumerate(values) if value == text]
        assert matching_rows(index, compile_query(phrase, scope_s)).tolist() == same


@pytest.mark.parametrize("length", [1, 39, 40, 41, 100, 254, 255])
def test_long_tokens_are_found(length):
    word = "w" * length
    mapping = DocMapping((text_field("x"),))
    index = build_index(mapping, pa.table({"x": [f"a {word} b", "other"]}))
    assert found_rows(index, mapping, word) == [0]
    assert found_rows(index, mapping, f"{word[:-1]}*" if length > 1 else "w*") == [0]
    assert found_rows(index, mapping, f'"a {word} b"') == [0]
    assert found_rows(index, mapping, f"{word}~1") == [0]


def test_tokens_beyond_the_limit_are_in_neither_index_nor_query():
    mapping = DocMapping((text_field("x", max_token_bytes=10),))
    index = build_index(mapping, pa.table({"x": ["short muchtoolong", "muchtoolong"]}))
    assert found_rows(index, mapping, "muchtoolong") == []
    assert found_rows(index, mapping, "short AND muchtoolong") == [0]


def test_a_phrase_keeps_the_place_of_a_token_that_is_too_long():
    mapping = DocMapping((text_field("x", max_token_bytes=10),))
    index = build_index(mapping, pa.table({"x": ["a muchtoolong b", "a b"]}))
    assert found_rows(index, mapping, '"a muchtoolong b"') == [0]
    assert found_rows(index, mapping, '"a b"') == [1]


def test_stems_agree():
    mapping = DocMapping((text_field("x", "en_stem"),))
    index = build_index(mapping, pa.table({"x": ["running fast", "he runs", "a cat"]}))
    for text, expected in {
        "run": [0, 1],
        "RUNNING": [0, 1],
        "run*": [0, 1],
        "running*": [0, 1],
        "runing~1": [0, 1],
        '"running fast"': [0],
        '"runs fast"': [0],
        "he-run*": [1],
        "he-running*": [1],
        "cats": [2],
    }.items():
        assert found_rows(index, mapping, text) == expected, text


def test_ngrams_find_parts_of_words():
    mapping = DocMapping((text_field("x", "ngram"),))
    index = build_index(mapping, pa.table({"x": ["timeout", "outing", "tim"]}))
    assert found_rows(index, mapping, "out") == [0, 1]
    assert found_rows(index, mapping, "meou") == [0]
    assert found_rows(index, mapping, "tim*") == [0, 2]


def test_edge_ngrams_find_prefixes_of_words():
    mapping = DocMapping((text_field("x", "edge_ngram"),))
    index = build_index(mapping, pa.table({"x": ["Timeout", "outing"]}))
    assert found_rows(index, mapping, "time") == [0]
    assert found_rows(index, mapping, "out") == [1]


def test_case_and_accents_where_the_analyzer_folds_them():
    mapping = DocMapping((text_field("x", "ascii_fold"),))
    index = build_index(mapping, pa.table({"x": ["Café Noir", "other"]}))
    for text in ["cafe", "CAFÉ", "caf*", "CÀF*", "*afé", "x:[cafd TO CAFÉ]", "café~1"]:
        assert found_rows(index, mapping, text) == [0], text


@pytest.mark.parametrize("tokenizer", ["simple", "whitespace"])
def test_case_is_kept_where_the_analyzer_keeps_it(tokenizer):
    mapping = DocMapping((text_field("x", tokenizer),))
    index = build_index(mapping, pa.table({"x": ["Hello World", "hello world"]}))
    for text, expected in {
        "Hello": [0],
        "hello": [1],
        "Hel*": [0],
        "*orld": [0, 1],
        '"Hello World"': [0],
    }.items():
        assert found_rows(index, mapping, text) == expected


def test_more_than_fifty_terms_share_a_prefix():
    values = [f"item{number:03}" for number in range(200)]
    mapping = DocMapping((text_field("x"), string_field("s")))
    index = build_index(mapping, pa.table({"x": [f"an {value}" for value in values], "s": values}))
    for text in ["x:item*", "s:item*", "x:an-item*", "x:*tem*"]:
        assert len(found_rows(index, mapping, text)) == 200, text


def test_clauses_without_tokens_are_ignored():
    mapping = DocMapping((text_field("x"),))
    index = build_index(mapping, pa.table({"x": ["a b", "c"]}))
    for text, expected in {
        "a AND !!!": [0],
        "!!! a": [0],
        "!!!": [],
        '"..."': [],
        "-!!!": [],
        "!!! -a": [],
        "+!!! a": [0],
        "(!!! OR ---) AND a": [0],
        "...*": [],
        "a-*": [0],
    }.items():
        assert found_rows(index, mapping, text) == expected, text
