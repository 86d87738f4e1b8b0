"""`indextables delete`, `update` and `upsert`: dry runs, confirmations and answers."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable
from support.cli_tables import Invoke

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["day"])
    table.append(pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"], "n": [1, 2, 3]}, schema=SCHEMA))
    return str(tmp_path / "t")


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "changes.csv").write_text("id,day,n\n3,b,30\n4,b,40\n")
    return str(tmp_path / "changes.csv")


def rows(path: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in IndexTable(path).to_arrow().to_pylist())


def test_delete_counts_asks_and_deletes(invoke: Invoke, path: str) -> None:
    result = invoke("delete", path, "--where", "n < 3", "--dry-run")
    assert ("day=a" in result.stdout, "2 rows would be deleted" in result.stdout) == (True, True)
    assert invoke("delete", path, "--where", "n < 3").exit_code != 0  # nobody to ask
    assert IndexTable(path).version == 1
    assert "version 2: 2 rows deleted" in invoke("delete", path, "--where", "n < 3", "--yes").stdout


def test_update_counts_asks_and_updates(invoke: Invoke, path: str) -> None:
    arguments = ("update", path, "--set", "n = n * 10", "--where", "id >= 2")
    result = invoke(*arguments, "--dry-run")
    assert "2 rows would be updated" in result.stdout
    assert "day=b" in result.stdout
    assert invoke(*arguments).exit_code != 0
    assert IndexTable(path).version == 1
    assert "version 2: 2 rows updated" in invoke(*arguments, "--yes").stdout
    assert rows(path) == [(1, 1), (2, 20), (3, 30)]
    told = json.loads(invoke(*arguments[:-1], "id > 9", "--yes", "--json").stdout)
    assert (told["status"], told["updated_rows"]) == ("NO_ACTION", 0)


def test_upsert_counts_asks_and_changes(invoke: Invoke, path: str, source: str) -> None:
    arguments = ("upsert", path, source, "--on", "id")
    result = invoke(*arguments, "--dry-run")
    assert "would update 1 row, delete 0 and insert 1" in result.stdout
    assert invoke(*arguments).exit_code != 0
    assert IndexTable(path).version == 1
    assert "version 2: 1 row updated, 0 deleted, 1 inserted" in invoke(*arguments, "--yes").stdout
    assert rows(path) == [(1, 1), (2, 2), (3, 30), (4, 40)]
    options = ("--set", "n = target.n + source.n", "--delete-where", "source.n = 40", "--no-insert", "--yes")
    told = json.loads(invoke(*arguments, *options, "--json").stdout)
    assert (told["updated_rows"], told["deleted_rows"], told["inserted_rows"]) == (1, 1, 0)
    assert rows(path) == [(1, 1), (2, 2), (3, 60)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("update", "PATH", "--set", "n = 1"), "say which rows to update"),
        (("update", "PATH", "--set", "n", "--where", "true"), "is no assignment"),
        (("update", "PATH", "--set", "n=1", "--set", "n=2", "--where", "true"), "set twice"),
        (("upsert", "PATH", "PATH", "--on", "id", "--no-update", "--set", "n=1"), "leave out one of the two"),
    ],
)
def test_wrong_usage_is_refused(invoke: Invoke, path: str, arguments: tuple[str, ...], reason: str) -> None:
    result = invoke(*(path if each == "PATH" else each for each in arguments))
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())
