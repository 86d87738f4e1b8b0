"""`indextables demo`."""

import json
import shlex
from pathlib import Path

import pytest

from cli.tables import SCHEMA, Invoke
from indextables import IndexTable
from indextables.cli.demo_place import DEMO_MARK, DEMO_PROPERTY


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_demo_tells_its_story_and_what_to_type_next(invoke: Invoke, tmp_path: Path) -> None:
    place = tmp_path / "my demo"
    result = invoke("demo", str(place))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "no data behind them" in result.stdout
    for words in (
        "create a table",
        "append files",
        "replace files",
        "remove a file",
        "travel back by version",
        "travel back in time",
        "list the history",
        "write a checkpoint",
        "describe the state",
    ):
        assert f". {words} (" in result.stdout
    assert f"indextables history '{place}'" in result.stdout.partition("Now try")[2]


def test_demo_leaves_a_table_with_a_history_and_a_checkpoint(invoke: Invoke, tmp_path: Path) -> None:
    invoke("demo", str(tmp_path / "demo"))
    table = IndexTable(str(tmp_path / "demo"))
    assert (table.version, table.num_files) == (5, 4)
    operations = table.history()["operation"].to_pylist()
    assert operations == ["DELETE", "REPLACE", "WRITE", "WRITE", "WRITE", "CREATE TABLE"]
    state = {row["property"]: row["value"] for row in table.describe_state().to_pylist()}
    assert state["checkpointVersion"] == "5"


def test_demo_in_json_is_one_document(invoke: Invoke, tmp_path: Path) -> None:
    document = json.loads(invoke("demo", str(tmp_path / "demo"), "--json").stdout)
    assert list(document) == ["path", "replacedEarlierDemo", "writesDataFiles", "steps", "next"]
    assert document["path"] == str(tmp_path / "demo")
    assert (document["replacedEarlierDemo"], document["writesDataFiles"]) == (False, False)
    assert all(list(step) == ["name", "milliseconds", "version", "lines"] for step in document["steps"])
    assert document["steps"][-1]["version"] == 5


def test_what_the_demo_says_to_type_next_works(invoke: Invoke, tmp_path: Path) -> None:
    document = json.loads(invoke("demo", str(tmp_path / "demo"), "--json").stdout)
    for line in document["next"]:
        program, *arguments = shlex.split(line)
        assert program == "indextables"
        assert invoke(*arguments).exit_code == 0, line


def test_default_directory_is_in_the_working_directory(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("demo").exit_code == 0
    assert IndexTable(str(tmp_path / "demo-table")).version == 5


def test_earlier_demo_is_replaced(invoke: Invoke, tmp_path: Path) -> None:
    invoke("demo", str(tmp_path / "demo"))
    first = IndexTable(str(tmp_path / "demo")).metadata.id
    result = invoke("demo", str(tmp_path / "demo"))
    assert result.exit_code == 0
    assert "in the place of an earlier demo" in result.stdout
    second = IndexTable(str(tmp_path / "demo"))
    assert second.metadata.id != first
    assert second.version == 5


def test_directory_with_something_else_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    result = invoke("demo", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path} is not empty, and it is not an earlier demo table")
    assert contents(tmp_path) == before


def test_other_table_is_not_touched(invoke: Invoke, table_path: str) -> None:
    before = contents(Path(table_path))
    assert invoke("demo", table_path).exit_code == 1
    assert contents(Path(table_path)) == before


@pytest.mark.parametrize(
    "stray", ["notes.txt", "_transaction_log/notes.txt", "_transaction_log/manifests/notes"]
)
def test_demo_table_with_a_stray_file_is_not_touched(invoke: Invoke, tmp_path: Path, stray: str) -> None:
    place = tmp_path / "demo"
    invoke("demo", str(place))
    (place / stray).parent.mkdir(exist_ok=True)
    (place / stray).write_text("mine")
    before = contents(place)
    assert invoke("demo", str(place)).exit_code == 1
    assert contents(place) == before


def test_demo_table_behind_a_link_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    invoke("demo", str(tmp_path / "demo"))
    before = contents(tmp_path / "demo")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "_transaction_log").symlink_to(tmp_path / "demo" / "_transaction_log")
    assert invoke("demo", str(tmp_path / "linked")).exit_code == 1
    assert contents(tmp_path / "demo") == before


def test_damaged_demo_table_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    log = tmp_path / "demo" / "_transaction_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    before = contents(tmp_path)
    assert invoke("demo", str(tmp_path / "demo")).exit_code == 1
    assert contents(tmp_path) == before


def test_table_that_only_claims_part_of_the_mark_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    IndexTable.create(str(place), SCHEMA, properties={DEMO_PROPERTY: DEMO_MARK.upper()})
    before = contents(place)
    assert invoke("demo", str(place)).exit_code == 1
    assert contents(place) == before


def test_file_in_the_place_of_the_directory_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert invoke("demo", str(tmp_path / "file")).exit_code == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_demo_elsewhere_than_on_this_machine_is_wrong_use(invoke: Invoke) -> None:
    result = invoke("demo", "s3://bucket/demo")
    assert result.exit_code == 2
    assert "a directory on this machine" in result.stderr
