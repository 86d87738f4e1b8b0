"""Queries find the same in a copy of the index that holds only what they need, and read nothing else of it."""

import contextlib
import ipaddress
import itertools
import json
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import InvalidAggregationError, InvalidQueryError, SearchFailedError
from indextables.predicates import And, Comparison, In, IsNotNull, IsNull, Not, Operator, Or, bind
from indextables.search import Aggregation, Histogram, Metric, MetricFunction, Terms
from indextables.search.compile import SearchScope, compile_with_predicate
from indextables.search.hits import count_index, matching_rows, search_index
from indextables.search.index_query import IndexField, IndexQuery
from indextables.search.parser import parse_query
from indextables.search.split_aggregate import aggregate_index, aggregate_needs
from indextables.split.cold_data import PAGE_BYTES, ColdData
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import DocumentEncoder
from indextables.split.needs import EVERYTHING, NOTHING, Needs
from indextables.split.prediction import rounds
from support.search_indexes import json_field, string_field, text_field
from support.sparse_copies import SparseCopy

FIRST_DAY = date(2024, 1, 1)
FIRST_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("body", pa.string()),
        ("stem", pa.string()),
        ("grams", pa.string()),
        ("level", pa.string()),
        ("id", pa.string()),
        ("slow", pa.string()),
        ("n", pa.int64()),
        ("m", pa.int64()),
        ("x", pa.float64()),
        ("z", pa.float64()),
        ("flag", pa.bool_()),
        ("unset", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(38, 2)),
        ("ip", pa.string()),
        ("net", pa.string()),
        ("data", pa.binary()),
        ("attrs", pa.string()),
        ("raw", pa.string()),
    ]
)
MAPPING = DocMapping(
    (
        text_field("body"),
        text_field("stem", tokenizer="en_stem", fast=True),
        text_field("grams", tokenizer="ngram", record="freq"),
        string_field("level"),
        string_field("id"),
        string_field("slow", fast=False),
        FieldMapping("n", FieldKind.I64),
        FieldMapping("m", FieldKind.I64, fast=False),
        FieldMapping("x", FieldKind.F64),
        FieldMapping("z", FieldKind.F64, fast=False),
        FieldMapping("flag", FieldKind.BOOL),
        FieldMapping("unset", FieldKind.BOOL, fast=False),
        FieldMapping("day", FieldKind.DATE),
        FieldMapping("ts", FieldKind.TIMESTAMP, fast=False),
        FieldMapping("price", FieldKind.DECIMAL, scale=2),
        FieldMapping("huge", FieldKind.BIG_DECIMAL, scale=2),
        FieldMapping("ip", FieldKind.IP),
        FieldMapping("net", FieldKind.IP, fast=False),
        FieldMapping("data", FieldKind.BYTES),
        json_field("attrs"),
        json_field("raw", tokenizer="raw", record="basic", fast=False),
    )
)
SCOPE = SearchScope(MAPPING, SCHEMA, default_fields=("body", "level"))
LEVELS = ("debug", "info", "warn", "error", "été")
ROWS = 4000


