"""The syntax: what is read as what, what is left to others, and that nothing else ever happens."""

import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables import errors
from indextables.statements import Statement, TableName, TablePath, is_statement, nodes, parse_statement
from indextables.statements.forms import FORMS, is_ours
from indextables.statements.grammar import GRAMMAR, MAX_STATEMENT_LENGTH
from support.statement_texts import written

SPARKS_OWN = [
    "",
    ";",
    "-- CHECKPOINT INDEXTABLES 'p'",
    "/* CHECKPOINT INDEXTABLES 'p'",
    "SELECT 1",
    "select * from indextables",
    "SELECT 'CHECKPOINT INDEXTABLES'",
    "CHECKPOINT",
    "CHECKPOINT TABLE t",
    "DESCRIBE TABLE t",
    "DESCRIBE TABLE EXTENDED indextables",
    "DESCRIBE HISTORY t",
    "DESCRIBE indextables",
    "DESCRIBE indextables;",
    "DESC indextables",
    "DESCRIBE indextables.state",
    "DESCRIBE indextables PARTITION (day = '2024-01-01')",
    "DESCRIBE indextables AS JSON",
    "DESCRIBE `indextables` state",
    "DESCRIBE indextable state",
    "DESCRIBE DATABASE EXTENDED indextables",
    "DESCRIBE FUNCTION indextables",
    "DESCRIBE QUERY SELECT 1",
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "MERGE WITH SCHEMA EVOLUTION INTO splits USING s ON true WHEN NOT MATCHED THEN INSERT *",
    "REPAIR TABLE t",
    "REPAIR TABLE indextables",
    "MSCK REPAIR TABLE t",
    "TRUNCATE TABLE t",
    "TRUNCATE TABLE indextables",
    "DROP TABLE t",
    "DROP TABLE IF EXISTS indextables",
    "DROP DATABASE indextables",
    "DROP VIEW indextables",
    "DROP INDEX i ON indextables",
    "RESTORE TABLE t TO VERSION AS OF 3",
    "REFRESH TABLE indextables",
    "INVALIDATE",
    "CACHE TABLE indextables",
    "PREWARM TABLE indextables",
    "EXPLAIN CHECKPOINT INDEXTABLES 'p'",
    "SHOW TABLES",
    "SHOW TABLES IN indextables",
    "SET spark.indextables.state.format = json",
    "INSERT INTO indextables VALUES (1)",
    "CREATE TEMPORARY VIEW v USING indextables OPTIONS (path 'p')",
    "WITH merge AS (SELECT 1) SELECT * FROM merge",
]


@given(written())
@settings(max_examples=400)
def test_case_spaces_and_quotes_do_not_change_a_statement(case):
    statement, text = case
    assert is_statement(text)
    assert parse_statement(text) == statement


@given(written())
@settings(max_examples=20)
def test_statements_pickle(case):
    statement, text = case
    assert pickle.loads(pickle.dumps(parse_statement(text))) == statement


@pytest.mark.parametrize("text", SPARKS_OWN)
def test_the_sql_of_spark_is_left_alone(text):
    assert not is_statement(text)
    assert parse_statement(text) is None


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind.__name__)
def test_the_example_of_a_form_parses_to_its_statement(form):
    assert type(parse_statement(form.example)) is form.kind


def test_every_statement_has_a_form():
    kinds = {kind for kind in vars(nodes).values() if isinstance(kind, type) and issubclass(kind, Statement)}
    assert kinds - {Statement} == {form.kind for form in FORMS}


HEADS = st.sampled_from(["", *(" ".join(form.head) for form in FORMS), "DESCRIBE INDEXTABLES"])
TAILS = st.text() | st.lists(
    st.sampled_from(
        [
            *GRAMMAR.split(),
            "'p'",
            "'",
            '"',
            "`a`",
            "`",
            ";",
            "--",
            "/*",
            "*/",
            "5",
            "100M",
            "WHERE",
            "a = 1",
            "(",
            "\n",
            ".",
        ]
    )
).map(" ".join)


@given(HEADS, TAILS)
@example("MERGE SPLITS", "'p' WHERE `")
@example("CHECKPOINT INDEXTABLES", "'\\")
@example("MERGE SPLITS", "p MAX DEST SPLITS 99999999999999999999999")
@example("PURGE INDEXTABLE", "p OLDER THAN 999999999999999999 DAYS")
@example("RESTORE INDEXTABLES", "p TO TIMESTAMP '0001-01-01T00:00:00+23:59'")
@example("MERGE SPLITS", "p TARGET SIZE 999999999999999999P")
@example("CHECKPOINT INDEXTABLES", "'\ud800'")
@settings(max_examples=500)
def test_any_text_parses_or_raises_an_error_with_a_position(head, tail):
    text = f"{head} {tail}"
    outcome = _outcome(text)
    if isinstance(outcome, errors.InvalidStatementError):
        assert outcome.position is not None
        assert 0 <= outcome.position <= len(text)
        assert "the syntax is\n" in str(outcome)
    elif isinstance(outcome, errors.InvalidPredicateError):
        assert "where" in text.lower()
    else:
        assert (outcome is not None) == is_statement(text)


