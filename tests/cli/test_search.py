"""`indextables search`."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable
from support.cli_tables import Invoke
from support.terminal import run_in_terminal

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "level": ["INFO", "ERROR", "ERROR", "INFO"],
        "message": ["door opened", "door closed", "window closed closed", "nothing"],
    }
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = IndexTable.create(str(tmp_path / "events"), ROWS.schema, text=["message"])
    table.append(ROWS)
    return str(tmp_path / "events")


def test_the_best_rows_come_first_with_their_texts(invoke: Invoke, path: str) -> None:
    result = invoke("search", path, "closed")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.strip() for line in lines[1::2]] == [
        "message: window closed closed",
        "message: door closed",
    ]
    assert "id=3  level=ERROR" in lines[0]
    assert re.fullmatch(r"2 of 2 hits in \d.*s\n", result.stderr)


def test_columns_limit_and_where_restrict_the_result(invoke: Invoke, path: str) -> None:
    result = invoke("search", path, "closed", "--columns", "id", "--limit", "1")
    assert (result.stdout.count("id="), "message" in result.stdout) == (1, False)
    result = invoke("search", path, "door", "--where", "level = 'ERROR'", "--json")
    assert [row["id"] for row in json.loads(result.stdout)] == [2]


def test_json_has_every_column_and_the_score(invoke: Invoke, path: str) -> None:
    rows = json.loads(invoke("search", path, "opened", "--json").stdout)
    assert [{**row, "_score": row["_score"] > 0} for row in rows] == [
        {"id": 1, "level": "INFO", "message": "door opened", "_score": True}
    ]


def test_matches_are_highlighted_on_a_terminal(
    command: list[str], terminal_environment: dict[str, str], path: str
) -> None:
    code, text = run_in_terminal([*command, "search", path, "opened"], terminal_environment)
    assert code == 0
    assert "door \x1b[" in text
    assert "opened\x1b[" in text


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("window2", "searched for words in message"),
        ("error", "searched for exact values in level; use level:abc* to search by prefix"),
        ("17", "not searched: id; search a column by name, as in id:VALUE"),
    ],
)
def test_a_search_without_hits_prints_hints(invoke: Invoke, path: str, query: str, hint: str) -> None:
    result = invoke("search", path, query)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith("0 of 0 hits in ")
    assert hint in result.stderr


def test_a_query_with_a_field_gets_no_hint(invoke: Invoke, path: str) -> None:
    result = invoke("search", path, "level:FATAL")
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)


def test_a_malformed_query_is_shown_with_a_caret(invoke: Invoke, path: str) -> None:
    result = invoke("search", path, "closed AND (level:ERROR")
    assert result.exit_code == 1
    error, text, caret = result.stderr.splitlines()
    assert "this ( is not closed" in error
    assert text == "  closed AND (level:ERROR"
    assert caret == "             ^"


def test_rows_are_sorted_by_a_column_and_paged(invoke: Invoke, path: str) -> None:
    def ids(*arguments: str) -> list[int]:
        result = invoke("search", path, "*", "--columns", "id", "--json", *arguments)
        return [row["id"] for row in json.loads(result.stdout)]

    everything = sorted(ids("--limit", "100"))
    assert ids("--sort", "id:desc", "--limit", "2") == everything[::-1][:2]
    assert ids("--sort", "id", "--offset", "1", "--limit", "2") == everything[1:3]
    assert ids("--sort=-id", "--limit", "1") == everything[-1:]
    shown = invoke("search", path, "*", "--sort", "id", "--limit", "1")
    assert shown.stdout.startswith(f"id={everything[0]}  ")
    assert f"1 of {len(everything)} hits" in shown.stderr


def test_a_column_without_an_order_is_an_error(invoke: Invoke, path: str) -> None:
    result = invoke("search", path, "*", "--sort", "idd")
    assert result.exit_code == 1
    assert "no column 'idd' to sort by" in result.stderr
