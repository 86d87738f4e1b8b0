"""Slim indexes answer like plain ones, with one segment in row order, whatever the heap was."""

import shutil
import tempfile
import time
import zlib
from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
import tantivy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables._caching import clear_process_caches
from indextables.errors import SplitWriteError
from indextables.predicates import bind, parse_predicate
from indextables.search import Aggregation, Histogram, Metric, MetricFunction, Terms
from indextables.search.compile import SearchScope, compile_with_predicate
from indextables.search.hits import count_index, matching_rows, search_index
from indextables.search.index_query import IndexQuery, all_rows
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.parser import parse_query
from indextables.search.split_aggregate import aggregate_index
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import DocumentEncoder, IndexBuilder, index_files
from indextables.split.index_opener import open_index
from indextables.split.slim_index import (
    MIN_HEAP_BYTES,
    RowsOutOfOrderError,
    SegmentWatch,
    _slim_schema,
    complete_index,
    create_index,
    sort_index,
)
from support import PATIENCE_SECONDS
from support.search_indexes import build_index, json_field, string_field, text_field

SCHEMA = pa.schema(
    [
        ("body", pa.string()),
        ("stems", pa.string()),
        ("title", pa.string()),
        ("tag", pa.string()),
        ("attrs", pa.struct([("k", pa.string()), ("n", pa.int64())])),
        ("address", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("total", pa.decimal128(38, 2)),
        ("blob", pa.binary()),
    ]
)
MAPPING = DocMapping(
    (
        text_field("body"),
        text_field("stems", "en_stem", record="freq"),
        text_field("title", "lowercase", fast=True),
        string_field("tag"),
        json_field("attrs"),
        FieldMapping("address", FieldKind.IP),
        FieldMapping("n", FieldKind.I64),
        FieldMapping("f", FieldKind.F64),
        FieldMapping("flag", FieldKind.BOOL),
        FieldMapping("day", FieldKind.DATE),
        FieldMapping("ts", FieldKind.TIMESTAMP),
        FieldMapping("price", FieldKind.DECIMAL, scale=2),
        FieldMapping("total", FieldKind.BIG_DECIMAL, scale=2),
        FieldMapping("blob", FieldKind.BYTES),
    )
)
SCOPE = SearchScope(MAPPING, SCHEMA)

WORDS = st.sampled_from(["data", "lake", "lakes", "Data", "spark", "été", "x1"])
TEXTS = st.lists(WORDS, max_size=7).map(" ".join)
ROWS = st.fixed_dictionaries(
    {
        "body": st.none() | TEXTS,
        "stems": st.none() | TEXTS,
        "title": st.none() | TEXTS,
        "tag": st.none() | st.sampled_from(["data", "data lake", "", "x1"]),
        "attrs": st.none()
        | st.fixed_dictionaries({"k": st.none() | TEXTS, "n": st.none() | st.integers(0, 3)}),
        "address": st.none() | st.sampled_from(["10.0.0.1", "10.1.2.3", "2001:db8::1"]),
        "n": st.none() | st.integers(-2, 2),
        "f": st.none() | st.sampled_from([0.0, 1.5, -2.25, float("nan"), float("inf")]),
        "flag": st.none() | st.booleans(),
        "day": st.none() | st.dates(date(2024, 1, 1), date(2024, 1, 4)),
        "ts": st.none() | st.sampled_from([datetime(2024, 1, day, 12, tzinfo=UTC) for day in (1, 2, 3)]),
        "price": st.none() | st.sampled_from([Decimal("0.00"), Decimal("1.25"), Decimal("-3.10")]),
        "total": st.none() | st.sampled_from([Decimal("0.00"), Decimal("12345678901234567890.25")]),
        "blob": st.none() | st.sampled_from([b"", b"\x00\x01", b"data"]),
    }
)
FULL_ROW = {
    "body": "data lake",
    "stems": "lakes",
    "title": "Data",
    "tag": "x1",
    "attrs": {"k": "data", "n": 1},
    "address": "10.0.0.1",
    "n": 1,
    "f": 1.5,
    "flag": True,
    "day": date(2024, 1, 1),
    "ts": datetime(2024, 1, 1, tzinfo=UTC),
    "price": Decimal("1.25"),
    "total": Decimal("1.25"),
    "blob": b"data",
}

LEAVES = st.sampled_from(
    [
        "*", "data", "lake", "body:data", 'body:"data lake"', 'body:"data spark"~3', "body:da*", 'body:"lake data"',
        "body:lkae~1", "body:*", "stems:lakes", "stems:spark", 'title:"data lake"', "title:DATA", "title:d*",
        "title:*", "tag:data", 'tag:IN ["data lake" "x1"]', "tag:d*", "tag:[a TO e]", "tag:*", "tag:dota~1",
        "attrs.k:data", 'attrs.k:"data lake"', "attrs.n:2", "attrs.k:*", "attrs.k:sp*", "address:10.0.0.1",
        "address:10.0.0.0/8", "address:*", "n:1", "n:[-1 TO 1}", "n:*", "f:1.5", "f:>0", "f:*", "flag:true", "flag:*",
        "day:2024-01-02", "day:<2024-01-03", "ts:2024-01-02", "ts:2024-01-02T12:00:00Z", "price:1.25", "price:>=0",
        "total:12345678901234567890.25", "total:>1", "total:*",
    ]
)  # fmt: skip
QUERIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(+{} {} -{})".format, inner, inner, inner),
        st.builds("(NOT {})".format, inner),
        st.builds("({})^2.5".format, inner),
    ),
    max_leaves=5,
)
PREDICATES = st.none() | st.sampled_from(
    [
        "n = 1", "n <> 1", "n IN (0, 2)", "n IS NULL", "tag = 'data'", "tag <> 'data'", "tag IS NOT NULL",
        "NOT (n > 0 OR flag)", "f >= 1.5 AND day <= DATE '2024-01-03'", "price BETWEEN 0 AND 2", "total > 1",
        "blob = X'0001'", "ts IS NULL",
    ]
)  # fmt: skip

