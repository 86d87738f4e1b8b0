"""SELECT: the same answers as DuckDB on Parquet of the same rows, and no answer where a search has no meaning."""

import datetime as dt
import re

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indextables
from indextables import IndexTable
from indextables.errors import (
    InvalidQueryError,
    InvalidStatementError,
    ObjectNotFoundError,
    SplitCorruptedError,
    TableNotFoundError,
    VersionNotFoundError,
)

WORDS = ["timeout", "disk", "full", "slow", "ok"]
ROWS = [
    {
        "day": dt.date(2026, 1, 1 + number % 3),
        "id": None if number % 11 == 0 else number - 20,
        "level": [None, "INFO", "WARN", "ERROR"][number % 4],
        "price": number * 0.5 if number % 7 else float("nan"),
        "seen": dt.datetime(2026, 1, 1, number % 24, 30),
        "message": " ".join(word for place, word in enumerate(WORDS) if number >> place & 1),
    }
    for number in range(64)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the table `logs`, in several splits and with deleted rows, and of the same rows as Parquet."""
    folder = tmp_path_factory.mktemp("select")
    table = indextables.write(folder / "logs", ROWS[:40], text="message", partition_by="day")
    table.append(ROWS[40:])
    table.delete(where="id = 5")
    pq.write_table(table.to_arrow(), folder / "logs.parquet")
    return folder


def answer(folder, text: str) -> list[tuple]:
    found = indextables.sql(text.replace("{t}", f"'{folder / 'logs'}'"))
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def expected(folder, text: str) -> list[tuple]:
    """DuckDB's answer on Parquet: a search for a word is a search in the list of words."""
    return sorted(duckdb.sql(text.replace("{t}", f"'{folder / 'logs.parquet'}'")).fetchall(), key=repr)


def same_values(left: list[tuple], right: list[tuple]) -> bool:
    return repr(left) == repr(right)  # NaN is not equal to itself


CONDITIONS = st.sampled_from(
    [
        "id > 3", "id <= 0", "id = 7", "id <> 7", "id IN (1, 2, 30)", "id BETWEEN -3 AND 12", "id IS NULL",
        "NOT (id > 3)",
        "id = -4 OR level = 'WARN'", "level = 'ERROR'", "level > 'ERROR'", "level LIKE '%R%'", "level IS NOT NULL",
        "lower(level) = 'info'", "level IN ('INFO', 'WARN') AND id < 9", "day = DATE '2026-01-02'",
        "day >= DATE '2026-01-02'",
        "day < DATE '2026-01-02' OR id = 30", "price < 9.5", "price >= 3 AND price < 20", "id > 3.5",
        "seen >= TIMESTAMP '2026-01-01 12:00:00'", "id % 3 = 1",
        "(level = 'WARN' OR day = DATE '2026-01-01') AND id > -9",
        "coalesce(level, 'none') = 'none'", "message = ''", "1 = 1",
        "price >= 3", "id NOT IN (1, 2, 3, 30, 31)", "NOT (level IN ('WARN', 'a', 'b', 'c') OR id < 0)",
    ]
)  # fmt: skip
SHAPES = st.sampled_from(
    [
        "SELECT count(*) FROM {t} l WHERE {c}",
        "SELECT level, count(*), min(id), max(seen), sum(id) FROM {t} l WHERE {c} GROUP BY level",
        "SELECT day, level FROM {t} l WHERE {c} GROUP BY ALL HAVING count(*) > 1",
        "SELECT id, price, message FROM {t} l WHERE {c}",
        "SELECT DISTINCT level, day FROM {t} l WHERE {c}",
        "SELECT id FROM (SELECT * FROM {t} l WHERE {c}) x ORDER BY id NULLS LAST LIMIT 5",
        "SELECT count(*), count(m.id) FROM {t} m LEFT JOIN {t} l ON m.id = l.id + 1 AND {c}",
        "SELECT m.level, count(*) FROM {t} l JOIN {t} m ON l.id = m.id WHERE {c} AND m.id > 0 GROUP BY m.level",
        "WITH w AS (SELECT id, level, day FROM {t} l WHERE {c}) SELECT count(*) FROM w a JOIN w b ON a.id = b.id",
        "SELECT count(*) FROM {t} m WHERE m.id IN (SELECT l.id FROM {t} l WHERE {c})",
        "SELECT id FROM {t} l WHERE {c} UNION SELECT id FROM {t} m WHERE m.day = DATE '2026-01-01'",
    ]
)
COLUMNS = ("id", "level", "day", "price", "seen", "message")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=SHAPES,
    conditions=st.lists(CONDITIONS, min_size=1, max_size=2),
    word=st.sampled_from([None, *WORDS]),
)
def test_random_queries_have_the_answers_of_duckdb(folder, shape, conditions, word):
    shape = shape.replace("GROUP BY ALL", "GROUP BY day, level")
    qualified = [qualify(f"({each})") for each in conditions]
    ours, theirs = list(qualified), list(qualified)
    if word is not None:
        ours.insert(0, f"l._query = '{word}'")
        theirs.append(f"list_contains(string_split(l.message, ' '), '{word}')")
    found = answer(folder, shape.replace("{c}", " AND ".join(ours)))
    assert same_values(found, expected(folder, shape.replace("{c}", " AND ".join(theirs))))


