"""Search operators in `spark.sql`, on paths and views, wherever SQL allows a condition."""

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest

from indextables import IndexTable, errors

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.string()),
        ("level", pa.string()),
        ("message", pa.string()),
        ("title", pa.string()),
    ]
)


def _rows(*rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.fixture(scope="module")
def logs(spark, tmp_path_factory):
    """A table with two text columns and a partition column, behind the view `logs`; and a view `names` of Spark's."""
    path = (tmp_path_factory.mktemp("search") / "logs").as_posix()
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["message", "title"])
    table.append(
        _rows(
            (1, "a", "ERROR", "hello spark", "disk full"),
            (2, "b", "INFO", "hello", "a title"),
            (3, "b", "ERROR", None, "spark"),
        )
    )
    table.append(
        _rows((4, "c", "WARN", "connection timeout", "x"), (5, "c", "ERROR", "it's spark time", "y"))
    )
    spark.read.format("indextables").load(path).createOrReplaceTempView("logs")
    spark.range(6).selectExpr("id", "concat('n', id) AS name").createOrReplaceTempView("names")
    yield path
    spark.catalog.dropTempView("logs")
    spark.catalog.dropTempView("names")


def _ask(spark, text, *args, **kwargs):
    rows = spark.sql(text, *args, **kwargs).collect()
    return sorted((tuple(row) if len(row) > 1 else row[0] for row in rows), key=repr)


SELECTED = [
    # The operators.
    ("message TEXTSEARCH 'spark'", [1, 5]),
    ('message textsearch "spark OR timeout" AND id > 1', [4, 5]),
    ("level FIELDMATCH 'ERROR' AND message TEXTSEARCH 'spark'", [1, 5]),
    ("day FIELDMATCH 'b' AND level FIELDMATCH 'ERROR'", [3]),
    ("message indexquery 'hello OR title:spark'", [1, 2, 3]),
    ("`message` TEXTSEARCH 'hel*'", [1, 2]),
    ("logs.message TEXTSEARCH 'it\\'s'", [5]),
    ("message TEXTSEARCH 'it''s'", [5]),
    ("* TEXTSEARCH 'spark'", [1, 3, 5]),
    ("* FIELDMATCH 'ERROR'", [1, 3, 5]),
    ("* indexquery 'spark AND NOT title:disk'", [3, 5]),
    ("_indexall indexquery 'ERROR'", [1, 3, 5]),
    ("indexqueryall('spark')", [1, 3, 5]),
    ("_query = 'spark' AND _query = 'message:hello'", [1]),
    # The index decides AND, OR and NOT of searches.
    ("NOT message TEXTSEARCH 'spark'", [2, 3, 4]),
    ("NOT (message TEXTSEARCH 'spark' OR title TEXTSEARCH 'x')", [2, 3]),
    ("(message TEXTSEARCH 'timeout' OR (title TEXTSEARCH 'spark' AND level FIELDMATCH 'ERROR'))", [3, 4]),
    # Other conditions next to OR: the search is computed for each row.
    ("message TEXTSEARCH 'timeout' OR level = 'ERROR'", [1, 3, 4, 5]),
    ("NOT (message TEXTSEARCH 'spark' AND id < 5)", [2, 3, 4, 5]),
    ("(message indexquery 'hello OR title:spark') = (id <> 2)", [1, 3]),
    ("CASE WHEN day indexquery 'b' THEN title TEXTSEARCH 'title' ELSE id = 4 END", [2, 4]),
]


@pytest.mark.parametrize(("condition", "ids"), SELECTED, ids=[condition for condition, _ in SELECTED])
def test_a_condition_selects_its_rows(spark, logs, condition, ids):
    assert _ask(spark, f"SELECT id FROM logs WHERE {condition}") == ids


