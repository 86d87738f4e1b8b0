"""Indexes that are only partly on local disk: what counts and aggregations read of them."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from indextables.search import Aggregation, Metric, MetricFunction, Terms
from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import count_index, search_index
from indextables.search.merge_aggregates import merge_aggregates
from indextables.search.parser import parse_query
from indextables.search.split_aggregate import aggregate_index
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_opener import open_index
from support.search_indexes import string_field, text_field

# Opening an index reads the footers of these files.
KEPT_BYTES = 4096
COUNT = 20_000

SCHEMA = pa.schema([("n", pa.int64()), ("level", pa.string()), ("body", pa.string())])
MAPPING = DocMapping((FieldMapping("n", FieldKind.I64), string_field("level", fast=True), text_field("body")))
SCOPE = SearchScope(MAPPING, SCHEMA)
ROWS = pa.table(
    {
        "n": range(COUNT),
        "level": [("info", "warn", "error")[n % 3] for n in range(COUNT)],
        "body": [f"w{n % 7} {n * 2654435761 % 2**32:x} and so on" for n in range(COUNT)],
    },
    schema=SCHEMA,
)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory) -> Path:
    """An index whose stored documents and positions are holes, except for their last bytes."""
    folder = tmp_path_factory.mktemp("index")
    builder = IndexBuilder(folder, MAPPING, 256_000_000)
    for batch in ROWS.to_batches():
        builder.add(batch)
    builder.finish()
    emptied = [path for path in folder.iterdir() if path.suffix in (".store", ".pos")]
    assert {path.suffix for path in emptied} == {".store", ".pos"}
    for path in emptied:
        _make_hole(path)
    return folder


def _make_hole(path: Path) -> None:
    data = path.read_bytes()
    kept = data[-KEPT_BYTES:]
    path.unlink()
    with path.open("wb") as file:
        os.truncate(file.fileno(), len(data))
        file.seek(len(data) - len(kept))
        file.write(kept)


def query(text: str):
    return compile_query(parse_query(text), SCOPE)


def test_terms_and_ranges_are_counted_without_stored_documents_and_positions(sparse):
    index = open_index(sparse, MAPPING, "here")
    assert count_index(index, query("body:w3")) == len(range(3, COUNT, 7))
    assert count_index(index, query("level:warn AND n:[100 TO 199]")) == len(range(100, 200, 3))
    assert search_index(index, query("n:12345"), 5).rows.tolist() == [12_345]


def test_aggregations_are_answered_without_stored_documents_and_positions(sparse):
    index = open_index(sparse, MAPPING, "here")
    aggregation = Aggregation(
        (Metric(MetricFunction.COUNT), Metric(MetricFunction.MAX, "n")), (Terms("level"),)
    )
    partial = aggregate_index(index, query("body:w3"), aggregation, SCOPE)
    found = merge_aggregates(aggregation, [partial], SCHEMA).to_pylist()
    matching = range(3, COUNT, 7)
    for row in found:
        numbers = [n for n in matching if ("info", "warn", "error")[n % 3] == row["level"]]
        assert (row["count"], row["max(n)"]) == (len(numbers), max(numbers))
    assert len(found) == 3