def words() -> list[str]:
    """A vocabulary with common beginnings and endings."""
    rng = random.Random(0)
    syllables = [c + v for c in "bdgklmnrst" for v in ("a", "e", "i", "o", "ing", "er")]
    return sorted({"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)})


VOCABULARY = words()


def rows_of(seed: int) -> pa.Table:
    rng = random.Random(seed)
    vocabulary = VOCABULARY

    def text(length: int) -> str:
        return " ".join(vocabulary[int(rng.paretovariate(0.6)) % len(vocabulary)] for _ in range(length))

    def value(row: int) -> dict[str, Any]:
        number = rng.randrange(-1000, 1000)
        made = {
            "body": text(rng.randint(1, 30)),
            "stem": text(4),
            "grams": text(1),
            "level": rng.choice(LEVELS),
            "id": f"{rng.getrandbits(64):016x}",
            "slow": rng.choice(vocabulary),
            "n": number,
            "m": rng.choice([number, 2**62 + row]),
            "x": rng.choice([rng.random(), float(number), math.inf, math.nan]) if seed % 2 else rng.random(),
            "z": rng.gauss(0, 100),
            "flag": rng.random() < 0.5,
            "unset": rng.choice([True, False, None]),
            "day": FIRST_DAY + timedelta(days=rng.randrange(400)),
            "ts": FIRST_MOMENT + timedelta(microseconds=rng.randrange(10**13)),
            "price": Decimal(rng.randrange(-(10**6), 10**6)).scaleb(-2),
            "huge": Decimal(rng.randrange(-(10**30), 10**30)).scaleb(-2),
            "ip": f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}",
            "net": str(ipaddress.ip_address(rng.getrandbits(128))),
            "data": rng.randbytes(rng.randrange(5)),
            "attrs": json.dumps(
                {
                    "name": text(2),
                    "k.dotted": {"deep key": rng.choice(LEVELS)},
                    "count": rng.choice([number, number / 4, 2**63 + number, -1e30]),
                    "ok": rng.random() < 0.5,
                    "at": (FIRST_MOMENT + timedelta(milliseconds=rng.randrange(10**9))).isoformat(),
                    f"key{rng.randrange(300)}": number,
                }
            ),
            "raw": json.dumps({"name": rng.choice(vocabulary), "list": [number, text(1)]}),
        }
        return {name: None if rng.random() < 0.02 else each for name, each in made.items()}

    return pa.Table.from_pylist([value(row) for row in range(ROWS)], SCHEMA)


class Corpus(msgspec.Struct, frozen=True):
    """An index, its cold data, and the values that queries can ask for."""

    directory: Path
    cold: ColdData
    complete: tantivy.Searcher
    rows: pa.Table
    copies: Path
    numbers: itertools.count

    def check(self, needs: Needs, ask: Callable[[tantivy.Searcher], Any]) -> SparseCopy:
        """Check that a copy with what is needed has the same answer as the index, and that nothing else was read."""
        copy = SparseCopy(self.directory, self.copies / str(next(self.numbers)), self.cold)
        copy.fetch_needs(self.cold, needs)
        found = ask(copy.open(MAPPING))
        assert copy.touched_holes() == []
        assert found == ask(self.complete)
        return copy


# One segment or several, and dictionaries that are fetched whole or in parts.
SHAPES = {
    "one segment": (1, 1, 1_500_000),
    "several segments": (2, 3, 1_500_000),
    "large dictionaries": (3, 1, 4_000),
    "large dictionaries in segments": (4, 2, 1_000),
}


@pytest.fixture(scope="module", params=SHAPES)
def corpus(request, tmp_path_factory) -> Corpus:
    seed, num_segments, whole_bytes = SHAPES[request.param]
    directory = tmp_path_factory.mktemp("index")
    rows = rows_of(seed)
    build(directory, rows, num_segments)
    cold = ColdData.decode(ColdData.of(directory, whole_bytes=whole_bytes).encode())
    assert len(cold.segments) == num_segments
    index = tantivy.Index.open(str(directory))
    MAPPING.register_tokenizers(index)
    copies = tmp_path_factory.mktemp("copies")
    return Corpus(directory, cold, index.searcher(), rows, copies, itertools.count())


def build(directory: Path, rows: pa.Table, num_segments: int) -> None:
    index = tantivy.Index(MAPPING.tantivy_schema(), path=str(directory))
    MAPPING.register_tokenizers(index)
    writer = index.writer(50_000_000, num_threads=1)
    encoder = DocumentEncoder(MAPPING)
    size = -(-rows.num_rows // num_segments)
    for number, batch in enumerate(rows.combine_chunks().to_batches(max_chunksize=size)):
        for document in encoder.documents(batch, number * size):
            writer.add_document(document)
        writer.commit()
    writer.wait_merging_threads()


def best(query: IndexQuery, limit: int) -> Callable[[tantivy.Searcher], Any]:
    def ask(searcher: tantivy.Searcher) -> Any:
        hits = search_index(searcher, query, limit)
        return hits.rows.tolist(), hits.scores.tolist()

    return ask


def everything(query: IndexQuery) -> Callable[[tantivy.Searcher], Any]:
    return lambda searcher: (matching_rows(searcher, query).tolist(), count_index(searcher, query))


def check_query(corpus: Corpus, query: IndexQuery) -> None:
    corpus.check(query.needs_of_best_rows(), best(query, 10))
    corpus.check(query.needs_of_all_rows(), everything(query))


def compiled(text: str | None, where: Any = None) -> IndexQuery:
    bound = None if where is None else bind(where, SCHEMA)
    return compile_with_predicate(SCOPE, None if text is None else parse_query(text), bound).query


# --- random queries -----------------------------------------------------------------------------------

VALUES = {name: rows_of(1)[name].drop_null().to_pylist()[:30] for name in SCHEMA.names}
WORDS = sorted({word for body in VALUES["body"] for word in body.split()})[:100]

word = st.one_of(st.sampled_from(WORDS), st.sampled_from(["absent", "zzz", "ba", "ming"]))
text_fields = st.sampled_from(["", "body:", "stem:", "slow:", "attrs.name:"])


def _quoted(values: list[str]) -> str:
    return '"' + " ".join(values) + '"'


def _cut(each: str, length: int) -> str:
    return each[:length] or each


def _value_texts(name: str, render: Callable[[Any], str] = str) -> st.SearchStrategy[str]:
    return st.sampled_from(VALUES[name]).map(lambda value: f"{name}:{render(value)}")


def _ranges(name: str, render: Callable[[Any], str] = str) -> st.SearchStrategy[str]:
    ends = st.tuples(st.sampled_from(VALUES[name]), st.sampled_from(VALUES[name])).map(sorted)
    brackets = st.sampled_from(["[{} TO {}]", "{{{} TO {}]", "[{} TO {}}}", "[* TO {1}]", "{{{} TO *}}"])
    return st.tuples(ends, brackets).map(lambda each: f"{name}:{each[1].format(*map(render, each[0]))}")


leaves = st.one_of(
    st.tuples(text_fields, word).map("".join),
    st.tuples(text_fields, st.lists(word, min_size=2, max_size=3).map(_quoted)).map("".join),
    st.tuples(st.sampled_from(["body:", "stem:"]), st.lists(word, min_size=2, max_size=2).map(_quoted)).map(
        lambda each: f"{each[0]}{each[1]}~3"
    ),
    st.tuples(text_fields, word, st.integers(1, 4)).map(lambda each: f"{each[0]}{_cut(each[1], each[2])}*"),
    st.tuples(st.sampled_from(["body:", "slow:"]), word).map(
        lambda each: f"{each[0]}{each[1][:1]}*{each[1][-1:]}"
    ),
    st.tuples(st.sampled_from(["body:", "slow:"]), word).map(lambda each: f"{each[0]}*{each[1][-2:]}"),
    st.tuples(text_fields, word).map(lambda each: f"{each[0]}{each[1]}~1"),
    word.map(lambda each: f"grams:{each}"),
    st.tuples(word, word).map(lambda each: "slow:[{} TO {}]".format(*sorted(each))),
    st.sampled_from(LEVELS).map(lambda each: f"level:{each}"),
    st.lists(word, min_size=1, max_size=4).map(lambda each: f"slow:IN [{' '.join(each)}]"),
    st.lists(word, min_size=20, max_size=30).map(lambda each: f"slow:IN [{' '.join(each)}]"),
    _value_texts("id"),
    st.sampled_from(VALUES["id"]).map(lambda each: f"id:{each[:2]}*"),
    _value_texts("n"),
    _ranges("n"),
    _value_texts("m"),
    _ranges("m"),
    _ranges("z", lambda value: f"{value:.3f}"),
    _ranges("day"),
    _ranges("ts", lambda value: value.strftime("%Y-%m-%dT%H:%M:%SZ").join('""')),
    _value_texts("price"),
    _ranges("huge"),
    _value_texts("ip"),
    st.sampled_from(["ip:10.1.0.0/16", "net:*", "ip:*", "net:8000::/1", "unset:*", "flag:*", "m:*", "z:*"]),
    st.sampled_from(
        ["flag:true", "unset:false", "body:*", "level:*", "slow:*", "attrs.key7:*", "attrs.name:*"]
    ),
    st.sampled_from(["attrs.ok:true", "attrs.k.dotted.deep\\ key:warn", "raw.list:5", "attrs.count:7"]),
    st.sampled_from(["attrs.count:-1e30", "attrs.count:2.25", "attrs.count:9223372036854775809"]),
    st.sampled_from(VALUES["attrs"]).map(lambda each: f'attrs.at:"{json.loads(each)["at"]}"'),
    st.sampled_from(VALUES["raw"]).map(lambda each: f"raw.name:{json.loads(each)['name']}"),
    st.just("*"),
)
queries = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda each: f"({each[0]} AND {each[1]})"),
        st.tuples(inner, inner).map(lambda each: f"({each[0]} OR {each[1]})"),
        st.tuples(inner, inner).map(lambda each: f"({each[0]} AND NOT {each[1]})"),
        inner.map(lambda each: f"({each})^2.5"),
    ),
    max_leaves=4,
)

