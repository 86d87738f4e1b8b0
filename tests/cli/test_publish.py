"""`indextables publish`."""

import json
from pathlib import Path

import pytest

from indextables import IndexTable
from support.cli_tables import Invoke, RunProcess
from support.delta_readers import delta_ids
from support.row_tables import SCHEMA, rows


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = IndexTable.create(tmp_path / "table", SCHEMA, partition_by=["day"])
    table.append(rows(1, 2))
    return str(tmp_path / "table")


def test_publish_says_which_versions_other_engines_see(invoke: Invoke, path: str) -> None:
    assert invoke("publish", path).stdout == "versions 0 to 1 are published as delta\n"
    assert delta_ids(Path(path)) == [1, 2]
    again = invoke("publish", path, "--as", "delta")
    assert again.stdout == "versions 0 to 1 are published as delta; nothing was missing\n"


def test_publish_reports_json(invoke: Invoke, path: str) -> None:
    assert json.loads(invoke("publish", path, "--json").stdout) == {
        "table_path": IndexTable(path).snapshot.context.url,
        "status": "SUCCESS",
        "format": "delta",
        "version": 1,
        "first_version": 0,
        "num_published": 2,
        "num_trimmed": 0,
        "message": "versions 0 to 1 are published as delta",
    }


def test_an_unknown_format_is_wrong_use(run_process: RunProcess, path: str) -> None:
    done = run_process("publish", path, "--as", "hudi")
    assert done.returncode != 0
    assert "known formats: delta" in done.stderr
