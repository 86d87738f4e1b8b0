"""Any query over any fields returns rows or raises InvalidQueryError."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidQueryError
from indextables.search.compile import SearchScope, compile_query
from indextables.search.highlight import highlight
from indextables.search.hits import search_index
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, json_field, string_field, text_field

MAPPING = DocMapping(
    (
        text_field("t"),
        text_field("stem", "en_stem"),
        text_field("gram", "ngram"),
        string_field("s"),
        FieldMapping("i", FieldKind.I64),
        FieldMapping("f", FieldKind.F64),
        FieldMapping("b", FieldKind.BOOL),
        FieldMapping("d", FieldKind.DATE),
        FieldMapping("ts", FieldKind.TIMESTAMP),
        FieldMapping("m", FieldKind.BIG_DECIMAL, scale=2),
        FieldMapping("ip", FieldKind.IP),
        json_field("j"),
    )
)
SCOPE = SearchScope(MAPPING, partition=pa.table({"region": ["eu"]}))
NULL_ROW = pa.table(
    {
        **{name: pa.array([None], pa.string()) for name in ("t", "stem", "gram", "s", "ip", "j")},
        "i": pa.array([None], pa.int64()),
        "f": pa.array([None], pa.float64()),
        "b": pa.array([None], pa.bool_()),
        "d": pa.array([None], pa.date32()),
        "ts": pa.array([None], pa.timestamp("us", "UTC")),
        "m": pa.array([None], pa.decimal128(38, 2)),
    }
)


@pytest.fixture(scope="module")
def index():
    return build_index(MAPPING, NULL_ROW)


names = st.sampled_from([*(field.name for field in MAPPING), "j.a.b", "j.\\.", "region"]).map("{}:".format)
values = st.one_of(
    st.sampled_from(
        ["1", "-1.5", "1e400", "NaN", "true", "2024-01-31", "9999-12-31", "0001-01-01", "10.0.0.0/8"]
    ),
    st.sampled_from(
        ["2024-01-31T00:00:00+23:59", "::1", "::", "a", "a-b", "*", "a*", "*a*", "a~2", '"a b"~3', '""', "."]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.text(max_size=6).map(lambda text: '"' + text.replace("\\", "").replace('"', "") + '"'),
)
ranges = st.builds("{}{} TO {}{}".format, st.sampled_from("[{"), values, values, st.sampled_from("]}"))
lists = st.lists(values, min_size=1, max_size=3).map(lambda each: f"IN [{' '.join(each)}]")
compared = st.builds("{}{}".format, st.sampled_from([">", ">=", "<", "<="]), values)
clauses = st.builds("{}{}".format, names | st.just(""), st.one_of(values, ranges, lists, compared))
queries = st.lists(st.one_of(clauses, st.sampled_from(["AND", "OR", "NOT", "+", "-", "(", ")"])), max_size=5)


@settings(max_examples=100)
@given(queries.map(" ".join))
@example("d:>9999-12-31")
@example("ts:<=9999-12-31")
@example("ts:2024-01-31T00:00:00+23:59")
@example("ts:0001-01-01T00:00:00+23:59")
@example("j.a:1e400")
@example("j.a:0001-01-01T00:00:00+23:59")
@example("j.a:9999-12-31T00:00:00Z")
@example("j.:1")
@example("j..a:1")
@example("t:\x00 s:\x00* j.a:\x00")
@example("s:[\x00 TO \U0010ffff]")
@example("m:>1e30")
@example("i:" + "9" * 2000)
@example("s:" + "x" * 3_000 + "*")
@example("s:" + "x" * 3_000 + "~2")
@example("s:*" + "x" * 3_000)
def test_rows_or_an_error_with_a_position(index, text):
    try:
        node = parse_query(text)
        query = compile_query(node, SCOPE)
    except InvalidQueryError:
        return
    assert len(search_index(index, query, 5)) <= 1
    for column in ("t", "stem", "gram", "s"):
        spans = highlight(node, SCOPE, column, "a-b a 1 b")
        assert all(0 <= span.start < span.end <= 9 for span in spans)
