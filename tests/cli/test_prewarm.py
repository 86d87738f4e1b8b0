"""`indextables prewarm`."""

import json
from pathlib import Path

import pytest

from indextables import IndexTable
from support.cli_tables import Invoke, RunProcess
from support.row_tables import SCHEMA, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with two splits in one partition and one in another."""
    path = str(tmp_path / "table")
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    for number, day in enumerate("aba"):
        table.append(rows(number, day=day))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return f"cache.disk.path={tmp_path / 'cache'}"


def test_prewarm_reports_text(invoke: Invoke, path: str, cache: str, tmp_path: Path) -> None:
    result = invoke("prewarm", path, "--option", cache)
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"3 splits of 3 in {tmp_path / 'cache'}, ")
    assert " fetched in " in line
    assert invoke("prewarm", path, "--where", "day = 'c'").stdout == "there are no splits to prewarm\n"


def test_prewarm_reports_json(invoke: Invoke, path: str, cache: str, tmp_path: Path) -> None:
    arguments = ("prewarm", path, "--fields", "body, id", "--where", "day = 'a'", "--option", cache, "--json")
    (host,) = json.loads(invoke(*arguments).stdout)["hosts"]
    assert host.pop("cached_bytes") > 0
    assert host.pop("fetched_bytes") >= 0
    assert host.pop("host")
    assert host == {
        "table_path": IndexTable(path).snapshot.context.url,
        "status": "SUCCESS",
        "version": 3,
        "cache_path": str(tmp_path / "cache"),
        "fields": ["body", "id"],
        "num_splits": 2,
        "cached_splits": 2,
        "warmed_splits": 2,
        "left_bytes": 0,
        "message": "2 of 2 splits are in the cache",
        "problems": [],
    }


def test_a_column_that_does_not_exist_is_an_error_with_a_suggestion(
    run_process: RunProcess, path: str
) -> None:
    done = run_process("prewarm", path, "--fields", "boddy")
    assert done.returncode == 1
    assert "did you mean 'body'?" in done.stderr


def test_an_unreadable_split_is_a_warning(invoke: Invoke, path: str, cache: str) -> None:
    lost = IndexTable(path).files()["path"].to_pylist()[0]
    Path(path, lost).unlink()
    result = invoke("prewarm", path, "--option", cache)
    assert f"{lost} was left out" in result.stderr
    assert (result.exit_code, result.stdout[:17]) == (0, "2 splits of 3 in ")
    result = invoke(
        "prewarm", path, "--option", cache, "--option", "cache.disk.maxSize=1M", "--where", "id = 0"
    )
    assert (result.exit_code, result.stdout[:17]) == (1, "0 splits of 1 in ")
