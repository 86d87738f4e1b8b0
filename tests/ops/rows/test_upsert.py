"""Merging rows by key: updates, deletes and inserts in one commit, as SQL's MERGE does it."""

from datetime import date
from decimal import Decimal

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable, expr
from indextables.errors import (
    InvalidExpressionError,
    InvalidOptionError,
    InvalidSchemaError,
    InvalidValueError,
)
from indextables.ops.upsert import UpsertRequest, upsert
from support.row_tables import SMALL_SPLITS

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("body", pa.string())])


def table_of(*rows: tuple[int | None, str | None, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def content(table: IndexTable) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_arrow().to_pylist()), key=repr)


@pytest.fixture
def url(tmp_path) -> str:
    """Three rows on two days, in two partitions."""
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    table.append(table_of((1, "a", 1, "one"), (2, "a", 2, "two"), (3, "b", 3, "three")))
    return str(tmp_path / "t")


SOURCE = table_of((2, "a", 20, "twenty"), (4, "b", 40, "forty"))


def test_matched_rows_are_updated_and_the_others_inserted_in_one_commit(url):
    table = IndexTable(url)
    assert table.merge(SOURCE, on=["id"]) == 2
    assert content(table) == [
        (1, "a", 1, "one"),
        (2, "a", 20, "twenty"),
        (3, "b", 3, "three"),
        (4, "b", 40, "forty"),
    ]
    assert (table.count("two"), table.count("twenty"), table.count("forty")) == (0, 1, 1)
    assert content(IndexTable(url, version=1)) == [
        (1, "a", 1, "one"),
        (2, "a", 2, "two"),
        (3, "b", 3, "three"),
    ]
    [commit, *_] = table.history().to_pylist()
    assert commit["operation"] == "MERGE ROWS"
    metrics = dict(commit["operation_metrics"])
    assert (metrics["numUpdatedRows"], metrics["numDeletedRows"], metrics["numInsertedRows"]) == (1, 0, 1)
    assert table.fsck(deep=True).is_clean


def test_the_source_may_be_a_frame_of_polars(url):
    table = IndexTable(url)
    table.merge(
        pl.DataFrame({"id": [2, 4], "day": ["a", "b"], "n": [20, 40], "body": ["twenty", "forty"]}), on=["id"]
    )
    assert table.to_arrow(where="id in (2, 4)").sort_by("id")["body"].to_pylist() == ["twenty", "forty"]


def test_a_row_moves_to_the_partition_of_its_new_value(url):
    table = IndexTable(url)
    table.merge(table_of((2, "c", 2, "two")), on="id")
    assert table.to_arrow(where="day = 'c'")["id"].to_pylist() == [2]
    assert table.num_rows == 3


def test_an_upsert_without_a_difference_in_keys_twice_keeps_the_rows(url):
    table = IndexTable(url)
    table.merge(SOURCE, on=["id"])
    before = content(table)
    table.merge(SOURCE, on=["id"])
    assert content(table) == before


def test_columns_that_the_source_lacks_stay_and_are_null_in_new_rows(url):
    table = IndexTable(url)
    table.merge(pa.table({"ID": [2, 9], "n": [22, 99]}), on=["id"])
    assert content(table) == [
        (1, "a", 1, "one"),
        (2, "a", 22, "two"),
        (3, "b", 3, "three"),
        (9, None, 99, None),
    ]


def test_keys_may_have_other_names_and_types_in_the_source(url):
    table = IndexTable(url)
    source = pa.table({"key": pa.array([1, 7], pa.int8()), "extra": ["x", "y"]})
    table.merge(
        source,
        on={"id": "key"},
        when_matched_update={"body": expr("target.body || source.extra")},
        when_not_matched_insert={"id": expr("source.key"), "day": "z", "body": expr("extra")},
    )
    assert content(table)[0] == (1, "a", 1, "onex")
    assert content(table)[-1] == (7, "z", None, "y")


def test_only_inserts_only_updates_and_only_deletes(url):
    table = IndexTable(url)
    table.merge(SOURCE, on="id", when_matched_update=False)
    assert [row[0] for row in content(table)] == [1, 2, 3, 4]
    assert table.count("twenty") == 0
    table.restore(version=1)
    table.merge(SOURCE, on="id", when_not_matched_insert=False)
    assert [row[:3:2] for row in content(table)] == [(1, 1), (2, 20), (3, 3)]
    table.merge(SOURCE, on="id", when_matched_delete=True, when_not_matched_insert=False)
    assert [row[0] for row in content(table)] == [1, 3]


def test_conditions_choose_what_is_deleted_updated_and_inserted(url):
    table = IndexTable(url)
    source = table_of(
        (1, "a", 10, "x"), (2, "a", 0, "x"), (3, "b", None, "x"), (5, "b", 5, "x"), (6, "b", 6, "x")
    )
    table.merge(
        source,
        on="id",
        when_matched_delete="source.n = 0",
        when_matched_update={"n": expr("target.n + coalesce(source.n, 100)")},
        when_not_matched_insert="n > 5",
    )
    assert [row[:3:2] for row in content(table)] == [(1, 11), (3, 103), (6, 6)]


