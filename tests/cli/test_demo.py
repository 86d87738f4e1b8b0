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
from support.cli_tables import SCHEMA, Invoke

needs_java = pytest.mark.skipif(
    shutil.which("java") is None, reason="Spark needs Java, which is not installed"
)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def run_demo(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from indextables.cli import main; main()", "demo", *arguments]
    # A session of another test in the same process would be stopped by the demo.
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What a whole demo says of itself."""
    place = tmp_path_factory.mktemp("demo") / "my demo"
    result = run_demo(str(place), "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@needs_java
def test_demo_goes_from_nothing_to_the_end(told: dict) -> None:
    assert [step["name"] for step in told["steps"]] == [
        "start Spark",
        "read a corpus",
        "index it",
        "search with SQL",
        "search without Spark",
        "stream new lines in",
        "overwrite one partition",
        "travel back",
        "merge small splits",
        "write a checkpoint",
        "describe the state",
        "purge, as a dry run",
    ]
    steps = {step["name"]: step for step in told["steps"]}
    assert "timeout" in steps["search with SQL"]["lines"][0]
    assert steps["search with SQL"]["hits"] == steps["search without Spark"]["hits"]
    assert "lazy database" in steps["stream new lines in"]["hits"][0]["text"]
    then, now = steps["travel back"]["lines"]
    assert "JSONDecodeError" in then
    assert "JSONDECODEERROR" in now


@needs_java
def test_demo_leaves_a_table_that_is_right(told: dict) -> None:
    table = IndexTable(told["path"])
    operations = table.history()["operation"].to_pylist()
    assert operations == ["MERGE", "OVERWRITE", "WRITE", "SET PROPERTIES", "WRITE", "CREATE TABLE"]
    rows = int(told["steps"][1]["figures"]["rows in the corpus"].replace(",", ""))
    assert table.count() == rows + 1_000
    assert table.fsck().is_clean


@needs_java
def test_what_the_demo_says_to_type_next_works(told: dict, invoke: Invoke) -> None:
    for line in told["next"]:
        program, *arguments = shlex.split(line)
        assert program == "indextables"
        assert invoke(*arguments).exit_code == 0, line


def test_without_java_the_demo_says_so_in_one_sentence(tmp_path: Path) -> None:
    result = run_demo(str(tmp_path / "demo"), JAVA_HOME=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr.startswith("error: Spark needs Java 17 or newer")
    assert "Traceback" not in result.stderr


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A table as an earlier demo left it."""
    place = tmp_path / "demo"
    table = IndexTable.create(
        str(place), SCHEMA, partition_by=["date"], properties={DEMO_PROPERTY: DEMO_MARK}
    )
    table.append(pa.table({"date": ["2026-01-30"], "latency_ms": [1], "message": ["hello"]}, schema=SCHEMA))
    return place


def test_earlier_demo_makes_room(earlier: Path) -> None:
    assert make_room(earlier)
    assert list(earlier.iterdir()) == []


def test_new_and_empty_directories_have_room(tmp_path: Path) -> None:
    assert not make_room(tmp_path / "new")
    assert not make_room(tmp_path)


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


@needs_java
def test_an_interrupted_demo_says_so_in_one_line(tmp_path: Path) -> None:
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
    # What comes next is the first work of Spark, which takes long enough.
    for line in process.stdout:
        if "read a corpus" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    complaints = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "interrupted: nothing more is done" in complaints
