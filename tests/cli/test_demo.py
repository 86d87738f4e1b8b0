"""`indextables demo`."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.cli.demo.place import DEMO_MARK, DEMO_PROPERTY, make_room
from support import PATIENCE_SECONDS
from support.cli_tables import SCHEMA, Invoke

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="Spark needs Java, which is not installed"
)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def run_demo(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from indextables.cli import main; main()", "demo", *arguments]
    # The demo would stop the session of another test in the same process.
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The JSON output of a complete demo."""
    place = tmp_path_factory.mktemp("demo") / "my demo"
    result = run_demo(str(place), "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@needs_java
def test_demo_runs_all_steps(output: dict) -> None:
    assert [step["name"] for step in output["steps"]] == [
        "start Spark",
        "read the text",
        "index the text",
        "search with SQL",
        "search without Spark",
        "stream new lines in",
        "overwrite one partition",
        "time travel",
        "merge small splits",
        "write a checkpoint",
        "describe the state",
        "purge (dry run)",
    ]
    steps = {step["name"]: step for step in output["steps"]}
    assert "timeout" in steps["search with SQL"]["lines"][0]
    assert steps["search with SQL"]["hits"] == steps["search without Spark"]["hits"]
    assert "lazy database" in steps["stream new lines in"]["hits"][0]["text"]
    then, now = steps["time travel"]["lines"]
    assert "JSONDecodeError" in then
    assert "JSONDECODEERROR" in now


@needs_java
def test_demo_leaves_a_correct_table(output: dict) -> None:
    table = IndexTable(output["path"])
    operations = table.history()["operation"].to_pylist()
    assert operations == ["MERGE", "OVERWRITE", "WRITE", "SET PROPERTIES", "WRITE", "CREATE TABLE"]
    rows = int(output["steps"][1]["figures"]["rows indexed"].replace(",", ""))
    assert table.count() == rows + 1_000
    assert table.fsck().is_clean


@needs_java
def test_commands_suggested_by_the_demo_work(output: dict, invoke: Invoke) -> None:
    for line in output["next"]:
        program, *arguments = shlex.split(line)
        assert program == "indextables"
        assert invoke(*arguments).exit_code == 0, line


def test_demo_without_java_is_one_error_line(tmp_path: Path) -> None:
    result = run_demo(str(tmp_path / "demo"), JAVA_HOME=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("error: Spark needs Java 17 or newer")
    assert "Traceback" not in result.stderr


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The table of an earlier demo."""
    place = tmp_path / "demo"
    table = IndexTable.create(
        str(place), SCHEMA, partition_by=["date"], properties={DEMO_PROPERTY: DEMO_MARK}
    )
    table.append(pa.table({"date": ["2026-01-30"], "latency_ms": [1], "message": ["hello"]}, schema=SCHEMA))
    return place


def test_earlier_demo_is_removed(earlier: Path) -> None:
    assert make_room(earlier)
    assert list(earlier.iterdir()) == []


def test_new_and_empty_directories_are_accepted(tmp_path: Path) -> None:
    assert not make_room(tmp_path / "new")
    assert not make_room(tmp_path)


def test_directory_with_other_content_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    result = invoke("demo", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path} is not empty and is not an earlier demo table")
    assert contents(tmp_path) == before


def test_other_table_is_not_touched(invoke: Invoke, table_path: str) -> None:
    before = contents(Path(table_path))
    assert invoke("demo", table_path).exit_code == 1
    assert contents(Path(table_path)) == before


@pytest.mark.parametrize(
    "stray",
    ["notes.txt", "date=2026-01-30/notes", "_transaction_log/notes.txt", "_transaction_log/manifests/notes"],
)
def test_demo_table_with_a_stray_file_is_not_touched(invoke: Invoke, earlier: Path, stray: str) -> None:
    (earlier / stray).parent.mkdir(exist_ok=True)
    (earlier / stray).write_text("mine")
    before = contents(earlier)
    assert invoke("demo", str(earlier)).exit_code == 1
    assert contents(earlier) == before


def test_demo_table_behind_a_link_is_not_touched(invoke: Invoke, tmp_path: Path, earlier: Path) -> None:
    before = contents(earlier)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "_transaction_log").symlink_to(earlier / "_transaction_log")
    assert invoke("demo", str(tmp_path / "linked")).exit_code == 1
    assert contents(earlier) == before


def test_damaged_demo_table_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    log = tmp_path / "demo" / "_transaction_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    before = contents(tmp_path)
    assert invoke("demo", str(tmp_path / "demo")).exit_code == 1
    assert contents(tmp_path) == before


def test_table_with_a_different_mark_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    IndexTable.create(str(place), SCHEMA, properties={DEMO_PROPERTY: DEMO_MARK.upper()})
    before = contents(place)
    assert invoke("demo", str(place)).exit_code == 1
    assert contents(place) == before


def test_file_instead_of_a_directory_is_not_touched(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert invoke("demo", str(tmp_path / "file")).exit_code == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_demo_in_an_object_store_is_wrong_usage(invoke: Invoke) -> None:
    result = invoke("demo", "s3://bucket/demo")
    assert result.exit_code == 2
    assert "a local directory" in result.stderr


@needs_java
def test_an_interrupted_demo_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-c", "from indextables.cli import main; main()", "demo", "demo"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    # The next step is the first Spark job, which takes long enough.
    for line in process.stdout:
        if "read the text" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=PATIENCE_SECONDS)[1]
    assert process.returncode == 130
    assert "interrupted: stopped by the user" in errors