def test_a_null_in_a_key_matches_nothing_and_is_inserted(url):
    table = IndexTable(url)
    nothing = table_of((None, "a", 0, "null"))
    table.append(nothing)
    table.merge(nothing, on="id")
    assert table.count(where="id IS NULL") == 2
    table.merge(nothing, on=["day", "id"])
    assert table.count(where="id IS NULL") == 3


@pytest.mark.parametrize("on", [["key"], ["key", "n"], ["n", "key"]])
def test_a_null_in_a_key_of_floats_matches_nothing(tmp_path, on):
    """Splits are not pruned by floats, so the keys themselves have to tell."""
    nothing = pa.table({"key": pa.array([None, 0.5]), "n": [1, 2]})
    table = IndexTable.create(str(tmp_path / "t"), nothing.schema)
    table.append(nothing)
    table.merge(nothing, on=on)
    assert table.count(where="key IS NULL") == 2
    assert table.num_rows == 3


def test_repeated_keys_of_the_source_are_an_error_only_if_they_match(url):
    table = IndexTable(url)
    twice = table_of((2, "a", 5, "x"), (2, "a", 6, "y"))
    with pytest.raises(InvalidValueError, match="2 rows of the source match the same row, with id = 2"):
        table.merge(twice, on="id")
    assert table.refresh().version == 1
    table.merge(twice, on="id", when_matched_update=False)
    assert table.version == 1
    table.merge(twice, on="id", when_matched_delete=True)
    assert [row[0] for row in content(table)] == [1, 3]
    table.merge(twice, on="id")
    assert [row[0] for row in content(table)] == [1, 2, 2, 3]
    table.merge(table_of((2, "a", 7, "both")), on="id")
    assert [row[2] for row in content(table) if row[0] == 2] == [7, 7]


def test_rows_in_several_splits_with_deleted_rows_are_found(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, options=SMALL_SPLITS)
    for first in (0, 100, 200):
        table.append(table_of(*((first + n, "a", n, "x") for n in range(100))))
    table.delete(where="id IN (5, 105)")
    table.merge(table_of(*((id_, "b", 0, "new") for id_ in (5, 6, 106, 299, 300))), on="id")
    assert sorted(table.to_arrow(where="day = 'b'")["id"].to_pylist()) == [5, 6, 106, 299, 300]
    assert table.num_rows == table.count() == 300
    assert table.fsck(deep=True).is_clean


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        (pa.array([True, False, None]), True),
        (pa.array([1.5, -0.0, float("nan")]), 0.0),
        (pa.array([Decimal("1.10"), Decimal("2.20"), None], pa.decimal128(9, 2)), Decimal("1.10")),
        (pa.array([date(2024, 1, 1), date(2024, 1, 2), None]), date(2024, 1, 2)),
        (pa.array([1, 2, None], pa.timestamp("us", "UTC")), 2),
        (pa.array([b"a", b"b", None]), b"b"),
        (pa.array(["ä", "b" * 300, ""]), "b" * 300),
    ],
    ids=["boolean", "float", "decimal", "date", "timestamp", "binary", "string"],
)
def test_every_plain_type_can_be_a_key(tmp_path, keys, more):
    schema = pa.schema([("key", keys.type), ("n", pa.int64())])
    table = IndexTable.create(str(tmp_path / "t"), schema)
    table.append(pa.table([keys, [1, 2, 3]], schema=schema))
    table.merge(pa.table([pa.array([more], keys.type), [9]], schema=schema), on="key")
    assert (table.num_rows, table.count(where="n = 9")) == (3, 1)


def test_wrong_requests_change_nothing(url):
    table = IndexTable(url)
    with pytest.raises(InvalidOptionError, match="at least one key column"):
        table.merge(SOURCE, on=[])
    with pytest.raises(InvalidOptionError, match="named twice"):
        table.merge(SOURCE, on=["id", "id"])
    with pytest.raises(InvalidSchemaError, match="the source has no key column 'day'"):
        table.merge(SOURCE.select(["id"]), on=["id", "day"])
    with pytest.raises(InvalidSchemaError, match="the table has no key column 'nope'"):
        table.merge(SOURCE, on="nope")
    with pytest.raises(InvalidSchemaError, match="'more' is not in the table"):
        table.merge(SOURCE.append_column("more", pa.array([1, 2])), on="id")
    with pytest.raises(InvalidSchemaError, match="'id' is int64, and string in the source"):
        table.merge(pa.table({"id": ["1"]}), on="id")
    with pytest.raises(InvalidValueError, match="a key 'id' of the source is no int64"):
        table.merge(pa.table({"id": [1.5]}), on="id")
    with pytest.raises(InvalidOptionError, match="leaves no row to update"):
        table.merge(SOURCE, on="id", when_matched_update=True, when_matched_delete=True)
    with pytest.raises(InvalidOptionError, match="neither updates, deletes nor inserts"):
        table.merge(SOURCE, on="id", when_matched_update=False, when_not_matched_insert=False)
    with pytest.raises(InvalidExpressionError, match=r"'source\.n' is int64, and no condition"):
        table.merge(SOURCE, on="id", when_matched_delete="source.n")
    with pytest.raises(InvalidExpressionError, match=r"Ambiguous reference to unqualified field n"):
        table.merge(SOURCE, on="id", when_matched_update={"n": expr("n + 1")})
    with pytest.raises(InvalidExpressionError, match="No field named target"):
        table.merge(SOURCE, on="id", when_not_matched_insert={"id": expr("target.id")})
    assert table.refresh().version == 1


