"""`indextables merge`."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indextables import IndexTable
from support import PATIENCE_SECONDS
from support.cli_tables import Invoke
from support.row_tables import SCHEMA, ids, rows, split_files


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with three splits in one partition and two in another."""
    path = str(tmp_path / "table")
    table = IndexTable.create(path, SCHEMA, partition_by=["day"], text=["body"])
    for number, day in enumerate("abaab"):
        table.append(rows(number, day=day))
    return path


def test_merge_reports_text(invoke: Invoke, path: str) -> None:
    result = invoke("merge", path)
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.startswith("version 6: 5 splits became 2, in ")
    assert second.startswith("5 rows, ")
    assert invoke("merge", path).stdout == "nothing to merge\n"


def test_merge_reports_json(invoke: Invoke, path: str) -> None:
    document = json.loads(
        invoke("merge", path, "--where", "day = 'a'", "--max-source-splits", "2", "--json").stdout
    )
    table = IndexTable(path)
    assert document.pop("bytes_before") > document.pop("bytes_after") > 0
    assert document == {
        "table_path": table.snapshot.context.url,
        "status": "SUCCESS",
        "version": 6,
        "merged_groups": 1,
        "source_splits": 2,
        "new_splits": 1,
        "rows": 2,
        "skipped": [],
        "given_up": [],
        "message": "2 splits became 1",
    }
    assert (table.num_files, ids(table)) == (4, [0, 1, 2, 3, 4])


def test_new_splits_are_limited(invoke: Invoke, path: str) -> None:
    assert invoke("merge", path, "--max-dest-splits", "1").exit_code == 0
    assert IndexTable(path).num_files == 3


def test_a_split_that_cannot_be_read_is_a_warning(invoke: Invoke, path: str) -> None:
    bad = Path(path) / IndexTable(path).files(where="day = 'a'")["path"][0].as_py()
    bad.write_bytes(b"?" * bad.stat().st_size)
    result = invoke("merge", path)
    assert result.exit_code == 0
    assert f"{bad.name} was skipped: SplitCorruptedError" in result.stderr
    assert "4 splits became 2" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--target-size", "large"), ("--max-dest-splits", "0"), ("--max-source-splits", "1")],
)
def test_wrong_limits_are_wrong_usage(invoke: Invoke, path: str, arguments: tuple[str, str]) -> None:
    result = invoke("merge", path, *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_a_predicate_on_other_columns_is_refused(invoke: Invoke, path: str) -> None:
    result = invoke("merge", path, "--where", "id = 3")
    assert result.exit_code == 1
    assert "'id' is not a partition column" in result.stderr


# Ctrl-C as soon as the first group is uploaded, while the second is in progress.
INTERRUPTED = """
import os, signal, sys
from indextables.cli import main
from indextables.split.writer import SplitWriter

signal.signal(signal.SIGINT, signal.default_int_handler)
original = SplitWriter.commit

def commit(writer):
    files = original(writer)
    os.kill(os.getpid(), signal.SIGINT)
    return files

SplitWriter.commit = commit
sys.argv = ["indextables", *sys.argv[1:]]
main()
"""


def test_ctrl_c_commits_nothing_and_deletes_the_uploads(path: str) -> None:
    before = split_files(Path(path))
    finished = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "merge", path, "--option", "merge.parallelism=1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert finished.returncode == 128 + signal.SIGINT
    assert finished.stderr == "interrupted: stopped by the user\n"
    assert split_files(Path(path)) == before
    assert (IndexTable(path).version, IndexTable(path).num_files) == (5, 5)