def _outcome(text):
    try:
        return parse_statement(text)
    except (errors.InvalidStatementError, errors.InvalidPredicateError) as error:
        return error


@pytest.mark.parametrize(
    ("literal", "path"),
    [
        ("'s3://bucket/logs'", "s3://bucket/logs"),
        ('"it\'s"', "it's"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\\b'", "a\\b"),
        (r"'a\tb\n'", "a\tb\n"),
        (r"'\q'", "q"),
        ("'a; -- b /* c'", "a; -- b /* c"),
        ("'données/日本'", "données/日本"),
    ],
)
def test_paths_are_quoted_as_in_spark(literal, path):
    assert parse_statement(f"CHECKPOINT INDEXTABLES {literal}") == nodes.Checkpoint(TablePath(path))


def test_a_name_has_parts_and_may_be_a_keyword():
    statement = parse_statement("DESCRIBE INDEXTABLES TRANSACTION LOG where.`a.b`.include INCLUDE ALL")
    assert statement == nodes.DescribeTransactionLog(TableName(("where", "a.b", "include")), True)


def test_a_condition_ends_where_the_next_clause_begins_and_not_at_a_column_of_the_same_name():
    statement = parse_statement(
        "MERGE SPLITS 'p' WHERE target = 1 AND max IN (2) AND s = 'MAX DEST SPLITS 1' MAX /* most */ DEST SPLITS 7"
    )
    assert isinstance(statement, nodes.MergeSplits)
    assert statement.where == "target = 1 AND max IN (2) AND s = 'MAX DEST SPLITS 1'"
    assert statement.max_dest_splits == 7


def test_a_statement_that_is_too_long_is_refused():
    with pytest.raises(errors.InvalidStatementError, match="characters"):
        parse_statement(f"CHECKPOINT INDEXTABLES '{'x' * MAX_STATEMENT_LENGTH}'")


def test_a_long_condition_parses():
    values = ", ".join(f"'2024-{number}'" for number in range(2000))
    statement = parse_statement(f"DROP INDEXTABLES PARTITIONS FROM 'p' WHERE date IN ({values})")
    assert isinstance(statement, nodes.DropPartitions)
    assert statement.where.endswith("'2024-1999')")


def test_many_comments_parse_fast():
    comments = "/* * */ -- more\n" * 500
    with pytest.raises(errors.InvalidStatementError):
        parse_statement(f"MERGE SPLITS 'p' TARGET {comments} WIDTH 5")
    statement = parse_statement(f"MERGE SPLITS 'p' TARGET {comments} SIZE 5")
    assert statement == nodes.MergeSplits(TablePath("p"), target_bytes=5)


@pytest.mark.parametrize(
    ("with_word", "documented"),
    [
        ("PURGE INDEXTABLES 'p' DRY RUN", "PURGE INDEXTABLE 'p' DRY RUN"),
        ("REPAIR INDEXTABLES 'p' AT LOCATION 'q'", "REPAIR INDEXFILES TRANSACTION LOG 'p' AT LOCATION 'q'"),
        ("REPAIR INDEXTABLES TRANSACTION LOG 'p'", "REPAIR INDEXFILES TRANSACTION LOG 'p'"),
        ("MERGE INDEXTABLES 'p' TARGET SIZE 1G", "MERGE SPLITS 'p' TARGET SIZE 1G"),
        ("MERGE INDEXTABLES SPLITS a.b", "MERGE SPLITS a.b"),
        ("DELETE INDEXTABLES FROM 'p' WHERE a = 1", "DELETE FROM 'p' WHERE a = 1"),
        ("UPDATE INDEXTABLES 'p' SET a = 1", "UPDATE 'p' SET a = 1"),
        ("ALTER INDEXTABLES 'p' DROP COLUMN c", "ALTER TABLE 'p' DROP COLUMN c"),
    ],
)
def test_every_statement_takes_the_word_indextables(with_word, documented):
    parsed = parse_statement(with_word)
    assert parsed is not None
    assert parsed == parse_statement(documented)


def test_every_statement_with_the_word_is_ours_and_none_of_spark():
    for form in FORMS:
        first = form.syntax.split()[0]
        assert is_ours(f"{first} INDEXTABLES STATE 'p'")