def qualify(condition: str) -> str:
    return re.sub(rf"(?<!['\w.])({'|'.join(COLUMNS)})\b(?!')", r"l.\1", condition)


@pytest.mark.parametrize("source", ["{t}", "'{p}'"])
@pytest.mark.parametrize(
    "condition",
    [
        "id NOT IN (1, 2, 3, 30, 31)",
        "level NOT IN ('INFO', 'is_in(x)', 'WARN', 'y') AND day > DATE '2026-01-01'",
        "NOT (level IN ('INFO', 'a', 'b', 'c') AND id > 0) AND id IN (1, 2, 3, 30)",
        "price >= 31",
        "NOT price < 31",
        "price <> price",
        "price <= CAST('NaN' AS DOUBLE) AND id NOT IN (1, 2, 3, 4)",
        "price NOT IN (0.5, 1, 1.5, 2)",
    ],
)
def test_conditions_on_nulls_and_nan_have_the_answers_of_sql(folder, source, condition):
    """PyArrow's expressions, which DataFusion gives to datasets, would have others."""
    where = f"WHERE {condition}"
    text = f"SELECT id, price FROM {source} {where}".replace("{p}", str(folder / "logs.parquet"))
    assert same_values(answer(folder, text), expected(folder, f"SELECT id, price FROM {{t}} {where}"))
    joined = f"SELECT count(*) FROM {{t}} JOIN (SELECT id AS other FROM {{t}} {where}) ON id = other {where}"
    assert answer(folder, joined) == expected(folder, joined)
    searched = answer(folder, f"SELECT id FROM {{t}} {where} AND _query = 'disk'")
    assert searched == expected(folder, f"SELECT id FROM {{t}} {where} AND message LIKE '%disk%'")


# --- Searches ---------------------------------------------------------------------------------------------


def test_a_search_in_a_select_finds_what_a_search_finds(folder):
    table = IndexTable(folder / "logs")
    for query in (
        "timeout AND NOT disk",
        "disk OR slow",
        '"disk full"',
        "level:ERROR AND ok",
        "tim*",
        "it's",
    ):
        literal = query.replace("'", "''")
        assert answer(folder, f"SELECT count(*) FROM {{t}} WHERE _query = '{literal}'") == [
            (table.count(query),)
        ]
        with_more = f"SELECT count(*) FROM {{t}} WHERE _query = '{literal}' AND lower(level) = 'info'"
        assert answer(folder, with_more) == [(table.count(query, where="level = 'INFO'"),)]


def test_a_star_has_the_columns_of_the_table_only(folder):
    found = indextables.sql(f"SELECT * FROM '{folder / 'logs'}' WHERE _query = 'disk' AND id > 0")
    assert found.schema.names == list(ROWS[0])
    assert found.num_rows == IndexTable(folder / "logs").count("disk", where="id > 0")


