"""Tables written on the JVM: their rows, and searches, counts and aggregations over them."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables import IndexTable
from indextables.errors import InvalidQueryError
from indextables.schema import recorded_field_ids

FIXTURES = Path(__file__).parents[2] / "../shared/fixtures"

pytestmark = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the tables of the reference implementation are not at ../shared/fixtures"
)

EXPECTED = json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.is_dir() else {}


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def expected(name):
    return EXPECTED[name]


@pytest.fixture(scope="module")
def table(name):
    return IndexTable(FIXTURES / name)


@pytest.fixture(scope="module")
def rows(table):
    return table.to_arrow()


def text_column(table):
    return next(field.name for field in table.schema if field.name in ("text", "body", "title"))


def test_all_rows_come_back(table, rows, expected):
    assert rows.schema.names == expected["columns"]
    assert rows.num_rows == expected["rows"]
    assert pc.sum(rows["id"]).as_py() == expected["idSum"]
    assert not any(column.null_count for column in rows.columns)


def test_the_log_counts_the_rows(table, expected):
    assert table.count() == table.num_rows == expected["numRecords"]


def test_where_selects_rows_and_the_index_counts_them(table, rows):
    middle = sorted(rows["id"].to_pylist())[rows.num_rows // 2]
    below = rows.filter(pc.field("id") < middle)
    assert counted(table.to_arrow(where=f"id < {middle}")) == counted(below)
    assert table.count(where=f"id < {middle}") == below.num_rows


def counted(table):
    return sorted(map(repr, table.to_pylist()))


def test_every_row_is_found_by_its_number_and_by_its_text(table, rows):
    column = text_column(table)
    for row in rows.slice(0, 3).to_pylist():
        (found,) = table.search(f"id:{row['id']}").drop_columns(["_score"]).to_pylist()
        assert found == row
        text = row[column].replace('"', '\\"')
        assert row in table.search(f'{column}:"{text}"', limit=100).drop_columns(["_score"]).to_pylist()


def test_a_search_for_everything_finds_all_rows(table, rows, expected):
    found = table.search("*", limit=1000)
    assert counted(found.drop_columns(["_score"])) == counted(rows)
    assert table.count("*") == expected["rows"]
    assert table.search("*", limit=2).num_rows == 2


def test_aggregations_agree_with_the_rows(table, rows, expected):
    (found,) = table.aggregate(["count", "sum(id)", "min(id)", "max(id)"]).to_pylist()
    assert found == {
        "count": expected["rows"],
        "sum(id)": expected["idSum"],
        "min(id)": pc.min(rows["id"]).as_py(),
        "max(id)": pc.max(rows["id"]).as_py(),
    }
    for column in expected["partitionColumns"]:
        groups = table.aggregate(["count", "sum(id)"], by=column).sort_by(column).to_pylist()
        by_rows = rows.group_by(column).aggregate([("id", "count"), ("id", "sum")]).sort_by(column)
        assert groups == [
            {column: row[column], "count": row["id_count"], "sum(id)": row["id_sum"]}
            for row in by_rows.to_pylist()
        ]


def test_an_unknown_field_is_refused_also_where_no_split_is_asked(table):
    for where in (None, "id < -1000000"):
        with pytest.raises(InvalidQueryError, match="'nope'") as failure:
            table.search("nope:1", where=where)
        assert failure.value.position == 0
        assert table.search(f"id:5 AND {text_column(table)}:zzz", where=where).num_rows == 0


def test_a_checkpoint_and_a_property_leave_the_schema_as_the_jvm_wrote_it(table, name, rows, tmp_path):
    copy = shutil.copytree(FIXTURES / name, tmp_path / "table")
    IndexTable(copy).set_properties({"owner": "me"})
    IndexTable(copy).checkpoint()
    opened = IndexTable(copy)
    assert opened.metadata.schema_string == table.metadata.schema_string
    assert dict(opened.metadata.configuration) == {**table.metadata.configuration, "owner": "me"}
    assert opened.to_arrow().equals(rows)


def test_rows_can_be_appended_and_are_found_among_the_others(table, name, rows, tmp_path):
    copy = shutil.copytree(FIXTURES / name, tmp_path / "table")
    ours = IndexTable(copy, options={"spark.indextables.protocol.convertJvmTables": "true"})
    new = rows.slice(0, 1).set_column(0, "id", pa.array([777_777], rows.schema.field("id").type))
    assert ours.append(new) == table.version + 1
    opened = IndexTable(copy)
    assert recorded_field_ids(table.metadata.schema_string) == ()
    assert recorded_field_ids(opened.metadata.schema_string) == tuple(range(1, len(table.schema) + 1))
    assert opened.schema.equals(table.schema, check_metadata=True)
    assert opened.num_rows == rows.num_rows + 1
    assert pc.sum(opened.to_arrow()["id"]).as_py() == pc.sum(rows["id"]).as_py() + 777_777
    (found,) = opened.search("id:777777").to_pylist()
    assert found["id"] == 777_777
    (sums,) = opened.aggregate(["count", "sum(id)"]).to_pylist()
    assert sums == {"count": rows.num_rows + 1, "sum(id)": pc.sum(rows["id"]).as_py() + 777_777}