QUERIES = [
    ("SELECT l.id, name FROM logs l JOIN names n ON l.id = n.id AND l.message TEXTSEARCH 'spark'",
     [(1, "n1"), (5, "n5")]),
    ("SELECT n.id, l.id FROM names n LEFT JOIN logs l ON l.id = n.id AND l.message TEXTSEARCH 'hello' WHERE n.id < 4",
     [(0, None), (1, 1), (2, 2), (3, None)]),
    # A row without a partner matches nothing.
    ("SELECT n.id FROM names n LEFT JOIN logs l ON l.id = n.id WHERE NOT l.message TEXTSEARCH 'spark'", [0, 2, 3, 4]),
    ("SELECT n.id FROM names n LEFT JOIN logs l ON l.id = n.id WHERE l.message TEXTSEARCH 'spark'", [1, 5]),
    ("SELECT a.id, b.id FROM logs a JOIN logs b ON a.day = b.day AND a.id < b.id WHERE b.message TEXTSEARCH 'spark'",
     [(4, 5)]),
    ("WITH e AS (SELECT *, lower(level) low FROM logs WHERE id > 1) SELECT low FROM e WHERE message TEXTSEARCH 'spark'",
     ["error"]),
    ("WITH e AS (TABLE logs) SELECT b.id FROM logs a JOIN e b USING (day) WHERE a.title TEXTSEARCH 'x'", [4, 5]),
    ("WITH e AS (SELECT * FROM logs) SELECT b.id FROM e a JOIN e b USING (day) WHERE a.message TEXTSEARCH 'timeout'",
     [4, 5]),
    # A LIMIT comes first, so the search does not select the rows that it counts.
    ("SELECT count(*) FROM (SELECT * FROM logs ORDER BY id LIMIT 4) t WHERE t.message TEXTSEARCH 'spark'", [1]),
    ("SELECT id FROM names WHERE id IN (SELECT id FROM logs WHERE message TEXTSEARCH 'spark')", [1, 5]),
    ("SELECT id FROM names n WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.id = n.id AND message TEXTSEARCH 'spark')",
     [0, 2, 3, 4]),
    ("SELECT id, message TEXTSEARCH 'spark' FROM logs WHERE id < 4", [(1, True), (2, False), (3, False)]),
    ("SELECT level, count_if(message TEXTSEARCH 'spark') FROM logs GROUP BY level",
     [("ERROR", 2), ("INFO", 0), ("WARN", 0)]),
    ("SELECT message FROM logs GROUP BY message HAVING message TEXTSEARCH 'timeout'", ["connection timeout"]),
    ("SELECT id FROM logs WHERE id = 2 UNION ALL SELECT id FROM logs WHERE message TEXTSEARCH 'spark'", [1, 2, 5]),
    ("SELECT id, '{x}' FROM logs WHERE message TEXTSEARCH 'timeout' -- {y}", [(4, "{x}")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), QUERIES, ids=[text[:60] for text, _ in QUERIES])
def test_a_search_works_in_joins_subqueries_and_aggregates(spark, logs, text, expected):
    assert _ask(spark, text) == expected


def test_a_star_shows_the_columns_of_the_table_alone(spark, logs):
    frame = spark.sql("SELECT * FROM logs WHERE message TEXTSEARCH 'spark' OR id = 2")
    assert frame.columns == SCHEMA.names


def test_a_table_is_searched_by_its_path_and_version(spark, logs):
    assert _ask(spark, f"SELECT id FROM indextables.`{logs}` WHERE message TEXTSEARCH 'spark'") == [1, 5]
    old = f"indextables.`{logs}` VERSION AS OF 1"
    assert _ask(spark, f"SELECT t.id FROM {old} t WHERE t.message TEXTSEARCH 'spark'") == [1]
    assert _ask(spark, f"SELECT count(*) FROM {old}") == [3]


def test_a_value_may_be_a_parameter(spark, logs):
    assert _ask(spark, "SELECT id FROM logs WHERE message TEXTSEARCH :q", {"q": "spark"}) == [1, 5]
    by_position = "SELECT id, ? FROM logs WHERE message TEXTSEARCH ? AND id > ?"
    assert _ask(spark, by_position, [7, "spark", 1]) == [(5, 7)]
    frame = spark.read.format("indextables").load(logs)
    assert _ask(spark, "SELECT id FROM {t} WHERE message TEXTSEARCH {q}", t=frame, q="spark") == [1, 5]
    with pytest.raises(
        errors.InvalidStatementError, match="the value of :q is None; a search needs a string"
    ):
        spark.sql("SELECT id FROM logs WHERE message TEXTSEARCH :q")


def test_results_of_searches_are_inserted_and_kept_as_tables(spark, logs):
    spark.sql("CREATE TABLE kept USING parquet AS SELECT * FROM logs WHERE message TEXTSEARCH 'spark'")
    try:
        spark.sql("INSERT INTO kept SELECT * FROM logs WHERE message TEXTSEARCH 'timeout'")
        assert _ask(spark, "SELECT id FROM kept") == [1, 4, 5]
    finally:
        spark.sql("DROP TABLE kept")


def test_a_view_over_a_search_is_searched_again(spark, logs):
    spark.read.format("indextables").load(logs).createOrReplaceTempView("found")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW found (n, m) AS SELECT id, message FROM logs WHERE * TEXTSEARCH 'spark'"
    )
    assert _ask(spark, "SELECT n FROM found") == [1, 3, 5]
    assert _ask(spark, "SELECT n FROM found WHERE m TEXTSEARCH 'hello'") == [1]
    assert _ask(spark, "SELECT f.n FROM found f WHERE f.m TEXTSEARCH 'hello' OR f.n = 5") == [1, 5]
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW found AS SELECT 1 AS n, 'hello' AS m")
    with pytest.raises(
        errors.InvalidStatementError, match="column 'm' of found is not a column of an IndexTables"
    ):
        spark.sql("SELECT n FROM found WHERE m TEXTSEARCH 'hello'")
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW found USING indextables OPTIONS (path '{logs}', where \"day = 'c'\")"
    )
    assert _ask(spark, "SELECT id FROM found WHERE message TEXTSEARCH 'spark'") == [5]
    spark.sql("DROP VIEW found")


