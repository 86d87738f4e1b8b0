"""`indextables repair`."""

import json
import shutil
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.log.paths import version_key
from support.cli_tables import Invoke
from support.row_tables import SCHEMA, ids, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table whose second version is missing."""
    path = str(tmp_path / "table")
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    for number in (1, 2, 3):
        table.append(rows(number))
    Path(path, version_key(2)).unlink()
    return path


def files(path: str) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


def test_dry_run_shows_what_can_be_recovered(invoke: Invoke, path: str) -> None:
    before = files(path)
    result = invoke("repair", path, "--dry-run")
    assert result.exit_code == 0
    assert "3 splits can be recovered; nothing was written" in result.stdout
    assert "version 2 cannot be read" in result.stderr
    assert files(path) == before


def test_repair_elsewhere(invoke: Invoke, path: str) -> None:
    before = files(path)
    result = invoke("repair", path, "--at", f"{path}-repaired", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert (answer["status"], answer["num_files"], answer["num_rows"]) == ("PARTIAL", 3, 3)
    assert (answer["proven_version"], answer["newest_version"], answer["version"]) == (1, 3, 4)
    assert answer["location"] == f"file://{path}-repaired"
    assert files(path) == before
    assert ids(IndexTable(f"{path}-repaired")) == [1, 2, 3]
    again = invoke("repair", path, "--at", f"{path}-repaired")
    assert (again.exit_code, "already has a transaction log" in again.stderr) == (1, True)


def test_only_the_log(invoke: Invoke, path: str) -> None:
    assert invoke("repair", path, "--at", f"{path}-log", "--log-only").exit_code == 0
    assert not list(Path(f"{path}-log").rglob("*.split"))
    assert IndexTable(f"{path}-log").num_rows == 3


def test_swap_asks_first_and_keeps_the_old_log(invoke: Invoke, path: str) -> None:
    refused = invoke("repair", path, "--swap")
    assert refused.exit_code == 2
    result = invoke("repair", path, "--swap", "--yes")
    assert result.exit_code == 0
    assert "version 4 with 3 splits" in result.stdout
    (aside,) = Path(path).glob("_transaction_log.damaged-*")
    assert f"file://{aside}" in result.stdout
    assert {file.name for file in aside.iterdir()} >= {"00000000000000000003.json"}
    assert ids(IndexTable(path)) == [1, 2, 3]
    assert "the log is intact" in invoke("repair", path, "--swap", "--yes").stdout


def test_old_log_is_kept_without_swap(invoke: Invoke, path: str) -> None:
    before = files(path)
    result = invoke("repair", path)
    assert (result.exit_code, "ask for a swap" in result.stderr) == (1, True)
    assert files(path) == before


def test_missing_log_is_written_in_place(invoke: Invoke, path: str) -> None:
    shutil.rmtree(Path(path, "_transaction_log"))
    assert invoke("repair", path).exit_code == 0
    assert ids(IndexTable(path)) == [1, 2, 3]


@pytest.mark.parametrize(
    "options", [("--swap", "--dry-run"), ("--at", "x", "--swap"), ("--at", "x", "--dry-run")]
)
def test_options_that_contradict_each_other(invoke: Invoke, path: str, options: tuple[str, ...]) -> None:
    assert invoke("repair", path, "--yes", *options).exit_code == 2


def test_nothing_to_repair(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("repair", str(tmp_path / "nothing"))
    assert (result.exit_code, "nothing to repair" in result.stderr) == (1, True)


def test_long_lists_of_problems_are_shortened(invoke: Invoke, path: str) -> None:
    for number in range(25):
        Path(path, f"broken-{number:02}.split").write_bytes(b"no split")
    result = invoke("repair", path, "--dry-run")
    assert "20 of 25 shown" in result.stdout
