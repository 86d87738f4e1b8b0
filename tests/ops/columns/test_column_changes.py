"""What each schema change does to a table: its protocol, its settings, its splits of before, and its errors."""

import datetime as dt

import pyarrow as pa
import pytest

from indextables import IndexTable, repair_table
from indextables.errors import (
    InvalidAggregationError,
    InvalidQueryError,
    InvalidSchemaError,
    InvalidValueError,
)
from indextables.log.actions import COLUMN_MAPPING

TAG = pa.struct([("name", pa.string()), ("weight", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("body", pa.string()),
        ("day", pa.string()),
        ("who", pa.struct([("name", pa.string()), ("tags", pa.list_(TAG))])),
        ("counts", pa.map_(pa.string(), TAG)),
    ]
)
ROW = {
    "id": 1,
    "body": "disk full",
    "day": "mon",
    "who": {"name": "anna", "tags": [{"name": "red", "weight": 1}]},
    "counts": [("k", {"name": "blue", "weight": 2})],
}


@pytest.fixture
def table(tmp_path) -> IndexTable:
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"], text=["body"])
    table.append(pa.Table.from_pylist([ROW], schema=SCHEMA))
    return table


def found(table: IndexTable, query: str) -> list[int]:
    return table.search(query, columns=["id"])["id"].to_pylist()


def features(table: IndexTable) -> tuple[str, ...] | None:
    return IndexTable(table.snapshot.context.url).protocol.reader_features


def test_only_changes_that_old_readers_would_get_wrong_need_a_feature(table):
    table.add_column("plain", "int", comment="nothing special", position="first")
    table.alter_column("id", comment="key", position="after body")
    assert features(table) is None
    table.add_column("level", "string", default="INFO")
    assert features(table) == (COLUMN_MAPPING,)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.rename_column("id", "key"),
        lambda table: table.drop_column("id"),
        lambda table: table.alter_column("id", "long"),
    ],
)
def test_other_changes_need_the_feature(table, change):
    change(table)
    assert features(table) == (COLUMN_MAPPING,)


def test_members_of_structs_change_at_any_depth(table):
    table.rename_column("who.tags.element.name", "label")
    table.rename_column("counts.value.weight", "mass")
    table.drop_column("who.name")
    table.add_column("who.name", "int")
    table.alter_column("counts.value.mass", "bigint")
    [row] = table.to_arrow().to_pylist()
    assert row["who"] == {"tags": [{"label": "red", "weight": 1}], "name": None}
    assert row["counts"] == [("k", {"name": "blue", "mass": 2})]
    assert found(table, "who.tags.label:red") == found(table, "counts.k.mass:2") == [1]
    assert not found(table, "who.tags.name:red")
    assert not found(table, "who.name:anna")
    assert not found(table, "counts.k.weight:2")
    new = pa.Table.from_pylist(
        [{"id": 2, "body": "ok", "day": "mon", "who": {"tags": [{"label": "red"}], "name": 7}}],
        schema=table.schema.remove(table.schema.get_field_index("counts")),
    )
    table.append(new)
    assert sorted(found(table, "who.tags.label:red")) == [1, 2]
    assert found(table, "who.name:7") == [2]
    table.merge_splits()
    assert sorted(found(table, "who.tags.label:red")) == [1, 2]
    assert not found(table, "who.name:anna")
    assert table.fsck(deep=True).is_clean


def test_a_default_is_searched_as_new_splits_would_index_it(table):
    table.set_properties({"spark.indextables.indexing.fastfields": "id"})
    table.add_column("note", "string", default="Red Apples")
    assert found(table, 'note:"Red Apples"') == [1]
    assert not found(table, "note:red")
    table.set_properties({"spark.indextables.indexing.typemap.note": "text"})
    assert found(table, "note:red") == found(table, "apples") == found(table, 'note:"red apples"') == [1]
    assert found(table, "note:app* AND body:disk") == [1]
    assert not found(table, "NOT note:red")
    assert table.count(where="note = 'Red Apples'") == 1


def test_aggregates_over_a_default_and_a_wider_type(table):
    table.add_column("price", "double", default=2.5)
    table.alter_column("id", "decimal(12,2)")
    table.append(
        pa.Table.from_pylist([{"id": 1.5, "day": "mon", "price": 4.5}]).cast(
            pa.schema([("id", pa.decimal128(12, 2)), ("day", pa.string()), ("price", pa.float64())])
        )
    )
    [total] = table.aggregate(["sum(id)", "max(id)", "sum(price)", "min(price)", "count"]).to_pylist()
    assert [float(value) for value in total.values()] == [2.5, 1.5, 7.0, 2.5, 2]
    groups = table.aggregate(["count"], by="price").to_pylist()
    assert [(row["price"], row["count"]) for row in groups] == [(2.5, 1), (4.5, 1)]
    with pytest.raises(InvalidAggregationError):
        table.aggregate(["sum(nothing)"])


