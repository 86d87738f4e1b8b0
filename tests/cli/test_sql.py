"""`indextables sql`."""

import json
from pathlib import Path

import pytest

import indextables
from indextables.statements.forms import FORMS
from support.cli_tables import Invoke


def test_json_has_what_the_function_returns(invoke: Invoke, table_path: str) -> None:
    text = f"DESCRIBE INDEXTABLES STATE '{table_path}'"
    result = invoke("sql", text, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == indextables.sql(text).to_pylist()


def test_one_row_is_printed_vertically(invoke: Invoke, table_path: str) -> None:
    result = invoke("sql", f"checkpoint indextables '{table_path}';")
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert lines[0] == ["column", "value"]
    assert ["status", "SUCCESS"] in lines
    assert ["num_files", "2"] in lines
    assert ["previous_format", "-"] in lines


def test_files_of_a_dry_run_are_listed_below(invoke: Invoke, table_path: str) -> None:
    result = invoke("sql", f"TRUNCATE INDEXTABLES TIME TRAVEL '{table_path}' DRY RUN")
    summary, _, listed = result.stdout.partition("\n\nfiles\n")
    assert summary.splitlines()[-1].split(maxsplit=1) == ["files", "3 items"]
    heading, *files = listed.splitlines()
    assert heading.split() == ["path", "kind", "size", "age_hours", "is_deleted", "error"]
    assert [line.split()[1] for line in files] == ["version"] * 3


def test_many_rows_are_a_table(invoke: Invoke, table_path: str) -> None:
    result = invoke("sql", f"DESCRIBE INDEXTABLES HISTORY '{table_path}'")
    heading, *lines = result.stdout.splitlines()
    assert heading.split()[:3] == ["version", "timestamp", "operation"]
    assert [line.split()[0] for line in lines] == ["3", "2", "1", "0"]
    assert result.stderr == "4 rows\n"


def test_options_apply(invoke: Invoke, table_path: str) -> None:
    result = invoke(
        "sql", f"CHECKPOINT INDEXTABLES '{table_path}'", "--json", "--option", "state.format=json"
    )
    assert json.loads(result.stdout)[0]["new_format"] == "json"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CHECKPOINT INDEXTABLES", "CHECKPOINT INDEXTABLES table"),
        ("DESCRIBE INDEXTABLES STAT 'p'", "did you mean STATE?"),
        ("CHECKPOINT INDEXTABLES logs", "write the path of the table in quotes"),
        ("MERGE SPLITS 'p' WHERE f(x)", "functions are not supported"),
        ("SELEKT 1", FORMS[-1].syntax),
        ("SELECT )", "cannot execute the query"),
    ],
)
def test_a_malformed_statement_is_wrong_usage(invoke: Invoke, text: str, told: str) -> None:
    result = invoke("sql", text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_caret_is_below_the_word(invoke: Invoke) -> None:
    lines = invoke("sql", "DESCRIBE INDEXTABLES STAT 'p'").stderr.splitlines()
    shown = next(index for index, line in enumerate(lines) if line.startswith("  DESCRIBE INDEXTABLES STAT "))
    assert lines[shown].index("STAT ") == lines[shown + 1].index("^~~~")


def test_a_failing_statement_exits_with_1(invoke: Invoke, table_path: str) -> None:
    missing = invoke("sql", f"CHECKPOINT INDEXTABLES '{table_path}/nothing'")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "there is no table" in missing.stderr
    # The splits of this table were never written.
    broken = invoke("sql", f"FSCK INDEXTABLES '{table_path}'", "--json")
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)[0]["status"] == "FAILED"
    refused = invoke("sql", f"DROP INDEXTABLES PARTITIONS FROM '{table_path}' WHERE latency_ms = 1")
    assert refused.exit_code == 1


def test_a_select_streams_its_rows_in_every_format(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "logs"
    rows = [{"id": number, "message": f"timeout {number}"} for number in range(3)]
    indextables.write(path, rows, text="message")
    text = f"SELECT id FROM '{path}' WHERE _query = 'timeout' AND id > 0 ORDER BY id"
    shown = invoke("sql", text)
    assert (shown.stdout.split(), shown.stderr) == (["id", "1", "2"], "2 rows\n")
    assert json.loads(invoke("sql", text, "--json").stdout) == [{"id": 1}, {"id": 2}]
    assert invoke("sql", text, "--format", "jsonl").stdout.splitlines() == ['{"id": 1}', '{"id": 2}']
    assert invoke("sql", text, "-o", str(tmp_path / "ids.parquet")).exit_code == 0
    joined = f"SELECT count(*) AS n FROM '{path}' l JOIN '{tmp_path / 'ids.parquet'}' p ON l.id = p.id"
    assert json.loads(invoke("sql", joined, "--json").stdout) == [{"n": 2}]
    many = invoke("sql", "SELECT * FROM generate_series(1, 5000)")
    assert many.stderr == "the first 1,000 rows; use --format table to see all\n"
    assert len(many.stdout.splitlines()) == 1001
