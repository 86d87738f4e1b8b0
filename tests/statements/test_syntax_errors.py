"""Errors point at the word, say what may stand there, and show the syntax."""

import pytest

import indextables
from indextables import errors
from indextables.statements import parse_statement
from indextables.statements.forms import FORMS

MISTAKES = [
    ("DESCRIBE INDEXTABLES «STAT» 'p'", "did you mean STATE?"),
    ("DESCRIBE INDEXTABLES «'»p'", "expected DISK, ENVIRONMENT, HISTORY, MERGE, STATE or TRANSACTION"),
    ("DESCRIBE INDEXTABLES TRANSACTION «LOGS» 'p'", "expected LOG"),
    ("CHECKPOINT «INDEXTABLE» 'p'", "expected INDEXTABLES"),
    (
        "CHECKPOINT INDEXTABLES«»",
        "the statement ends here, but a path in quotes, or a table's name must follow",
    ),
    ("CHECKPOINT INDEXTABLES «;»", "expected a path in quotes, or a table's name"),
    ("CHECKPOINT INDEXTABLES «'»p", "this quote is not closed"),
    ("CHECKPOINT INDEXTABLES «`»p", "this quote is not closed"),
    ("CHECKPOINT INDEXTABLES «''»", "the path is empty"),
    ("CHECKPOINT INDEXTABLES 'p' «'»q'", "expected the end of the statement"),
    ("CHECKPOINT INDEXTABLES 'p' «/*» comment", "this comment is not closed"),
    ("CHECKPOINT INDEXTABLES 'p'; «CHECKPOINT» INDEXTABLES 'q'", "expected the end of the statement"),
    ("MERGE SPLITS 'p' TARGET SIZE «5X»", "expected a size such as 100M"),
    ("MERGE SPLITS 'p' TARGET SIZE «'much'»", "not a size"),
    ("MERGE SPLITS 'p' «TARGET» SIZES 5M", "did you mean TARGET SIZE?"),
    ("MERGE SPLITS 'p' MAX DEST SPLITS «many»", "expected a whole number"),
    ("MERGE SPLITS 'p' MAX DEST SPLITS 1 «MAX DEST» SPLITS 2", "this clause occurs twice"),
    ("MERGE SPLITS 'p' WHERE«»", "a condition must follow"),
    ("PURGE INDEXTABLE 'p' OLDER THAN 7 «WEEKS»", "expected DAYS or HOURS"),
    ("PURGE INDEXTABLE 'p' OLDER THAN «999999999999999999» DAYS", "the retention is too long"),
    ("PURGE INDEXTABLE 'p' OLDER «7» DAYS", "expected THAN"),
    ("PURGE INDEXTABLE 'p' DRY RUN «DRY RUN»", "this clause occurs twice"),
    ("DROP INDEXTABLES PARTITIONS FROM 'p'«»", "WHERE must follow"),
    ("DROP INDEXTABLES «PARTITION» FROM 'p' WHERE a = 1", "expected PARTITIONS"),
    ("TRUNCATE INDEXTABLES «'»p'", "expected TIME"),
    ("REPAIR INDEXFILES TRANSACTION LOG 'p' AT LOCATION «q»", "expected a text in quotes"),
    ("RESTORE INDEXTABLES 'p' TO VERSION «-»1", "expected"),
    ("RESTORE INDEXTABLES 'p' TO TIMESTAMP «'yesterday'»", "not a timestamp"),
    ("FLUSH INDEXTABLES«»", "DISK must follow"),
]


@pytest.mark.parametrize(("marked", "reason"), MISTAKES, ids=lambda text: text[:40])
def test_error_points_at_the_word_and_shows_the_syntax(marked, reason):
    start, end = marked.index("«"), marked.index("»") - 1
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(errors.InvalidStatementError) as caught:
        parse_statement(text)
    first, shown, marks, introduction, *syntax = str(caught.value).splitlines()
    assert caught.value.position == start
    assert first.startswith(f"cannot parse the statement at character {start + 1}: ")
    assert reason in first
    # The text may be cut on the left; the marks stand below what they are about.
    assert shown[marks.index("^") :].startswith(text[start:end])
    assert len(marks.strip()) == max(1, end - start)
    assert introduction == "the syntax is"
    head = text.split()[0]
    assert syntax
    assert all(line.startswith(f"  {head} ") for line in syntax)


def test_error_in_a_condition_has_a_position():
    with pytest.raises(errors.InvalidPredicateError, match="functions are not supported"):
        parse_statement("DROP INDEXTABLES PARTITIONS FROM 'p' WHERE upper(a) = 'B'")


@pytest.mark.parametrize("text", ["", "SELEKT 1", "DESCRIBE TABLE t", "CHECKPOIN INDEXTABLES 'p'"])
def test_a_text_that_is_not_a_statement_raises_an_error_with_all_statements(text):
    with pytest.raises(errors.InvalidStatementError, match="not a statement of IndexTables") as caught:
        indextables.sql(text)
    assert all(f"\n  {form.syntax}" in str(caught.value) for form in FORMS)


def test_a_name_without_a_catalog_asks_for_the_path():
    with pytest.raises(errors.InvalidStatementError, match="write the path of the table in quotes"):
        indextables.sql("CHECKPOINT INDEXTABLES db.logs")
