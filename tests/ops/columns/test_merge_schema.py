"""Appends that add the columns of their rows, in one commit."""

import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from indextables.errors import CommitConflictError, InvalidSchemaError
from indextables.ingest.operation import IngestRequest, ingest
from support.row_tables import ids, split_files


@pytest.fixture
def table(tmp_path) -> IndexTable:
    who = pa.struct([("name", pa.string())])
    table = IndexTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("who", who)]))
    table.append([{"id": 1, "who": {"name": "anna"}}])
    return table


def test_columns_and_members_are_added_with_their_rows(table):
    assert (
        table.append([{"id": 2, "level": "WARN", "who": {"name": "bob", "age": 5}}], merge_schema=True) == 2
    )
    assert table.schema.names == ["id", "who", "level"]
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "who": {"name": "anna", "age": None}, "level": None},
        {"id": 2, "who": {"name": "bob", "age": 5}, "level": "WARN"},
    ]
    assert ids(table, where="level = 'WARN'") == table.search("who.age:5")["id"].to_pylist() == [2]
    assert table.protocol.reader_features is None
    assert table.fsck(deep=True).is_clean


def test_the_name_of_a_dropped_column_is_not_that_column(table):
    table.drop_column("who")
    table.append([{"id": 2, "who": "carl"}], merge_schema=True)
    assert table.to_arrow(columns=["who"])["who"].to_pylist() == [None, "carl"]
    assert table.search("who:carl", columns=["id"])["id"].to_pylist() == [2]


def test_rows_without_new_columns_are_an_ordinary_append(table):
    table.append([{"id": 2}], merge_schema=True)
    assert table.history()["operation"].to_pylist()[0] == "WRITE"
    with pytest.raises(InvalidSchemaError, match="level"):
        table.append([{"id": 3, "level": "INFO"}])


@pytest.mark.parametrize("other", ["append", "rename", "comment"])
def test_commits_that_change_no_new_column_do_not_matter(table, other):
    stale = IndexTable(table.snapshot.context.url)
    match other:
        case "append":
            table.append([{"id": 5}])
        case "rename":
            table.rename_column("who.name", "login")
        case "comment":
            table.alter_column("id", comment="key")
    stale.append([{"id": 2, "level": "WARN"}], merge_schema=True)
    assert ids(IndexTable(stale.snapshot.context.url), where="level = 'WARN'") == [2]


@pytest.mark.parametrize("column", ["level", "other"])
def test_a_concurrent_new_column_is_a_conflict(table, tmp_path, column):
    """It took the id that the new splits have for theirs."""
    stale = IndexTable(table.snapshot.context.url)
    table.add_column(column, "string")
    with pytest.raises(CommitConflictError, match=r"write again|same column"):
        stale.append([{"id": 2, "level": "WARN"}], merge_schema=True)
    assert ids(IndexTable(table.snapshot.context.url)) == [1]
    assert len(split_files(tmp_path / "t")) == 1


def test_write_adds_columns_if_it_is_told_to(tmp_path):
    path = str(tmp_path / "t")
    indextables.write(path, [{"id": 1}])
    with pytest.raises(InvalidSchemaError, match="merge_schema=True"):
        indextables.write(path, [{"id": 2, "level": "WARN"}])
    found = indextables.write(path, [{"id": 2, "level": "WARN"}], merge_schema=True)
    assert found.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "level": None},
        {"id": 2, "level": "WARN"},
    ]


def test_index_adds_the_new_fields_of_all_inputs_to_a_table(tmp_path):
    path = str(tmp_path / "t")
    indextables.write(path, [{"id": 1}])
    (tmp_path / "a.jsonl").write_text('{"id": 2, "n": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"id": 3, "n": 1.5, "level": "WARN"}\n')
    places = (str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
    with pytest.raises(InvalidSchemaError, match="field 'n' is not in the table"):
        ingest(IngestRequest(places=places, path=path))
    result = ingest(IngestRequest(places=places, path=path, new_fields="add"))
    assert result.num_rows == 2
    table = IndexTable(path)
    assert [str(field.type) for field in table.schema] == ["int64", "double", "string"]
    assert table.to_arrow(columns=["id", "n"]).sort_by("id")["n"].to_pylist() == [None, 1.0, 1.5]
    assert table.version == 1