def test_a_view_shows_one_version_to_reads_and_searches(spark, tmp_path):
    path = (tmp_path / "table").as_posix()
    table = IndexTable.create(path, SCHEMA, text=["message", "title"])
    table.append(_rows((1, "a", "x", "spark", "t")))
    spark.read.format("indextables").load(path).createOrReplaceTempView("pinned")
    table.append(_rows((2, "a", "x", "spark", "t")))
    assert _ask(spark, "SELECT id FROM pinned WHERE message TEXTSEARCH 'spark'") == [1]
    assert _ask(spark, "SELECT id FROM pinned") == [1]
    spark.catalog.dropTempView("pinned")
    with pytest.raises(errors.InvalidStatementError, match=r"no IndexTables table is read here \(pinned\)"):
        spark.sql("SELECT id FROM pinned WHERE message TEXTSEARCH 'spark'")


def test_an_explained_search_reads_only_the_table_itself(spark, logs):
    (plan,) = _ask(spark, "EXPLAIN SELECT id FROM logs WHERE message TEXTSEARCH 'spark'")
    assert "BatchScan indextables" in plan
    assert "Filter " not in plan


REFUSED = [
    ("SELECT id FROM logs WHERE level TEXTSEARCH 'ERROR'",
     "column 'level' is indexed as string, not tokenized; use level FIELDMATCH"),
    ("SELECT id FROM logs WHERE day TEXTSEARCH 'a'", "column 'day' is a partition column, not tokenized"),
    ("SELECT id FROM logs WHERE message FIELDMATCH 'x'",
     "column 'message' is tokenized text; use message TEXTSEARCH"),
    ("SELECT id FROM logs WHERE nope TEXTSEARCH 'x'",
     "there is no column 'nope' of an IndexTables table here; logs has id, day"),
    ("SELECT id FROM names WHERE name TEXTSEARCH 'x'",
     "column 'name' of names is not a column of an IndexTables table"),
    ("SELECT a.id FROM logs a JOIN logs b ON a.id = b.id WHERE message TEXTSEARCH 'x'",
     "ambiguous: it is in a and b"),
    ("SELECT a.id FROM logs a JOIN logs b ON a.id = b.id WHERE * TEXTSEARCH 'x'", r"several tables \(a and b\)"),
    ("SELECT id FROM logs WHERE message TEXTSEARCH concat('a', 'b')", "a string or a parameter on its right"),
    ("SELECT m FROM (SELECT upper(message) m FROM logs) t WHERE m TEXTSEARCH 'x'",
     "column 'm' of t is not a column of"),
    ("SELECT id FROM (SELECT id, message FROM logs) t WHERE message indexquery 'a OR title:b' OR id = 1",
     "reads column 'title', which t does not return"),
    ("DELETE FROM names WHERE name TEXTSEARCH 'x'", "does not select rows to delete or update"),
    ("CACHE TABLE c AS SELECT * FROM logs WHERE message TEXTSEARCH 'x'", "create a temporary view first"),
    ("CREATE VIEW v AS SELECT id FROM logs WHERE message TEXTSEARCH 'x'", "write CREATE TEMPORARY VIEW v AS"),
    ("FROM logs |> WHERE message TEXTSEARCH 'x'", "does not work in a query with |>"),
    ("SELECT id FROM logs WHERE (message TEXTSEARCH 'x'", "the statement around this search cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text[:70] for text, _ in REFUSED])
def test_a_search_that_does_not_work_is_marked_in_the_text(spark, logs, text, reason):
    with pytest.raises(errors.InvalidStatementError, match=reason) as refused:
        spark.sql(text)
    assert "\n" in str(refused.value)
    assert "^" in str(refused.value)


def test_a_wrong_query_is_marked_in_the_query(spark, logs):
    with pytest.raises(errors.InvalidQueryError, match=r"this \( is not closed"):
        spark.sql("SELECT id FROM logs WHERE message TEXTSEARCH '(a'")


# Random conditions against a brute-force answer, from several threads on the same views.

LEAVES = {
    "message TEXTSEARCH 'spark'": {1, 5},
    "message TEXTSEARCH 'hello'": {1, 2},
    "title indexquery 'spark OR disk'": {1, 3},
    "level FIELDMATCH 'ERROR'": {1, 3, 5},
    "day indexquery 'b OR c'": {2, 3, 4, 5},
    "* TEXTSEARCH 'spark'": {1, 3, 5},
    "id > 2": {3, 4, 5},
    "level = 'WARN'": {4},
    "coalesce(message LIKE '%t%', FALSE)": {4, 5},
}
EVERY = {1, 2, 3, 4, 5}


def _condition(random: Random, depth: int) -> tuple[str, set[int]]:
    kind = random.choice(("leaf", "and", "or", "not")) if depth else "leaf"
    if kind == "leaf":
        return random.choice(list(LEAVES.items()))
    text, ids = _condition(random, depth - 1)
    if kind == "not":
        return f"NOT ({text})", EVERY - ids
    other, others = _condition(random, depth - 1)
    return f"({text}) {kind.upper()} ({other})", ids & others if kind == "and" else ids | others


def test_random_conditions_select_what_a_brute_force_answer_does(spark, logs):
    random = Random(7)
    conditions = [_condition(random, 3) for _ in range(24)]

    def ask(case):
        condition, _ = case
        return {row.id for row in spark.sql(f"SELECT id FROM logs WHERE {condition}").collect()}

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, conditions))
    wrong = [
        (condition, ids, got) for (condition, ids), got in zip(conditions, found, strict=True) if got != ids
    ]
    assert wrong == []