columns = st.sampled_from(
    [name for name in SCHEMA.names if name not in ("attrs", "raw", "body", "stem", "grams")]
)
conditions = st.one_of(
    columns.flatmap(
        lambda name: st.builds(
            Comparison, st.just(name), st.sampled_from(Operator), st.sampled_from(VALUES[name])
        )
    ),
    columns.flatmap(
        lambda name: st.builds(
            lambda values: In(name, tuple(values)), st.lists(st.sampled_from(VALUES[name]), max_size=25)
        )
    ),
    st.builds(IsNull, columns),
    st.builds(IsNotNull, columns),
)
predicates = st.recursive(
    conditions,
    lambda inner: st.one_of(st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)),
    max_leaves=4,
)


@settings(max_examples=30)
@given(text=queries)
def test_random_queries_read_only_what_they_need(corpus, text):
    try:
        query = compiled(text)
    except InvalidQueryError:
        return
    check_query(corpus, query)


@settings(max_examples=20)
@given(where=predicates, text=st.one_of(st.none(), leaves))
def test_random_predicates_read_only_what_they_need(corpus, where, text):
    try:
        query = compiled(text, where)
    except InvalidQueryError:
        return
    check_query(corpus, query)


NUMBERS = ("n", "x", "price", "huge")
FAST = (*NUMBERS, "level", "id", "flag", "day")
COUNTABLE = (*FAST, "ip", "m", "z", "unset", "ts")
metrics = st.one_of(
    st.just(Metric(MetricFunction.COUNT)),
    st.builds(Metric, st.just(MetricFunction.COUNT), st.sampled_from(COUNTABLE)),
    st.builds(Metric, st.sampled_from([MetricFunction.MIN, MetricFunction.MAX]), st.sampled_from(FAST)),
    st.builds(Metric, st.sampled_from([MetricFunction.SUM, MetricFunction.AVG]), st.sampled_from(NUMBERS)),
)
groupings = st.one_of(
    st.none(),
    st.sampled_from([*FAST, "ip"]).map(Terms),
    st.sampled_from(["n", "x", "price"]).map(lambda name: Histogram(name, 50)),
    st.just(Histogram("day", timedelta(days=7))),
)


