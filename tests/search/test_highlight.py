"""The ranges of a text that a query matches, by the tokens of the index."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidQueryError
from indextables.search.compile import SearchScope
from indextables.search.highlight import Span, highlight
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, found_rows, string_field, text_field

MAPPING = DocMapping(
    (
        text_field("body"),
        text_field("stemmed", "en_stem"),
        text_field("grams", "ngram"),
        string_field("tag"),
        FieldMapping("n", FieldKind.I64),
    )
)
SCOPE = SearchScope(MAPPING)


def marked(query, text, column="body"):
    """Return the text with brackets around the highlights."""
    for span in reversed(highlight(parse_query(query), SCOPE, column, text)):
        text = f"{text[: span.start]}[{text[span.start : span.end]}]{text[span.end :]}"
    return text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lake", "Data [Lake] and data-lakes, a data [lake]"),
        ("body:LAKE", "Data [Lake] and data-lakes, a data [lake]"),
        ('"data lake"', "[Data Lake] and data-lakes, a [data lake]"),
        ("data-lake", "[Data Lake] and data-lakes, a [data lake]"),
        ("lak*", "Data [Lake] and data-[lakes], a data [lake]"),
        ("data-lak*", "[Data Lake] and [data-lakes], a [data lake]"),
        ("*kes", "Data Lake and data-[lakes], a data lake"),
        ("lkae~1", "Data [Lake] and data-lakes, a data [lake]"),
        ("body:[k TO m]", "Data [Lake] and data-[lakes], a data [lake]"),
        ("body:IN [and a]", "Data Lake [and] data-lakes, [a] data lake"),
        ("data AND lake", "[Data] [Lake] and [data]-lakes, a [data] [lake]"),
        ("lake AND NOT data", "Data [Lake] and data-lakes, a data [lake]"),
        ("lake -data", "Data [Lake] and data-lakes, a data [lake]"),
        ("(lake)^2", "Data [Lake] and data-lakes, a data [lake]"),
        ('"data and"~1', "[Data] Lake [and] [data]-lakes, a data lake"),
        ('"and data lakes"', "Data Lake [and data-lakes], a data lake"),
        ("tag:lake", "Data Lake and data-lakes, a data lake"),
        ("*", "Data Lake and data-lakes, a data lake"),
        ("body:*", "Data Lake and data-lakes, a data lake"),
        ("!!!", "Data Lake and data-lakes, a data lake"),
        ("n:5 OR nothing", "Data Lake and data-lakes, a data lake"),
    ],
)
def test_what_is_marked(query, expected):
    assert marked(query, "Data Lake and data-lakes, a data lake") == expected


def test_stems_mark_the_words_as_they_are_written():
    assert marked("run", "He was Running; she runs", "stemmed") == "He was [Running]; she [runs]"
    assert marked("running*", "He was Running; she runs", "stemmed") == "He was [Running]; she [runs]"


def test_grams_mark_parts_of_words():
    assert marked("out", "timeout", "grams") == "time[out]"
    assert marked("out*", "timeout", "grams") == "time[out]"


def test_strings_are_marked_as_a_whole():
    assert marked("ERROR", "ERROR", "tag") == "[ERROR]"
    assert marked("ERR*", "ERROR", "tag") == "[ERROR]"
    assert marked("error", "ERROR", "tag") == "ERROR"


def test_characters_beyond_ascii_are_counted_as_characters():
    assert marked("été", "😀😀 l'été 日本") == "😀😀 l'[été] 日本"
    assert marked("日本", "😀😀 l'été 日本") == "😀😀 l'été [日本]"


def test_columns_without_text_have_no_parts():
    assert highlight(parse_query("5"), SCOPE, "n", "5") == ()
    assert highlight(parse_query("5"), SCOPE, "unknown", "5") == ()


def test_unknown_fields_are_an_error():
    with pytest.raises(InvalidQueryError, match="no field"):
        highlight(parse_query("nope:x"), SCOPE, "body", "x")


def test_overlapping_parts_are_joined():
    assert highlight(parse_query('"a b" OR "b c"'), SCOPE, "body", "a b c") == (Span(0, 5),)


words = st.sampled_from(["data", "lake", "lakes", "date", "x"])
queries = st.one_of(
    words,
    words.map(lambda word: f"{word[:2]}*"),
    st.tuples(words, st.integers(0, 2)).map(lambda pair: f"{pair[0]}~{pair[1]}"),
    st.lists(words, min_size=1, max_size=3).map(lambda each: f'"{" ".join(each)}"'),
    st.tuples(words, words).map(lambda pair: f"body:[{min(pair)} TO {max(pair)}]"),
)


@settings(max_examples=30)
@given(
    st.lists(st.lists(words, max_size=5).map(" ".join), min_size=1, max_size=6), st.lists(queries, max_size=8)
)
def test_a_row_is_marked_if_and_only_if_it_is_found(texts, asked):
    mapping = DocMapping((text_field("body"),))
    index = build_index(mapping, pa.table({"body": texts}))
    for query in asked:
        node = parse_query(query)
        rows = [row for row, text in enumerate(texts) if highlight(node, SearchScope(mapping), "body", text)]
        assert rows == found_rows(index, mapping, query), query
