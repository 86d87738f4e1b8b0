"""Updating rows: new values in every reader, one commit, and conflicts as of a delete."""

import datetime as dt

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from support.row_tables import SCHEMA, ids, rows

DAY_1, DAY_2 = "2024-01-01", "2024-01-02"


@pytest.fixture
def url(tmp_path) -> str:
    """Ids 0 to 9 on the first day, 10 to 19 on the second."""
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    table.append(rows(*range(10), day=DAY_1))
    table.append(rows(*range(10, 20), day=DAY_2))
    return str(tmp_path / "t")


def bodies(table: IndexTable) -> dict[int, str]:
    found = table.to_arrow()
    return dict(zip(found["id"].to_pylist(), found["body"].to_pylist(), strict=True))


def test_new_values_are_scanned_and_found(url):
    table = IndexTable(url)
    assert table.update({"BODY": "changed"}, where="id IN (3, 13)") == 3
    assert table.count("changed") == 2
    assert table.count("row") == 18
    assert bodies(table) == {n: "changed" if n in (3, 13) else f"row {n}" for n in range(20)}
    assert IndexTable(url, version=2).count("row") == 20
    assert table.num_rows == table.count() == 20
    assert table.fsck(deep=True).is_clean


def test_whole_splits_and_partitions_change(url):
    table = IndexTable(url)
    table.update({"day": DAY_1}, where=f"day = '{DAY_2}'")
    assert table.to_arrow()["day"].unique().to_pylist() == [DAY_1]
    assert ids(table) == list(range(20))


def test_rows_are_chosen_by_a_query_and_set_to_null(url):
    table = IndexTable(url)
    table.update({"body": None}, query="7")
    assert bodies(table)[7] is None
    assert table.count(where="body IS NULL") == 1


def test_nothing_is_committed_if_no_row_matches(url):
    assert IndexTable(url).update({"body": "x"}, where="id > 100") == 2


def test_wrong_requests_change_nothing(url):
    table = IndexTable(url)
    with pytest.raises(InvalidOptionError, match="where='true'"):
        table.update({"body": "x"})
    with pytest.raises(InvalidOptionError, match="at least one column"):
        table.update({}, where="true")
    with pytest.raises(InvalidSchemaError, match="no column 'missing'"):
        table.update({"missing": 1}, where="true")
    with pytest.raises(InvalidValueError, match="cannot be 'x'"):
        table.update({"id": "x"}, where="true")
    with pytest.raises(InvalidOptionError, match="set twice"):
        table.update({"id": 1, "ID": 2}, where="true")
    assert table.refresh().version == 2


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"number": 1.5}, "1.5 is no whole number"),
        ({"number": float("nan")}, "nan is no whole number"),
        ({"ratio": 1e300}, "1e\\+300 is too large"),
        ({"day": dt.datetime(2026, 1, 1, 12)}, "it has a time of day"),
        ({"who": {"nam": "x"}}, "no member 'nam'; the members are name, ages"),
        ({"who": {"name": "x", "ages": [1, 2.5]}}, "2.5 is no whole number"),
    ],
)
def test_a_value_that_would_lose_something_is_refused(tmp_path, values, reason):
    who = pa.struct([("name", pa.string()), ("ages", pa.list_(pa.int32()))])
    schema = pa.schema([("number", pa.int32()), ("ratio", pa.float32()), ("day", pa.date32()), ("who", who)])
    table = IndexTable.create(tmp_path / "t", schema)
    table.append([{"number": 1}])
    with pytest.raises(InvalidValueError, match=reason):
        table.update(values, where="true")
    fitting = {
        "number": 2.0,
        "ratio": 0.5,
        "day": dt.datetime(2026, 1, 1),
        "who": {"name": "x", "ages": [3.0]},
    }
    table.update(fitting, where="true")
    assert table.to_arrow().to_pylist() == [
        {"number": 2, "ratio": 0.5, "day": dt.date(2026, 1, 1), "who": {"name": "x", "ages": [3]}}
    ]


@pytest.mark.parametrize(
    "concurrent",
    [
        lambda table: table.delete(where="id = 4"),
        lambda table: table.update({"body": "other"}, where="id = 4"),
        lambda table: table.overwrite(rows(3, 5, day=DAY_1), where=f"day = '{DAY_1}'"),
        lambda table: table.append(rows(3, day=DAY_1)),
        lambda table: table.set_properties({"owner": "me"}),
    ],
    ids=["delete", "update", "overwrite", "append", "metadata"],
)
def test_an_update_after_a_concurrent_commit_loses_and_repeats_no_row(url, concurrent):
    stale, other = IndexTable(url), IndexTable(url)
    concurrent(other)
    expected = ids(other)
    stale.update({"body": "changed"}, where="id = 3")
    newest = IndexTable(url)
    assert ids(newest) == expected
    assert newest.count("changed") == 1
    assert newest.fsck(deep=True).is_clean


def test_an_update_of_a_row_that_was_deleted_meanwhile_does_nothing(url):
    stale, other = IndexTable(url), IndexTable(url)
    other.delete(where="id = 3")
    stale.update({"body": "changed"}, where="id = 3")
    assert ids(IndexTable(url)) == ids(other)
    assert IndexTable(url).version == other.version


def test_the_schema_of_an_update_is_the_tables(url):
    table = IndexTable(url)
    table.update({"id": 100}, where="id = 1")
    assert table.to_arrow().schema == pa.schema(list(SCHEMA))
