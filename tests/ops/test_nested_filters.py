"""Filters over members of structs and keys of maps, as DuckDB answers them, and searches of all columns."""

import pickle

import duckdb
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import InvalidPredicateError, InvalidQueryError
from indextables.predicates import bind, columns_of, parse_predicate

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        (
            "user",
            pa.struct(
                [
                    ("name", pa.string()),
                    ("age", pa.int64()),
                    ("address", pa.struct([("city", pa.string())])),
                ]
            ),
        ),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("tags", pa.list_(pa.string())),
        ("a.b", pa.int64()),
        ("text", pa.string()),
    ]
)
ROWS = [
    {
        "id": 1,
        "user": {"name": "Ann", "age": 30, "address": {"city": "Rome"}},
        "labels": [("env", "prod")],
        "a.b": 1,
    },
    {
        "id": 2,
        "user": {"name": "Bob", "age": None, "address": None},
        "labels": [("env", "test"), ("x.y", "1")],
    },
    {"id": 3, "user": {"name": None, "age": 7, "address": {"city": None}}, "labels": [], "tags": ["Ann"]},
    {"id": 4, "user": None, "labels": None, "text": "for Ann and Rome"},
]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> IndexTable:
    path = str(tmp_path_factory.mktemp("nested") / "table")
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["text"])
    for day, rows in (("1", ROWS[:2]), ("2", ROWS[2:])):
        table.append(pa.Table.from_pylist([{**row, "day": day} for row in rows], SCHEMA))
    return table


@pytest.mark.parametrize(
    "where",
    [
        "user.name = 'Ann'",
        "user.name <> 'Ann'",
        "NOT (user.name = 'Ann' OR user.age < 10)",
        "user.age > 6.5 AND id < 4",
        "user.age IN (7, 8) OR user.name LIKE 'B%'",
        "user.name IS NULL",
        "user.name IS NOT NULL AND day = '1'",
        "user.address.city = 'Rome'",
        "`user`.`address`.`city` IS NULL",
        '"a.b" = 1',
    ],
)
def test_members_of_structs_are_filtered_as_duckdb_does(table, where):
    everything = table.to_arrow()  # noqa: F841 - DuckDB finds it by its name
    expected = duckdb.sql(f"SELECT id FROM everything WHERE {where.replace('`', '')} ORDER BY id").fetchall()
    ours = where.replace('"a.b"', "`a.b`")
    found = sorted(table.to_arrow(where=ours, columns=["id"])["id"].to_pylist())
    assert found == [number for (number,) in expected]
    assert table.count(where=ours) == len(found)
    assert sorted(table.search("*", where=ours, columns=["id"])["id"].to_pylist()) == found


def test_keys_of_maps_are_filtered_and_may_have_dots(table):
    assert table.to_arrow(where="labels.env = 'prod'", columns=["id"])["id"].to_pylist() == [1]
    assert table.to_arrow(where="labels.x.y = '1'", columns=["id"])["id"].to_pylist() == [2]
    assert table.count(where="labels.env IS NULL") == 2


def test_rows_are_deleted_by_the_member_of_a_struct(tmp_path):
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA)
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    table.delete(where="user.name = 'Bob'")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 3, 4]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("user.nam = 'Ann'", "'user' has no member 'nam'; did you mean 'name'"),
        ("user.address.zip = '1'", "'user.address' has no member 'zip'; did you mean|it has city"),
        ("tags.x = '1'", "search inside lists and JSON with a query, as in tags.x:value"),
        ("id.x = 1", "'id' has the type int64"),
        ("nobody.x = 1", "there is no column 'nobody.x'"),
        ("user.age = 'old'", "column 'user.age' has the type int64"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_with_a_remedy(table, where, message):
    with pytest.raises(InvalidPredicateError, match=message):
        table.count(where=where)


def test_a_bound_path_is_pickled_and_names_its_column():
    bound = bind(parse_predicate("USER.Name = 'Ann' AND labels.env = 'x'"), SCHEMA)
    assert columns_of(bound) == {"user", "labels"}
    assert columns_of(pickle.loads(pickle.dumps(bound))) == {"user", "labels"}
    assert pickle.loads(pickle.dumps(bound)) == bound


def test_all_columns_are_searched_where_fields_is_a_star(table):
    def found(query: str, fields: str) -> list[int]:
        return sorted(table.search(query, columns=["id"], fields=fields)["id"].to_pylist())

    assert found("Ann", "text") == [4]
    assert found("Ann", "*") == [1, 3, 4]
    assert found("30", "*") == [1]
    assert found("rome", "*") == [1, 4]
    assert found("2", "*") == [2, 3, 4]  # an id, and a partition
    assert found('"ann and rome"', "*") == [4]
    assert found("An*", "*") == [1, 3, 4]
    assert table.count("ann", fields=["*"]) == 3


def test_a_word_that_fits_none_of_the_fields_is_an_error(table):
    with pytest.raises(InvalidQueryError, match="whole number"):
        table.search("abc", fields=["id", "a\\.b"])