COUNT, _, MIN, MAX, SUM, AVG, *_ = MetricFunction
AGGREGATIONS = (
    Aggregation((Metric(COUNT), Metric(SUM, "n"), Metric(AVG, "price"), Metric(MIN, "ts"), Metric(MAX, "f"))),
    Aggregation((Metric(COUNT), Metric(MAX, "n")), (Terms("tag"),)),
    Aggregation((Metric(COUNT), Metric(COUNT, "total")), (Terms("flag"),)),
    Aggregation((Metric(COUNT),), (Histogram("n", 2),)),
)


def build_slim(
    directory: Path, rows: pa.Table, commits: Collection[int] = (), *, is_sorted: bool = False
) -> None:
    """Build a slim index that is committed after these numbers of rows, so that it has as many segments."""
    writer = create_index(directory, MAPPING, is_sorted=is_sorted).writer(MIN_HEAP_BYTES, num_threads=1)
    for batch in rows.combine_chunks().to_batches():
        for number, document in enumerate(DocumentEncoder(MAPPING).documents(batch, 0)):
            if number in commits:
                writer.commit()
            writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    complete_index(directory, MAPPING)


def contents(directory: Path) -> dict[str, bytes]:
    """The files of the only segment, by suffix, because the names are random."""
    return {path.suffix: path.read_bytes() for path in index_files(directory) if path.suffix != ".json"}


def aggregated(index: tantivy.Searcher, query: IndexQuery, aggregation: Aggregation) -> list[dict]:
    partial = aggregate_index(index, query, aggregation, SCOPE)
    return merge_aggregates(aggregation, [partial], SCHEMA).to_pylist()


def answers(index: tantivy.Searcher, query: IndexQuery) -> list[object]:
    """Everything that the project asks an index for."""
    best = [search_index(index, query, limit) for limit in (3, 1000)]
    return [
        *((hits.rows.tolist(), hits.scores.tobytes()) for hits in best),
        matching_rows(index, query).tolist(),
        count_index(index, query),
        *(repr(aggregated(index, query, aggregation)) for aggregation in AGGREGATIONS),
    ]


@given(
    rows=st.lists(ROWS, min_size=1, max_size=40),
    commits=st.sets(st.integers(1, 39), max_size=3),
    questions=st.lists(st.tuples(QUERIES, PREDICATES), min_size=30, max_size=30),
)
@settings(max_examples=10)
def test_a_slim_index_answers_every_query_like_a_plain_one(rows, commits, questions):
    table = pa.Table.from_pylist(rows, SCHEMA)
    plain = build_index(MAPPING, table)
    with tempfile.TemporaryDirectory() as folder:
        build_slim(Path(folder), table, commits)
        slim = open_index(Path(folder), MAPPING, "here")
        assert slim.num_segments == 1
        for text, where in questions:
            predicate = None if where is None else bind(parse_predicate(where), SCHEMA)
            query = compile_with_predicate(SCOPE, parse_query(text), predicate).query
            assert answers(slim, query) == answers(plain, query), (text, where)