@settings(max_examples=30)
@given(
    measured=st.lists(metrics, min_size=1, max_size=3, unique=True),
    by=groupings,
    text=st.one_of(st.none(), leaves),
)
def test_random_aggregations_read_only_what_they_need(corpus, measured, by, text):
    try:
        query = compiled(text)
        aggregation = Aggregation(tuple(measured), by)
        needs = aggregate_needs(query, aggregation, SCOPE)
        aggregate_index(corpus.complete, query, aggregation, SCOPE)
    except (InvalidQueryError, InvalidAggregationError):
        return

    def ask(searcher: tantivy.Searcher) -> Any:
        found = aggregate_index(searcher, query, aggregation, SCOPE)
        return repr(found.groups.to_pylist()), found.hidden_rows

    corpus.check(needs, ask)


# --- what is fetched ----------------------------------------------------------------------------------


def test_opening_reads_only_the_pages_of_the_cold_data(corpus):
    copy = corpus.check(NOTHING, lambda searcher: (searcher.num_docs, searcher.num_segments))
    assert copy.num_rounds == 0


def test_an_unknown_need_fetches_everything(corpus):
    copy = corpus.check(EVERYTHING, best(compiled("*"), 5))
    assert copy.num_rounds == 1
    sizes = copy.sizes().values()
    assert copy.present_bytes == sum(-(-size // PAGE_BYTES) for size in sizes) * PAGE_BYTES


def test_a_missing_page_is_noticed(corpus):
    query = compiled("body:ba*")
    copy = SparseCopy(corpus.directory, corpus.copies / str(next(corpus.numbers)), corpus.cold)
    copy.fetch_needs(corpus.cold, compiled("body:zzz").needs_of_best_rows())
    with contextlib.suppress(SearchFailedError):
        search_index(copy.open(MAPPING), query, 10)
    assert copy.touched_holes()


@pytest.mark.parametrize(
    "text", ["body:ba", 'body:"ba da"', "level:warn", "attrs.ok:true", "n:5", "body:ba*"]
)
def test_dictionaries_that_are_fetched_whole_take_two_rounds(corpus, text):
    query = compiled(text)
    copy = corpus.check(query.needs_of_best_rows(), best(query, ROWS))
    is_large = any(
        field.data_offsets for segment in corpus.cold.segments for field in segment.fields.values()
    )
    assert copy.num_rounds <= (8 if is_large else 2)


def test_a_count_reads_no_norms_and_a_term_no_positions(corpus):
    def present(needs: Needs, suffix: str) -> int:
        files = SparseCopy(corpus.directory, corpus.copies / str(next(corpus.numbers)), corpus.cold)
        return sum(
            part.end - part.start
            for ranges in _fetched(files, corpus.cold, needs)
            for part in ranges
            if part.name.endswith(suffix)
        )

    term, phrase = compiled("body:ba"), compiled('body:"ba da"')
    assert present(term.needs_of_best_rows(), ".fieldnorm") == ROWS
    assert present(term.needs_of_all_rows(), ".fieldnorm") == 0
    assert present(term.needs_of_best_rows(), ".pos") == 0
    assert present(phrase.needs_of_all_rows(), ".pos") > 0
    assert present(compiled("n:[1 TO 5]").needs_of_best_rows(), ".idx") == 0


def _fetched(files: SparseCopy, cold: ColdData, needs: Needs):
    for ranges in rounds(files, cold, needs):
        yield ranges
        files.fetch(ranges)


def test_a_set_of_very_many_terms_reads_the_span_of_its_terms(corpus):
    values = VOCABULARY[:400]
    values += [f"absent{number}" for number in range(300)]
    query = IndexField(MAPPING.tantivy_schema(), MAPPING.find("slow")).one_of(values)
    check_query(corpus, query)


def test_scores_of_a_set_of_terms_are_constant_whatever_its_size(corpus):
    field = IndexField(MAPPING.tantivy_schema(), MAPPING.find("level"))
    for values in (["warn"], ["warn", "info"], ["warn", "info", *map(str, range(20))]):
        hits = search_index(corpus.complete, field.one_of(values), 10)
        assert np.unique(hits.scores).tolist() == [1.0]
