"""Repeated searches: cached splits never make results stale."""

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.errors import InvalidQueryError, ObjectNotFoundError

SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string())])


@pytest.fixture
def table(tmp_path):
    table = IndexTable.create(str(tmp_path / "table"), SCHEMA, text=["body"])
    table.append(pa.table({"id": [1, 2], "body": ["red fox", "blue fox"]}, schema=SCHEMA))
    return table


def found(table, query, **options):
    return sorted(table.search(query, **options)["id"].to_pylist())


def test_a_search_sees_rows_that_were_appended_since_the_last_one(table):
    assert found(table, "fox") == [1, 2]
    table.append(pa.table({"id": [3], "body": ["grey fox"]}, schema=SCHEMA))
    assert found(table, "fox") == [1, 2, 3]


def test_a_search_does_not_see_rows_that_were_overwritten_since_the_last_one(table):
    assert found(table, "fox") == [1, 2]
    table.overwrite(pa.table({"id": [4], "body": ["green fox"]}, schema=SCHEMA))
    assert found(table, "fox") == [4]


def test_one_query_with_other_predicates_fields_and_limits(table):
    for _ in range(2):
        assert found(table, "fox", where="id = 1") == [1]
        assert found(table, "fox", where="id = 2") == [2]
        assert found(table, "fox", fields=["body"]) == [1, 2]
        assert len(table.search("fox", limit=1)) == 1


def test_a_wrong_query_is_refused_each_time(table):
    for _ in range(2):
        with pytest.raises(InvalidQueryError):
            table.search("nowhere:fox")


def test_rows_of_a_split_that_is_gone_are_an_error(table, tmp_path):
    for split in (tmp_path / "table").glob("*.split"):
        split.unlink()
    with pytest.raises(ObjectNotFoundError):
        table.search("fox")