@given(st.lists(ROWS, min_size=2, max_size=30), st.sets(st.integers(1, 29), min_size=1, max_size=4))
@example([{}] * 12, set(range(1, 12)))
@settings(max_examples=8)
def test_merged_segments_are_the_segment_that_would_have_been_written_at_once(rows, commits):
    # A merge adds empty dictionaries for columns without any value.
    table = pa.Table.from_pylist([FULL_ROW, *rows], SCHEMA)
    with tempfile.TemporaryDirectory() as merged, tempfile.TemporaryDirectory() as single:
        # Tantivy merges eight segments before the end, which only sorted ones survive.
        build_slim(Path(merged), table, commits, is_sorted=len(commits) > 6)
        build_slim(Path(single), table)
        assert contents(Path(merged)) == contents(Path(single))


@given(st.lists(ROWS, max_size=30), st.sets(st.integers(1, 30), min_size=1, max_size=4))
@settings(max_examples=5)
def test_segments_written_before_and_after_sorting_begins_become_the_same_segment(rows, commits):
    table = pa.Table.from_pylist([FULL_ROW, *rows, FULL_ROW], SCHEMA)
    (batch,) = table.combine_chunks().to_batches()
    with tempfile.TemporaryDirectory() as merged, tempfile.TemporaryDirectory() as single:
        build_slim(Path(single), table)
        index = create_index(Path(merged), MAPPING)
        starts = [0, *sorted(number for number in commits if number < table.num_rows), table.num_rows]
        for start, end in pairwise(starts):
            writer = index.writer(MIN_HEAP_BYTES, num_threads=1)
            for document in DocumentEncoder(MAPPING).documents(batch.slice(start, end - start), start):
                writer.add_document(document)
            writer.commit()
            writer.wait_merging_threads()
            index = sort_index(Path(merged), MAPPING)
        del index  # it would reload while its files change
        complete_index(Path(merged), MAPPING)
        assert contents(Path(merged)) == contents(Path(single))


def test_segments_that_tantivy_has_merged_out_of_row_order_are_an_error(tmp_path):
    # Eight segments are merged, the largest first: the last one.
    with pytest.raises(RowsOutOfOrderError, match=r"out of row order; raise spark\.indextables"):
        build_slim(tmp_path, pa.Table.from_pylist([{"body": "data"}] * 12, SCHEMA), range(1, 8))


def test_a_watch_tells_when_a_second_segment_begins(tmp_path):
    writer = create_index(tmp_path, MAPPING).writer(MIN_HEAP_BYTES, num_threads=1)
    watch = SegmentWatch(tmp_path)
    overflowed = [watch.has_overflowed()]
    rows = pa.RecordBatch.from_pylist([{"body": "data"}, {"body": "lake"}], SCHEMA)
    for document in DocumentEncoder(MAPPING).documents(rows, 0):
        writer.add_document(document)
        writer.commit()
        overflowed.append(watch.has_overflowed())
    writer.wait_merging_threads()
    assert overflowed == [False, False, True]
    assert watch.only_segment is None  # both were complete when they were seen


def test_a_watch_knows_the_only_segment_from_the_time_when_it_was_not_complete(tmp_path):
    writer = create_index(tmp_path, MAPPING).writer(MIN_HEAP_BYTES, num_threads=1)
    watch = SegmentWatch(tmp_path)
    (document,) = DocumentEncoder(MAPPING).documents(pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA), 0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    writer.add_document(document)
    while watch.only_segment is None and time.monotonic() < deadline:
        assert not watch.has_overflowed()
    writer.commit()
    writer.wait_merging_threads()
    assert not watch.has_overflowed()
    assert {path.stem for path in index_files(tmp_path)} == {"meta", watch.only_segment}