REFUSED = [
    "SELECT id FROM {t} WHERE _query = 'ok' OR id = 1",
    "SELECT id FROM {t} WHERE NOT (_query = 'ok')",
    "SELECT id FROM {t} WHERE _query <> 'ok'",
    "SELECT id FROM {t} WHERE _query IN ('ok', 'disk')",
    "SELECT id FROM {t} WHERE _query LIKE 'ok'",
    "SELECT id FROM {t} WHERE _query IS NULL",
    "SELECT id FROM {t} WHERE 'ok' = _query",
    "SELECT id FROM {t} WHERE _query = 'o' || 'k'",
    "SELECT id FROM {t} WHERE _query = 'ok' AND _query = 'disk'",
    "SELECT id FROM {t} WHERE (_query = 'ok') IS NOT TRUE",
    "SELECT id FROM {t} WHERE (_query = 'ok') = (id > 1)",
    "SELECT id FROM {t} WHERE coalesce(_query = 'ok', true)",
    "SELECT _query FROM {t}",
    'SELECT "_query" FROM {t}',
    "SELECT CASE WHEN _query = 'ok' THEN 1 END FROM {t}",
    "SELECT count(*) FILTER (WHERE _query = 'ok') FROM {t}",
    "SELECT level FROM {t} GROUP BY level, _query = 'ok'",
    "SELECT id FROM {t} ORDER BY _query = 'ok'",
    "SELECT * FROM {t} WHERE _query = 'ok' UNION SELECT * FROM {t} WHERE _query = 'disk'",
    "SELECT DISTINCT * FROM {t} WHERE _query = 'ok'",
    "SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE a._query = 'ok' AND (b._query = 'ok' OR b.id = 1)",
    "SELECT a.id FROM {t} a FULL JOIN {t} b ON a.id = b.id AND b._query = 'ok'",
    "SELECT a.id FROM {t} a LEFT JOIN {t} b ON a.id = b.id AND a._query = 'ok'",
    "SELECT * FROM {t} a NATURAL JOIN {t} b WHERE a._query = 'ok'",
    "SELECT a.id FROM {t} a, {t} b WHERE _query = 'ok'",
    "SELECT id FROM {t} WHERE id IN (SELECT id FROM {t} WHERE _query = 'ok') OR _query = 'ok'",
    "SELECT id FROM {t} WHERE textsearch(message, 'ok')",
    "SELECT id FROM {t} WHERE message indexquery 'ok'",
    "SELECT id, _score FROM {t} WHERE _query = 'ok'",
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_search_without_a_meaning_for_every_row_is_refused(folder, text):
    with pytest.raises(InvalidStatementError):
        answer(folder, text)


def test_a_mention_in_a_text_or_a_comment_is_no_search(folder):
    text = "SELECT count(*) FROM {t} WHERE message <> '_query = ''ok''' -- _query\n AND /* _query */ id > 0"
    plain = "SELECT count(*) FROM {t} WHERE id > 0"
    assert answer(folder, text) == answer(folder, plain)


def test_a_query_for_the_columns_alone_has_no_rows(folder):
    found = indextables.sql(
        f"SELECT * FROM (SELECT * FROM '{folder / 'logs'}' WHERE _query = 'ok') x WHERE 1 = 0"
    )
    assert (found.num_rows, found.schema.names) == (0, list(ROWS[0]))


# --- Tables -----------------------------------------------------------------------------------------------


def test_time_travel_by_version_and_by_moment(folder):
    table = IndexTable(folder / "logs")
    first = IndexTable(folder / "logs", version=0)
    moment = first.history(limit=1)["timestamp"].to_pylist()[0].isoformat()
    assert answer(folder, "SELECT count(*) FROM {t} VERSION AS OF 0") == [(first.num_rows,)]
    assert (
        answer(folder, f"SELECT count(*) FROM {{t}} TIMESTAMP AS OF '{moment}'")[0][0] <= table.num_rows + 1
    )
    both = (
        "SELECT count(*) FROM {t} VERSION AS OF 1 a LEFT JOIN {t} b ON a.id = b.id "
        "WHERE a._query = 'timeout' AND b.id IS NULL"
    )
    assert answer(folder, both)[0][0] > 0  # the row that was deleted later, and the one without an id
    with pytest.raises(VersionNotFoundError):
        answer(folder, "SELECT 1 FROM {t} VERSION AS OF 99")
    with pytest.raises(InvalidStatementError, match="VERSION AS OF 3"):
        answer(folder, "SELECT 1 FROM {t} VERSION AS OF latest")


def test_parquet_files_join_tables(folder):
    joined = f"SELECT count(*) FROM {{t}} l JOIN '{folder / 'logs.parquet'}' p ON l.id = p.id WHERE l._query = 'disk'"
    assert answer(folder, joined) == answer(folder, "SELECT count(id) FROM {t} WHERE _query = 'disk'")
    with pytest.raises(ObjectNotFoundError, match="no such Parquet file"):
        answer(folder, "SELECT 1 FROM 'nowhere.parquet'")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("SELECT 1 FROM '/nowhere'", TableNotFoundError, "no table here"),
        ("SELECT nope FROM {t}", InvalidStatementError, "nope"),
        ("SELECT id FROM {t} WHERE _query = '('", InvalidQueryError, "not closed"),
        ("SELECT id FROM {t} WHERE _query = 'nope:x'", InvalidQueryError, "nope"),
        ("SELECT id FROM {t} WHERE", InvalidStatementError, "cannot execute the query"),
        ("WITH x AS (SELECT 1) INSERT INTO x SELECT 2", InvalidStatementError, "cannot execute the query"),
        ("SELECT message / 0 FROM {t}", InvalidStatementError, "cannot execute the query"),
    ],
)
def test_errors_are_ours_and_say_what_is_wrong(folder, text, error, message):
    with pytest.raises(error, match=message):
        answer(folder, text)


def test_a_damaged_split_is_an_error_and_never_fewer_rows(tmp_path):
    table = indextables.write(tmp_path / "logs", ROWS, text="message")
    [split] = table.files()["path"].to_pylist()
    data = bytearray((tmp_path / "logs" / split).read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    (tmp_path / "logs" / split).write_bytes(data)
    with pytest.raises(SplitCorruptedError):
        answer(tmp_path, "SELECT sum(id) FROM {t}")


def test_files_that_a_condition_rules_out_are_not_opened(folder, tmp_path):
    table = indextables.write(tmp_path / "logs", ROWS, text="message", partition_by="day")
    for split in table.files(where="day <> '2026-01-02'")["path"].to_pylist():
        (tmp_path / "logs" / split).unlink()
    found = answer(tmp_path, "SELECT count(id) FROM {t} WHERE day = DATE '2026-01-02' AND _query = 'disk'")
    assert found == expected(
        folder, "SELECT count(id) + 0 FROM {t} WHERE day = '2026-01-02' AND message LIKE '%disk%'"
    )
