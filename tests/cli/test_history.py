"""`indextables history`."""

import json

from indextables.table.history import HISTORY_SCHEMA
from support.cli_tables import Invoke


def test_commits_are_listed_newest_first(invoke: Invoke, table_path: str) -> None:
    result = invoke("history", table_path)
    assert result.exit_code == 0
    header, *commits = result.stdout.splitlines()
    assert header.split() == ["version", "committed", "operation", "changes"]
    assert [line.split()[0] for line in commits] == ["3", "2", "1", "0"]
    assert commits[0].endswith("DELETE        1 file removed")
    assert commits[1].endswith("WRITE         2 files added, 1.2 MiB")
    assert commits[3].endswith("CREATE TABLE  -")
    assert result.stderr == "4 commits\n"


def test_json_has_stable_keys_and_times_that_timestamp_accepts(invoke: Invoke, table_path: str) -> None:
    commits = json.loads(invoke("history", table_path, "--json").stdout)
    assert [list(commit) for commit in commits] == [HISTORY_SCHEMA.names] * 4
    assert [commit["version"] for commit in commits] == [3, 2, 1, 0]
    assert commits[1]["operation_metrics"]["numAddedFiles"] == 2
    newest = invoke("describe", table_path, "--json", "--timestamp", commits[0]["timestamp"])
    assert json.loads(newest.stdout)["version"] == 3


def test_limit_keeps_the_newest(invoke: Invoke, table_path: str) -> None:
    commits = json.loads(invoke("history", table_path, "--json", "--limit", "2").stdout)
    assert [commit["version"] for commit in commits] == [3, 2]
    assert invoke("history", table_path, "--limit", "0").stderr == "0 commits\n"


def test_history_of_an_older_version_ends_there(invoke: Invoke, table_path: str) -> None:
    commits = json.loads(invoke("history", table_path, "--json", "--version", "1").stdout)
    assert [commit["version"] for commit in commits] == [1, 0]