def test_rows_that_overflow_the_heap_become_one_segment_in_row_order(tmp_path):
    mapping = DocMapping((text_field("body"), FieldMapping("n", FieldKind.I64)))
    count = 30_000
    rows = pa.record_batch(
        {
            "body": [f"w{n % 7} {n * 2654435761 % 2**32:x} {n:x} and so on" for n in range(count)],
            "n": range(count),
        }
    )
    plain = tantivy.Index(mapping.tantivy_schema())
    writer = plain.writer(MIN_HEAP_BYTES, num_threads=1)
    for document in DocumentEncoder(mapping).documents(rows, 0):
        writer.add_document(document)
    writer.commit()
    plain.reload()
    assert plain.searcher().num_segments > 1

    for name, heap_bytes in (("small", MIN_HEAP_BYTES), ("large", 256_000_000)):
        directory = tmp_path / name
        directory.mkdir()
        builder = IndexBuilder(directory, mapping, heap_bytes)
        builder.add(rows)
        builder.finish()
    assert contents(tmp_path / "small") == contents(tmp_path / "large")
    index = open_index(tmp_path / "small", mapping, "here")
    hits = search_index(index, all_rows(), count)
    assert hits.rows.tolist() == list(range(count))


def test_a_merge_leaves_only_the_files_of_its_segment(tmp_path):
    table = pa.Table.from_pylist([{"body": "data"}, {"body": "lake"}, {"body": "data lake"}], SCHEMA)
    build_slim(tmp_path, table, (1, 2))
    names = {path.name.partition(".")[2] for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"fast", "fieldnorm", "idx", "pos", "store", "term", "json"}
    meta = orjson.loads((tmp_path / "meta.json").read_bytes())
    assert [(segment["max_doc"], segment["deletes"]) for segment in meta["segments"]] == [(3, None)]


def test_a_segment_that_cannot_be_merged_is_an_error(tmp_path):
    writer = create_index(tmp_path, MAPPING).writer(MIN_HEAP_BYTES, num_threads=1)
    rows = pa.RecordBatch.from_pylist([{"body": "data"}, {"body": "lake"}], SCHEMA)
    for document in DocumentEncoder(MAPPING).documents(rows, 0):
        writer.add_document(document)
        writer.commit()
    writer.wait_merging_threads()
    for path in tmp_path.glob("*.pos"):
        path.unlink()
    with pytest.raises(SplitWriteError, match="did not merge the 2 segments"):
        complete_index(tmp_path, MAPPING)


@pytest.mark.usefixtures("busy_watcher")
def test_folders_of_temporary_segments_may_come_back(tmp_path):
    build_slim(tmp_path, pa.Table.from_pylist([{"body": "data"}, {"body": "lake"}], SCHEMA), (1,))
    assert len(index_files(tmp_path)) == 7


def test_a_slim_schema_is_the_one_that_tantivy_writes_and_needs_no_directory(tmp_path, monkeypatch):
    tantivy.Index(MAPPING.tantivy_schema(), path=str(tmp_path), reuse=False)
    expected = orjson.loads((tmp_path / "meta.json").read_bytes())["schema"]
    for field in expected:
        if field["name"] not in {"body", "stems"} and "indexing" in field["options"]:
            field["options"]["indexing"]["fieldnorms"] = False
    clear_process_caches()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert orjson.loads(_slim_schema(MAPPING)) == expected


def test_only_tokenized_columns_have_norms_and_nothing_is_stored(tmp_path):
    count = 1000
    build_slim(tmp_path, pa.Table.from_pylist([{"body": "data", "tag": "x1"}] * count, SCHEMA))
    files = contents(tmp_path)
    scored = {field.name for field in MAPPING if field.has_norms}
    assert scored == {"body", "stems"}
    assert len(scored) * count < len(files[".fieldnorm"]) < (len(scored) + 1) * count
    assert len(files[".store"]) < 200


@pytest.mark.parametrize("row_count", [0, 1])
def test_the_listed_files_are_a_whole_index_with_valid_checksums(tmp_path, row_count):
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    copy.mkdir()
    build_slim(source, pa.Table.from_pylist([{"body": "data"}] * row_count, SCHEMA))
    for path in index_files(source):
        shutil.copy(path, copy)
    index = tantivy.Index.open(str(copy))
    assert index.searcher().num_docs == row_count
    for path in index_files(copy):
        if path.suffix != ".json":
            data = path.read_bytes()
            length = int.from_bytes(data[-8:-4], "little")
            assert orjson.loads(data[-8 - length : -8])["crc"] == zlib.crc32(data[: -8 - length]), path.name


def test_columns_of_single_terms_have_no_norms():
    assert not FieldMapping("a", FieldKind.TEXT, tokenizer="lowercase").has_norms
    assert not FieldMapping("a", FieldKind.STRING).has_norms
    assert FieldMapping("a", FieldKind.TEXT, tokenizer="whitespace").has_norms
