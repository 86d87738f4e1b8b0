"""Random queries after deletes: the answers of a table that never had the rows. Scores may differ."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.errors import InvalidAggregationError, InvalidQueryError
from support.random_queries import SCHEMA, groupings, metrics, predicates, queries, rows_of

SETTINGS = {
    "spark.indextables.indexing.typemap.json": "attrs,raw",
    "spark.indextables.indexing.typemap.ip": "ip,net",
    "spark.indextables.indexing.typemap.text": "body,stem,grams",
    "spark.indextables.indexing.tokenizer.en_stem": "stem",
    "spark.indextables.indexing.tokenizer.ngram": "grams",
    "spark.indextables.indexing.fastfields": "stem",
}
DEFAULTS = ["body", "slow"]
ALL = 100_000


@pytest.fixture(scope="module", params=[(), ("level",)], ids=["one split", "partitions"])
def pair(request, tmp_path_factory) -> tuple[IndexTable, IndexTable]:
    """A table of which a third of the rows was deleted in two steps, and one that never had them."""
    folder = tmp_path_factory.mktemp("pair")
    rows = rows_of(11)
    number = pa.array(range(rows.num_rows), pa.int64())
    numbered = rows.set_column(rows.schema.get_field_index("m"), SCHEMA.field("m"), number)
    is_gone = pc.or_(pc.equal(pc.bit_wise_and(number, 3), 1), pc.less(number, 20))
    gone = number.filter(is_gone).to_pylist()
    tables = []
    for name, content in (("deleted", numbered), ("never", numbered.filter(pc.invert(is_gone)))):
        table = IndexTable.create(str(folder / name), SCHEMA, partition_by=request.param, options=SETTINGS)
        table.append(content)
        tables.append(table)
    deleted, never = tables
    for part in (gone[::2], gone[1::2]):
        deleted.delete(where=f"m IN ({', '.join(map(str, part))})")
    assert deleted.num_rows == never.num_rows < rows.num_rows
    assert deleted.snapshot.has_deletion_vectors
    return deleted, never


def answer(table: IndexTable, ask) -> str:
    try:
        found = ask(table)
    except (InvalidQueryError, InvalidAggregationError) as error:
        return str(error)
    return repr(sorted(map(repr, found.to_pylist())) if isinstance(found, pa.Table) else found)


def check(pair: tuple[IndexTable, IndexTable], ask) -> None:
    deleted, never = pair
    assert answer(deleted, ask) == answer(never, ask)


conditions = st.none() | predicates


@settings(max_examples=15, deadline=None)
@given(query=queries, where=conditions)
def test_the_same_rows_match(pair, query, where):
    check(pair, lambda table: table.search(query, where, limit=ALL, fields=DEFAULTS).drop_columns(["_score"]))
    check(pair, lambda table: table.count(query, where, fields=DEFAULTS))


@settings(max_examples=8, deadline=None)
@given(query=queries, limit=st.integers(1, 30))
def test_the_best_rows_are_as_many_and_among_the_matching_ones(pair, query, limit):
    check(pair, lambda table: table.search(query, limit=limit, fields=DEFAULTS, columns=["m"]).num_rows)


@settings(max_examples=8, deadline=None)
@given(where=predicates)
def test_the_same_rows_are_scanned(pair, where):
    check(pair, lambda table: table.to_arrow(where=where))


@settings(max_examples=15, deadline=None)
@given(
    query=st.none() | queries,
    where=conditions,
    asked=st.lists(metrics, min_size=1, max_size=3),
    by=st.none() | groupings,
)
def test_aggregates_are_the_same(pair, query, where, asked, by):
    check(pair, lambda table: table.aggregate(asked, by, query, where, fields=DEFAULTS))
