"""ALTER TABLE: every clause, through `indextables.sql`."""

import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from indextables.errors import InvalidSchemaError, InvalidStatementError, InvalidValueError


@pytest.fixture
def table(tmp_path, monkeypatch) -> IndexTable:
    monkeypatch.chdir(tmp_path)
    who = pa.struct([("name", pa.string()), ("age", pa.int32())])
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("who", who)])
    table = IndexTable.create("logs", schema)
    table.append(pa.table({"id": [1], "who": [{"name": "a", "age": 5}]}, schema=schema))
    return table


def alter(clause: str) -> pa.Schema:
    answer = indextables.sql(f"ALTER TABLE 'logs' {clause}").to_pylist()[0]
    assert answer["status"] == "SUCCESS"
    assert answer["version"] == IndexTable("logs").version
    return IndexTable("logs").schema


def test_columns_of_every_type_are_added_in_one_commit(table):
    schema = alter(
        "ADD COLUMNS (a BIGINT DEFAULT -5, `b c` DECIMAL(10, 2) DEFAULT 1.50 COMMENT 'it''s', t TIMESTAMP "
        "DEFAULT '2024-01-01T00:00:00Z' FIRST, tags ARRAY<STRING>, m MAP<STRING, INT>, "
        "s STRUCT<x: INT, `y`: ARRAY<STRUCT<z DATE>>>, flag BOOLEAN DEFAULT true AFTER id, void INT DEFAULT NULL)"
    )
    assert schema.names == ["t", "id", "flag", "who", "a", "b c", "tags", "m", "s", "void"]
    assert schema.field("b c").metadata == {b"comment": b"it's"}
    assert schema.field("s").type == pa.struct(
        [("x", pa.int32()), ("y", pa.list_(pa.field("element", pa.struct([("z", pa.date32())]))))]
    )
    row = IndexTable("logs").to_arrow().to_pylist()[0]
    assert (row["a"], str(row["b c"]), row["flag"], row["t"].year, row["void"]) == (
        -5,
        "1.50",
        True,
        2024,
        None,
    )
    assert IndexTable("logs").version == 2


def test_columns_are_dropped_renamed_and_altered(table):
    alter("ADD COLUMN who.mail STRING")
    alter("RENAME COLUMN who.name TO login")
    assert alter("DROP COLUMNS (who.age, who.mail)").field("who").type == pa.struct([("login", pa.string())])
    schema = alter("ALTER COLUMN id TYPE BIGINT DROP NOT NULL COMMENT 'key' AFTER who")
    assert schema.names == ["who", "id"]
    assert schema.field("id").nullable
    assert alter("change column id first").names == ["id", "who"]
    assert IndexTable("logs").to_arrow().to_pylist() == [{"id": 1, "who": {"login": "a"}}]


@pytest.mark.parametrize(
    ("clause", "error", "message"),
    [
        ("ADD COLUMN x INT DEFAULT 'y'", InvalidValueError, "cannot have the default 'y'"),
        ("ADD COLUMN x INTT", InvalidSchemaError, "there is no type 'intt'"),
        ("ALTER COLUMN id SET NOT NULL", InvalidSchemaError, "cannot be made NOT NULL"),
        ("ALTER COLUMN id", InvalidStatementError, "the statement ends here"),
        ("RENAME COLUMN id", InvalidStatementError, "TO must follow"),
        ("ADD COLUMN x INT COMMENT 'a' COMMENT 'b'", InvalidStatementError, "occurs twice"),
        ("DROP id", InvalidStatementError, "expected COLUMNS"),
    ],
)
def test_invalid_changes(table, clause, error, message):
    with pytest.raises(error, match=message):
        alter(clause)
    assert IndexTable("logs").version == 1


def test_alter_table_of_a_name_is_a_statement_of_another_engine():
    with pytest.raises(InvalidStatementError, match="not a statement of IndexTables"):
        indextables.sql("ALTER TABLE logs ADD COLUMN x INT")