def test_settings_follow_a_column(table):
    prefix = "spark.indextables.indexing."
    table.set_properties({f"{prefix}fastfields": "id,body", f"{prefix}tokenizer.en_stem": "body"})
    table.rename_column("body", "text")
    properties = table.metadata.configuration
    assert properties[f"{prefix}typemap.text"] == "text"
    assert properties[f"{prefix}fastfields"] == "id,text"
    assert properties[f"{prefix}tokenizer.en_stem"] == "text"
    table.append(pa.table({"id": pa.array([2], pa.int32()), "text": ["disks"], "day": ["mon"]}))
    assert sorted(found(table, "text:disk")) == [1, 2]
    table.drop_column("text")
    properties = table.metadata.configuration
    assert f"{prefix}typemap.text" not in properties
    assert f"{prefix}tokenizer.en_stem" not in properties
    assert properties[f"{prefix}fastfields"] == "id"
    table.append(pa.table({"id": pa.array([3], pa.int32()), "day": ["mon"]}))
    assert table.num_rows == 3


def test_a_table_is_repaired_from_its_splits_with_its_names(table, tmp_path):
    table.rename_column("body", "text")
    table.drop_column("id")
    table.add_column("id", "string")
    table.append(pa.table({"text": ["disk"], "day": ["tue"], "id": ["x"]}))
    for file in (tmp_path / "t" / "_transaction_log").rglob("*"):
        if file.is_file():
            file.unlink()
    repaired = str(tmp_path / "repaired")
    repair_table(str(tmp_path / "t"), repaired)
    copy = IndexTable(repaired)
    assert sorted(row["text"] for row in copy.to_arrow().to_pylist()) == ["disk", "disk full"]
    assert sorted(copy.search("text:disk", columns=["id"])["id"].to_pylist(), key=str) == [None, "x"]
    copy.add_column("body", "int")
    assert copy.to_arrow(columns=["body"])["body"].null_count == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.add_column("ID", "int"), "there is a column 'ID' already"),
        (lambda table: table.add_column("who.x", "int", default=1), "member of a struct"),
        (lambda table: table.add_column("x", "inte"), "there is no type 'inte'"),
        (lambda table: table.add_column("x.y", "int"), "there is no column 'x'"),
        (lambda table: table.add_column("id.y", "int"), "column 'id' is not a struct"),
        (lambda table: table.add_column("x", "int", position="before id"), "neither 'first' nor 'after'"),
        (lambda table: table.add_column("x", "int", position="after y"), "names no other column"),
        (lambda table: table.drop_column("boddy"), "did you mean 'body'"),
        (lambda table: table.drop_column("day"), "partition column, which cannot be dropped"),
        (lambda table: table.rename_column("day", "date"), "partition column, which cannot be renamed"),
        (lambda table: table.alter_column("day", "int"), "cannot be given another type"),
        (lambda table: table.rename_column("id", "Body"), "the same name to Spark"),
        (lambda table: table.alter_column("body", "int"), "has the type string and cannot become integer"),
        (lambda table: table.alter_column("id", "decimal(10,2)"), "cannot become decimal"),
        (lambda table: table.alter_column("id", nullable=False), "cannot be made NOT NULL"),
        (lambda table: table.drop_column(["who", "tags", "element"]), "no 'element'|not a struct"),
    ],
)
def test_changes_that_the_schema_does_not_allow(table, change, message):
    version = table.version
    with pytest.raises(InvalidSchemaError, match=message):
        change(table)
    assert IndexTable(table.snapshot.context.url).version == version


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int", "many"),
        ("binary", b"x"),
        ("date", 5.5),
        ("tinyint", 300),
        ("float", 1e300),
        ("date", dt.datetime(2026, 1, 1, 12)),
    ],
)
def test_a_default_must_be_a_value_of_the_type(table, type_, default):
    with pytest.raises(InvalidValueError, match="'x'"):
        table.add_column("x", type_, default=default)


def test_a_column_with_dots_in_its_name(tmp_path):
    schema = pa.schema([("a.b", pa.int32()), ("a", pa.struct([("b", pa.int32()), ("c", pa.int32())]))])
    table = IndexTable.create(str(tmp_path / "t"), schema)
    table.append(pa.table({"a.b": pa.array([1], pa.int32()), "a": [{"b": 2, "c": 3}]}, schema=schema))
    table.rename_column("a.b", "x")
    table.rename_column("a.b", "y")
    assert table.to_arrow().to_pylist() == [{"x": 1, "a": {"y": 2, "c": 3}}]
    table.drop_column(["a", "y"])
    with pytest.raises(InvalidSchemaError, match="last member"):
        table.drop_column("a.c")


def test_a_dropped_column_is_not_searched(table):
    table.drop_column("body")
    assert not found(table, "who.name:disk")
    with pytest.raises(InvalidQueryError, match="no field 'body'"):
        table.search("body:disk")
