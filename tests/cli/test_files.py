"""`indextables files`."""

import json
from pathlib import Path

from indextables import AddAction, IndexTable
from indextables.log.entries import FILE_ENTRY_SCHEMA
from support import row_tables
from support.cli_tables import SCHEMA, Invoke, add


def test_text_output_is_an_aligned_table(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path)
    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["path", "rows", "size", "added"]
    assert first.split()[:4] == ["date=2026-01-30/a.split", "1,000", "1.2", "MiB"]
    assert second.startswith("date=2026-01-31/b.split")
    assert first.index("1,000") == second.index("1,000")
    assert "ago (" in first or "just now (" in first
    assert result.stderr == "2 files\n"


def test_json_has_every_column_with_exact_numbers(invoke: Invoke, table_path: str) -> None:
    rows = json.loads(invoke("files", table_path, "--json").stdout)
    assert [list(row) for row in rows] == [FILE_ENTRY_SCHEMA.names] * 2
    assert [row["path"] for row in rows] == ["date=2026-01-30/a.split", "date=2026-01-31/b.split"]
    assert rows[0]["size"] == 1_258_291
    assert rows[0]["numRecords"] == 1000
    assert rows[0]["modificationTime"] == 1_700_000_000_000
    assert rows[0]["partitionValues"] == {"date": "2026-01-30"}
    assert rows[0]["addedAtVersion"] == 1


def test_where_skips_files_and_says_how_many(invoke: Invoke, table_path: str) -> None:
    where = "date = '2026-01-31'"
    result = invoke("files", table_path, "--where", where)
    assert "2026-01-30" not in result.stdout
    assert result.stderr == "1 file may match, 1 of 2 skipped\n"
    rows = json.loads(invoke("files", table_path, "--where", where, "--json").stdout)
    assert [row["path"] for row in rows] == ["date=2026-01-31/b.split"]


def test_where_that_leaves_nothing_prints_no_empty_table(invoke: Invoke, table_path: str) -> None:
    where = "date = '1999-01-01'"
    result = invoke("files", table_path, "--where", where)
    assert (result.stdout, result.stderr) == ("", "0 files may match, 2 of 2 skipped\n")
    assert invoke("files", table_path, "--where", where, "--json").stdout == "[]\n"


def test_where_that_does_not_fit_the_table_exits_with_1(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path, "--where", "nowhere = 1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    result = invoke("files", table_path, "--where", "date =")
    assert result.exit_code == 1
    error, text, caret = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert (text, caret) == ("  date =", "        ^")


def test_columns_are_shown_in_the_given_order(invoke: Invoke, table_path: str) -> None:
    asked = ("--columns", "size, path,partitionValues,dataChange,size")
    lines = invoke("files", table_path, *asked).stdout.splitlines()
    assert lines[0].split() == ["size", "path", "partitionValues", "dataChange"]
    assert lines[1].split() == ["1.2", "MiB", "date=2026-01-30/a.split", "date=2026-01-30", "yes"]
    rows = json.loads(invoke("files", table_path, "--json", *asked).stdout)
    assert list(rows[0]) == ["size", "path", "partitionValues", "dataChange"]


def test_unknown_column_is_wrong_usage_with_a_suggestion(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path, "--columns", "path,sise")
    assert result.exit_code == 2
    assert "did you mean size?" in result.stderr
    assert invoke("files", table_path, "--columns", "").exit_code == 2


def test_limit_reports_how_many_are_not_shown(invoke: Invoke, table_path: str) -> None:
    lines = invoke("files", table_path, "--limit", "1").stderr.splitlines()
    assert lines == ["… 1 of 2 shown; omit --limit to see all", "2 files"]
    assert len(json.loads(invoke("files", table_path, "--limit", "1", "--json").stdout)) == 1
    assert json.loads(invoke("files", table_path, "--limit", "0", "--json").stdout) == []


def test_time_travel_shows_the_files_of_that_version(invoke: Invoke, table_path: str) -> None:
    assert len(json.loads(invoke("files", table_path, "--version", "2", "--json").stdout)) == 3
    history = json.loads(invoke("history", table_path, "--json").stdout)
    created = next(commit["timestamp"] for commit in history if commit["version"] == 0)
    result = invoke("files", table_path, "--timestamp", created, "--json")
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) <= 1


def test_table_with_no_files_is_no_error(invoke: Invoke, tmp_path: object) -> None:
    IndexTable.create(f"{tmp_path}/empty", SCHEMA)
    assert invoke("files", f"{tmp_path}/empty").stderr == "0 files\n"
    assert invoke("files", f"{tmp_path}/empty", "--json").stdout == "[]\n"


def test_missing_values_are_shown_as_dashes(invoke: Invoke, tmp_path: object) -> None:
    table = IndexTable.create(f"{tmp_path}/odd", SCHEMA, partition_by=["date"])
    nameless = AddAction(
        path="x.split", partition_values={"date": None}, size=1, modification_time=0, data_change=False
    )
    table.commit(adds=[nameless])
    lines = invoke(
        "files", f"{tmp_path}/odd", "--columns", "path,partitionValues,numRecords,dataChange"
    ).stdout
    assert lines.splitlines()[1].split() == ["x.split", "-", "-", "no"]


def test_path_with_control_characters_is_escaped_in_text_and_exact_in_json(
    invoke: Invoke, tmp_path: object
) -> None:
    table = IndexTable.create(f"{tmp_path}/odd", SCHEMA, partition_by=["date"])
    evil = "\u202eevil-é.split"
    table.commit(adds=[add("2026-01-31", "ordinary"), AddAction(
        path=evil, partition_values={"date": "x"}, size=1, modification_time=0, data_change=True
    )])  # fmt: skip
    plain = invoke("files", f"{tmp_path}/odd").stdout
    assert "\u202e" not in plain
    assert "\\u202eevil-é.split" in plain
    rows = json.loads(invoke("files", f"{tmp_path}/odd", "--json").stdout)
    assert evil in [row["path"] for row in rows]


def test_paths_are_what_other_engines_open(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path + "/", "--format", "paths", "--where", "date = '2026-01-31'")
    assert result.stdout == f"{table_path}/date=2026-01-31/b.split\n"
    assert invoke("files", table_path, "--format", "paths", "--limit", "0").stdout == ""
    for wrong in (("--json",), ("--columns", "size")):
        result = invoke("files", table_path, "--format", "paths", *wrong)
        assert (result.exit_code, "--format" in result.stderr) == (2, True)


def test_deleted_rows_do_not_count(invoke: Invoke, tmp_path: Path) -> None:
    path = (tmp_path / "t").as_posix()
    table = IndexTable.create(path, row_tables.SCHEMA)
    table.append(row_tables.rows(*range(10)))
    table.delete(where="id < 3")
    assert invoke("files", path).stdout.splitlines()[1].split()[1] == "7"