def test_required_columns_need_values(tmp_path):
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = IndexTable.create(str(tmp_path / "t"), schema)
    table.append(pa.table({"id": [1], "n": [1]}, schema=schema))
    with pytest.raises(InvalidSchemaError, match="column 'n' is missing"):
        table.merge(pa.table({"id": [2]}), on="id")
    with pytest.raises(
        InvalidValueError, match="column 'n' cannot be null; give it a value for inserted rows"
    ):
        table.merge(pa.table({"id": [2]}), on="id", when_not_matched_insert={"id": expr("source.id")})
    with pytest.raises(InvalidValueError, match="column 'n' cannot be null"):
        table.merge(pa.table({"id": [1], "n": pa.array([None], pa.int64())}), on="id")
    assert table.refresh().version == 1


def test_a_dry_run_counts_rows_by_partition_and_commits_nothing(url):
    table = IndexTable(url)
    result = upsert(table.snapshot, UpsertRequest(SOURCE, {"id": "id"}, dry_run=True))
    assert (result.status.value, result.updated_rows, result.deleted_rows, result.inserted_rows) == (
        "DRY_RUN",
        1,
        0,
        1,
    )
    assert [(each.partition, each.rows) for each in result.partitions] == [
        ({"day": "a"}, 1),
        ({"day": "b"}, 1),
    ]
    assert table.refresh().version == 1


def test_an_empty_source_and_a_source_without_effect_commit_nothing(url):
    table = IndexTable(url)
    assert table.merge(SOURCE.slice(0, 0), on="id") == 1
    assert (
        table.merge(
            SOURCE,
            on="id",
            when_matched_delete="false",
            when_matched_update=False,
            when_not_matched_insert="source.n > 1000",
        )
        == 1
    )


def test_only_splits_that_may_have_a_key_are_opened(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA)
    for first in (0, 1000):
        table.append(table_of(*((first + n, "a", n, "x") for n in range(3))))
    (tmp_path / "t" / table.files(where="id >= 1000")["path"][0].as_py()).unlink()
    table.merge(table_of((1, "b", 1, "y"), (500, "b", 1, "y")), on="id")
    assert table.num_rows == 7


_KEYS = st.integers(0, 6) | st.none()
_ROWS = st.lists(
    st.tuples(_KEYS, st.sampled_from("ab") | st.none(), st.integers(0, 9), st.just("w")), max_size=8
)


@settings(max_examples=25, deadline=None)
@given(
    rows=_ROWS,
    more=_ROWS,
    source=st.lists(
        st.tuples(_KEYS, st.sampled_from("ab") | st.none(), st.integers(0, 9), st.just("v")),
        max_size=8,
        unique_by=lambda row: row[:2],
    ),
    limit=st.integers(0, 9),
)
def test_merges_equal_those_of_duckdb(tmp_path_factory, rows, more, source, limit):
    table = IndexTable.create(str(tmp_path_factory.mktemp("m") / "t"), SCHEMA, partition_by=["day"])
    oracle = duckdb.connect()
    first, second, merged = table_of(*rows), table_of(*more), table_of(*source)  # DuckDB reads them
    oracle.execute("CREATE TABLE t AS SELECT * FROM first UNION ALL SELECT * FROM second")
    oracle.execute(f"""
        MERGE INTO t USING merged s ON t.id = s.id AND t.day = s.day
        WHEN MATCHED AND s.n < {limit} THEN DELETE
        WHEN MATCHED THEN UPDATE SET n = t.n * 10 + s.n
        WHEN NOT MATCHED AND s.n >= {limit} THEN INSERT BY NAME
    """)
    table.append(first)
    table.append(second)
    table.merge(
        merged,
        on=["id", "day"],
        when_matched_delete=f"source.n < {limit}",
        when_matched_update={"n": expr("target.n * 10 + source.n")},
        when_not_matched_insert=f"source.n >= {limit}",
    )
    assert content(table) == sorted(oracle.execute("SELECT * FROM t").fetchall(), key=repr)
