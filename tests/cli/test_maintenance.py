"""`indextables purge`, `truncate`, `drop-partitions`, `restore` and `fsck`."""

import json
import os
import time
from pathlib import Path

import pytest

from indextables import IndexTable
from support.cli_tables import Invoke
from support.row_tables import SCHEMA, ids, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Version 1 adds two partitions, version 2 drops one; there is an orphan split, ten days old."""
    path = tmp_path / "table"
    table = IndexTable.create(str(path), SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    table.append(rows(3, day="2024-01-02"))
    table.drop_partitions("day = '2024-01-02'")
    old = time.time() - 10 * 86_400
    (path / "orphan.split").write_bytes(b"left over")
    os.utime(path / "orphan.split", (old, old))
    return str(path)


# --- purge --------------------------------------------------------------------------------------------


def test_dry_run_of_a_purge_lists_files(invoke: Invoke, path: str) -> None:
    result = invoke("purge", path, "--dry-run")
    assert result.exit_code == 0
    assert "orphan.split" in result.stdout
    assert "1 file would be deleted, 9 B (1 orphaned split)" in result.stdout
    assert "1 removed split" in result.stdout
    assert Path(path, "orphan.split").exists()


def test_purge_reports_deleted_files_as_json(invoke: Invoke, path: str) -> None:
    result = invoke("purge", path, "--older-than", "7 days", "--yes", "--json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["num_deleted"], told["num_kept_for_time_travel"], told["status"]) == (1, 1, "SUCCESS")
    assert [(row["path"], row["is_deleted"]) for row in told["files"]] == [("orphan.split", True)]
    assert not Path(path, "orphan.split").exists()


def test_purge_reports_deleted_files_as_text(invoke: Invoke, path: str) -> None:
    result = invoke("purge", path, "--yes")
    assert "1 file deleted, 9 B (1 orphaned split), in" in result.stdout


def test_purge_with_log_retention_ends_time_travel(invoke: Invoke, path: str) -> None:
    invoke("checkpoint", path)
    arguments = ("--older-than", "0 hours", "--log-retention", "0 hours", "--yes")
    unchecked = ("--option", "purge.retentionCheckEnabled=false")
    assert invoke("purge", path, *arguments, *unchecked).exit_code == 0
    assert IndexTable(path).history()["operation"].to_pylist() == ["PURGE", "DROP PARTITIONS"]
    assert ids(IndexTable(path)) == [1, 2]


def test_purge_with_a_retention_that_is_too_short_is_refused(invoke: Invoke, path: str) -> None:
    result = invoke("purge", path, "--older-than", "1 hour", "--dry-run")
    assert result.exit_code == 1
    assert "retentionCheckEnabled" in result.stderr


def test_malformed_retention_is_wrong_usage(invoke: Invoke, path: str) -> None:
    assert invoke("purge", path, "--older-than", "soon").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("purge",),
        ("truncate",),
        ("drop-partitions", "--where", "day = '2024-01-01'"),
        ("delete", "--where", "id = 1"),
        ("restore", "--version", "1"),
    ],
)
def test_without_a_terminal_nothing_is_deleted_unless_confirmed(
    invoke: Invoke, path: str, arguments: tuple[str, ...]
) -> None:
    before = sorted(Path(path).rglob("*"))
    result = invoke(arguments[0], path, *arguments[1:])
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert sorted(Path(path).rglob("*")) == before


# --- truncate -----------------------------------------------------------------------------------------


def test_truncation(invoke: Invoke, path: str) -> None:
    dry = invoke("truncate", path, "--dry-run")
    assert "3 versions, 0 checkpoints and 0 manifests would be deleted" in dry.stdout
    result = invoke("truncate", path, "--yes", "--json")
    told = json.loads(result.stdout)
    assert (told["version"], told["num_versions"], told["status"]) == (3, 3, "SUCCESS")
    assert IndexTable(path).history().num_rows == 1
    assert "3 remains" in invoke("truncate", path, "--yes").stdout


# --- drop-partitions ----------------------------------------------------------------------------------


def test_dropping_partitions(invoke: Invoke, path: str) -> None:
    result = invoke("drop-partitions", path, "--where", "day = '2024-01-01'", "--yes", "--json")
    told = json.loads(result.stdout)
    assert (told["version"], told["removed_files"], told["status"]) == (4, 1, "SUCCESS")
    again = invoke("drop-partitions", path, "--where", "day = '2024-01-01'", "--yes")
    assert again.stdout == "no partition matches; nothing was committed\n"


def test_dropping_by_another_column_is_refused(invoke: Invoke, path: str) -> None:
    result = invoke("drop-partitions", path, "--where", "id = 1", "--yes")
    assert result.exit_code == 1
    assert "not a partition column" in result.stderr


# --- restore ------------------------------------------------------------------------------------------


def test_restoring_a_version(invoke: Invoke, path: str) -> None:
    result = invoke("restore", path, "--version", "2", "--yes")
    assert result.stdout == "version 4 restores version 2: 2 files\n"
    assert ids(IndexTable(path)) == [1, 2, 3]
    again = invoke("restore", path, "--version", "2", "--yes", "--json")
    told = json.loads(again.stdout)
    assert (told["version"], told["status"], told["num_files"]) == (4, "NO_ACTION", 2)


def test_restoring_a_timestamp(invoke: Invoke, path: str) -> None:
    moment = IndexTable(path).history().to_pylist()[1]["timestamp"].isoformat()
    assert invoke("restore", path, "--timestamp", moment, "--yes").exit_code == 0
    assert ids(IndexTable(path)) == [1, 2, 3]


@pytest.mark.parametrize("arguments", [(), ("--version", "1", "--timestamp", "2026-01-01")])
def test_version_or_timestamp(invoke: Invoke, path: str, arguments: tuple[str, ...]) -> None:
    assert invoke("restore", path, *arguments, "--yes").exit_code == 2


# --- fsck ---------------------------------------------------------------------------------------------


def test_intact_table_is_clean(invoke: Invoke, path: str) -> None:
    result = invoke("fsck", path, "--deep")
    assert result.exit_code == 0
    assert "orphaned-splits" in result.stdout
    assert "clean: 4 versions, 0 checkpoints and 1 split checked" in result.stdout


def test_damage_is_reported_and_exits_with_1(invoke: Invoke, path: str) -> None:
    (split,) = Path(path, "day=2024-01-01").glob("*.split")
    split.unlink()
    result = invoke("fsck", path, "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["status"], told["num_errors"]) == ("FAILED", 1)
    assert told["findings"][0]["code"] == "split-missing"
    assert "1 error in 2 findings" in invoke("fsck", path).stdout


# --- delete -------------------------------------------------------------------------------------------


def test_dry_run_of_a_delete_counts_rows_by_partition(invoke: Invoke, path: str) -> None:
    result = invoke("delete", path, "--where", "id < 9", "--dry-run")
    assert result.exit_code == 0
    assert "day=2024-01-01" in result.stdout
    assert "2 rows would be deleted" in result.stdout
    assert ids(IndexTable(path)) == [1, 2]


def test_delete_reports_the_version(invoke: Invoke, path: str) -> None:
    result = invoke("delete", path, "--where", "id = 1", "--yes")
    assert "version 4: 1 row deleted" in result.stdout
    assert ids(IndexTable(path)) == [2]
    again = invoke("delete", path, "--where", "id = 1", "--yes")
    assert (again.exit_code, again.stdout.strip()) == (0, "no row matches; nothing was committed")


def test_delete_by_a_query_as_json(invoke: Invoke, path: str) -> None:
    result = invoke("delete", path, "--query", 'body:"row 2"', "--yes", "--json")
    told = json.loads(result.stdout)
    assert (told["status"], told["deleted_rows"]) == ("SUCCESS", 1)
    assert ids(IndexTable(path)) == [1]


def test_delete_without_a_condition_is_wrong_usage(invoke: Invoke, path: str) -> None:
    result = invoke("delete", path, "--yes")
    assert result.exit_code == 2
    assert "--where true means all" in " ".join(result.stderr.split())


# --- alter --------------------------------------------------------------------------------------------


def test_columns_are_altered(invoke: Invoke, path: str) -> None:
    result = invoke("alter", path, "ADD COLUMN level STRING DEFAULT 'INFO' AFTER id")
    assert (result.exit_code, result.stdout) == (0, "version 4: the columns are id, level, day, body\n")
    assert (
        json.loads(invoke("alter", path, "RENAME COLUMN body TO text", "--json").stdout)["status"]
        == "SUCCESS"
    )
    assert invoke("alter", path, "DROP COLUMN text").exit_code == 2
    assert IndexTable(path).to_arrow(columns=["level"])["level"].to_pylist() == ["INFO", "INFO"]
    assert invoke("alter", path, "DROP COLUMN text", "--yes").exit_code == 0
    again = invoke("alter", path, "ALTER COLUMN id TYPE BIGINT")
    assert "nothing was committed" in again.stdout
    assert IndexTable(path).schema.names == ["id", "level", "day"]


def test_a_change_that_is_not_one_shows_the_syntax(invoke: Invoke, path: str) -> None:
    result = invoke("alter", path, "ADD level STRING")
    assert result.exit_code == 1
    assert "expected COLUMNS" in result.stderr
    assert "ADD COLUMNS (column type" in result.stderr
