"""UPDATE and MERGE INTO, and searches in WHERE: what they do, and what they refuse."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import indextables
from indextables import IndexTable, errors
from indextables.statements import nodes, parse_ours, parse_statement

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64()), ("body", pa.string())])


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    table = IndexTable.create("t", SCHEMA, partition_by=["day"], text=["body"])
    rows = {"id": [1, 2, 3], "day": ["a", "a", "b"], "n": [1, 2, 3], "body": ["disk full", "disk ok", "net"]}
    table.append(pa.table(rows, schema=SCHEMA))
    Path("changes.jsonl").write_text(
        '{"id": 2, "n": 20, "body": "new"}\n{"id": 9, "n": 90, "body": "nine"}\n'
    )
    return "t"


def one(text: str) -> dict[str, object]:
    (row,) = indextables.sql(text).to_pylist()
    return row


def rows(path: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values())[::2] for row in IndexTable(path).to_arrow().to_pylist())


def test_update_counts_and_updates_rows(path):
    text = "UPDATE 't' SET n = CASE WHEN n > 1 THEN n * 10 ELSE n END, `body` = 'a, WHERE' WHERE id <= 2"
    counted = one(f"{text} DRY RUN")
    assert (counted["status"], counted["updated_rows"], counted["version"]) == ("DRY_RUN", 2, 1)
    assert [(dict(each["partition"]), each["rows"]) for each in counted["partitions"]] == [({"day": "a"}, 2)]
    assert one(text)["message"] == "2 rows updated in version 2"
    assert rows(path) == [(1, 1), (2, 20), (3, 3)]
    assert one("UPDATE 't' SET n = 0 WHERE id = 77")["status"] == "NO_ACTION"
    assert one('UPDATE "t" SET n = 0')["updated_rows"] == 3


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("body TEXTSEARCH 'disk'", [3]),
        ("t.body textsearch 'disk' AND n BETWEEN 2 AND 3", [1, 3]),
        ("n > 1 AND * TEXTSEARCH 'ok OR net'", [1]),
        ("day = 'a' MATCHING QUERY 'full'", [2, 3]),
    ],
)
def test_a_search_chooses_rows_to_delete(path, condition, left):
    one(f"DELETE FROM 't' WHERE {condition}")
    assert [row[0] for row in rows(path)] == left


@pytest.mark.parametrize("source", ["changes.jsonl", "changes.parquet", "folder", "table"])
def test_merge_takes_tables_and_files(path, source):
    changes = pa.table({"id": [2, 9], "n": [20, 90], "body": ["new", "nine"]})
    pq.write_table(changes, "changes.parquet")
    Path("folder").mkdir()
    Path("folder/part.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changes.to_pylist()))
    IndexTable.create("table", changes.schema).append(changes)
    answer = one(
        f"MERGE INTO 't' AS x USING '{source}' s ON x.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (answer["updated_rows"], answer["deleted_rows"], answer["inserted_rows"]) == (1, 0, 1)
    assert rows(path) == [(1, 1), (2, 20), (3, 3), (9, 90)]


def test_merge_with_conditions_and_expressions(path):
    text = """
        merge into 't' using 'changes.jsonl' as s on s.id = target.id and target.body = s.body
        when not matched and s.id = 2 then insert (id, `day`, n) values (s.id + 1, concat('x', 'y'), s.n)
        when not matched and s.n > 1000 then insert *
        dry /* really */ run
    """
    answer = one(text)
    assert (answer["status"], answer["inserted_rows"]) == ("DRY_RUN", 1)
    one(text.replace("dry /* really */ run", ""))
    assert rows(path) == [(1, 1), (2, 2), (3, 3), (3, 20)]
    one(
        "MERGE INTO 't' USING 'changes.jsonl' ON target.id = source.id "
        "WHEN MATCHED AND source.n < CASE WHEN target.n = 2 THEN 100 END THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET target.n = 0"
    )
    assert rows(path) == [(1, 1), (3, 3), (3, 20)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("UPDATE 't' SET n", "write each value as column = expression"),
        ("UPDATE 't' SET = 5", "write each value as column = expression"),
        ("UPDATE 't' SET n = 1,", "something is missing beside ','"),
        ("UPDATE 't' SET n = 1, N = 2", "set twice"),
        ("UPDATE 't' SET n + 1 = 2", "expected the name of a column"),
        ("UPDATE 't' WHERE n = 1", "expected SET"),
        ("DELETE FROM 't' WHERE body TEXTSEARCH 'a' OR n = 1", "rows are chosen by one search"),
        ("DELETE FROM 't' WHERE NOT body TEXTSEARCH 'a'", "rows are chosen by one search"),
        ("DELETE FROM 't' WHERE (body TEXTSEARCH 'a')", "rows are chosen by one search"),
        ("DELETE FROM 't' WHERE * TEXTSEARCH 'a' AND * TEXTSEARCH 'b'", "rows are chosen by one search"),
        ("DELETE FROM 't' WHERE * TEXTSEARCH 'a' MATCHING QUERY 'b'", "combine the two queries"),
        ("MERGE INTO 't' USING 's' ON target.id = source.id", "must follow"),
        ("MERGE INTO 't' USING 's' ON id = id WHEN MATCHED THEN DELETE", "for equality, as in target.id"),
        ("MERGE INTO 't' USING 's' x ON target.id < x.id WHEN MATCHED THEN DELETE", "for equality"),
        ("MERGE INTO 't' USING 's' ON target.id = source.id WHEN MATCHED THEN INSERT *", "expected AND"),
        (
            "MERGE INTO 't' USING 's' ON target.id = source.id WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "expected AND or THEN INSERT",
        ),
        (
            "MERGE INTO 't' USING 's' ON target.id = source.id WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)",
            "2 columns and 1 values",
        ),
        (
            "MERGE INTO 't' USING 's' ON target.id = source.id WHEN NOT MATCHED THEN INSERT id",
            "write INSERT",
        ),
        (
            "MERGE INTO 't' USING (SELECT 1 ON target.id = source.id WHEN MATCHED THEN DELETE",
            "expected a path in quotes",
        ),
        ("MERGE INTO 't' USING s ON target.id = s.id WHEN MATCHED THEN DELETE", "no catalog to look s up in"),
    ],
)
def test_what_cannot_be_read_is_marked(path, text, reason):
    with pytest.raises((errors.InvalidStatementError, errors.InvalidOptionError), match=reason):
        indextables.sql(text)
    assert IndexTable(path).version == 1


@pytest.mark.parametrize(
    "head",
    [
        "UPDATE indextables.`p` SET n = 1",
        "UPDATE logs SET n = 1",
        "MERGE INTO logs USING s ON a.id = s.id",
        "UPDATE",
        "MERGE",
    ],
)
def test_statements_on_names_are_left_to_spark(head):
    assert parse_statement(head) is None


def test_the_source_of_a_merge_has_the_name_of_its_table():
    text = "MERGE INTO t AS t USING a.`b` ON t.id = b.id WHEN MATCHED THEN DELETE"
    statement = parse_ours(text)
    assert isinstance(statement, nodes.MergeInto)
    assert statement.source == nodes.Relation(sql="a.`b`")
    assert (statement.source_name, statement.on) == ("b", (("id", "id"),))


def test_the_source_of_a_merge_may_be_any_subquery():
    query = "(SELECT ')' AS id FROM (SELECT 1) a JOIN b ON a.x = b.x WHERE f(g(1)) = 2)"
    statement = parse_ours(f"MERGE INTO t USING {query} AS s ON target.id = s.id WHEN MATCHED THEN DELETE")
    assert isinstance(statement, nodes.MergeInto)
    assert (statement.source, statement.source_name) == (nodes.Relation(sql=query), "s")


def test_a_path_in_backticks_is_no_keyword():
    statement = parse_ours("UPDATE indextables.`/data/p` SET n = 1")
    assert isinstance(statement, nodes.Update)
    assert statement.target == nodes.TableName(("indextables", "/data/p"))
