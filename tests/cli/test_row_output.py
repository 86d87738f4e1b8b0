"""`--format` and `-o`: where the rows of an answer go."""

import contextlib
import json
import signal
import stat
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.cli.new_file import delete_unfinished_files, new_file
from support import PATIENCE_SECONDS
from support.cli_tables import Invoke, RunProcess
from support.terminal import run_in_terminal

ROWS = pa.table({"id": list(range(30)), "message": [f"door {number} opened" for number in range(30)]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = IndexTable.create(str(tmp_path / "events"), ROWS.schema, text=["message"])
    table.append(ROWS)
    return str(tmp_path / "events")


COMMANDS = {
    "search": ("search", "{}", "door"),
    "files": ("files", "{}"),
    "history": ("history", "{}"),
    "sql": ("sql", "DESCRIBE INDEXTABLES HISTORY '{}'"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "json"])
def test_every_command_with_rows_writes_every_format(
    invoke: Invoke, path: str, tmp_path: Path, name: str, suffix: str
) -> None:
    arguments = [argument.format(path) for argument in COMMANDS[name]]
    file = tmp_path / f"rows.{suffix}"
    result = invoke(*arguments, "-o", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    expected = json.loads(invoke(*arguments, "--json").stdout)
    count = "row" if len(expected) == 1 else "rows"
    assert f"{len(expected)} {count} written to {file}" in result.stderr
    found = duckdb.read_parquet(str(file)) if suffix == "parquet" else duckdb.sql(f"from '{file}'")
    assert found.columns == list(expected[0])
    assert len(found) == len(expected)


def test_the_same_rows_go_to_stdout(invoke: Invoke, path: str) -> None:
    expected = json.loads(invoke("search", path, "door", "--json").stdout)
    lines = invoke("search", path, "door", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == expected
    header, *rows = invoke("search", path, "door", "--format", "csv", "-o", "-").stdout.splitlines()
    assert header == '"id","message","_score"'
    assert len(rows) == len(expected)
    table = invoke("search", path, "door", "--format", "table", "--columns", "id").stdout.splitlines()
    assert table[0].split() == ["id", "_score"]
    assert [int(line.split()[0]) for line in table[1:]] == [row["id"] for row in expected]


def test_the_footer_counts_all_hits_and_is_no_row(invoke: Invoke, path: str) -> None:
    for arguments in ((), ("--format", "jsonl")):
        assert invoke("search", path, "door", *arguments).stderr.startswith("10 of 30 hits in ")
    assert invoke("search", path, "door", "--json").stderr == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--json", "--format", "csv"), "not both"),
        (("--format", "parquet"), "Parquet needs a file: add -o FILE"),
        (("--format", "parquet", "-o", "-"), "Parquet needs a file: add -o FILE"),
        (("-o", "rows"), "the name rows has no suffix of a format; add --format"),
        (("-o", "nowhere/rows.csv"), "there is no directory nowhere"),
        (("-o", "s3://bucket/rows.csv"), "is a URL; name a local file"),
        (("-o", ".", "--format", "csv"), "is a directory; name a file in it"),
        (("--format", "cvs"), "'cvs' is not one of"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    invoke: Invoke, path: str, options: tuple[str, ...], told: str
) -> None:
    result = invoke("search", path, "door", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr


def test_a_file_is_replaced_as_a_whole_and_keeps_its_mode(invoke: Invoke, path: str, tmp_path: Path) -> None:
    file, link = tmp_path / "out" / "rows.csv", tmp_path / "out" / "link.csv"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    assert invoke("search", path, "door", "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert file.read_text().startswith('"id"')
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(file.parent.iterdir()) == [link, file]


def test_a_failing_command_leaves_the_old_file(invoke: Invoke, path: str, tmp_path: Path) -> None:
    file = tmp_path / "out" / "rows.csv"
    file.parent.mkdir()
    file.write_text("old")
    for split in Path(path).rglob("*.split"):
        split.write_bytes(b"")
    assert invoke("search", path, "door", "-o", str(file)).exit_code == 1
    assert (file.read_text(), list(file.parent.iterdir())) == ("old", [file])


def test_a_device_is_written_to_and_not_replaced(run_process: RunProcess, path: str) -> None:
    result = run_process("search", path, "door", "--format", "csv", "-o", "/dev/null")
    assert (result.returncode, result.stdout) == (0, "")
    assert not Path("/dev/null").is_file()
    if Path("/dev/full").exists():
        result = run_process("search", path, "door", "--format", "csv", "-o", "/dev/full")
        assert result.returncode == 1
        assert result.stderr == "error: /dev/full cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_a_full_disk_behind_stdout_is_one_line(command: list[str], path: str) -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [*command, "files", path],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr == b"error: stdout cannot be written: No space left on device\n"


def test_rows_on_a_terminal_are_a_table_without_control_characters(
    command: list[str], terminal_environment: dict[str, str], tmp_path: Path
) -> None:
    table = IndexTable.create(str(tmp_path / "t"), ROWS.schema, text=["message"])
    table.append(pa.table({"id": [1], "message": ["evil \x1b[31m door"]}))
    code, text = run_in_terminal(
        [*command, "search", str(tmp_path / "t"), "door", "--format", "table"], terminal_environment
    )
    assert code == 0
    assert "evil \\x1b[31m door" in text


def test_the_first_rows_of_a_long_answer_come_before_the_last(
    command: list[str], plain_environment: dict[str, str], tmp_path: Path
) -> None:
    """The pipe takes no more than the first rows, so a command that wrote them only at its end could not end."""
    rows = 50_000
    table = IndexTable.create(str(tmp_path / "t"), ROWS.schema, text=["message"])
    table.append(pa.table({"id": list(range(rows)), "message": ["door"] * rows}))
    process = subprocess.Popen(
        [*command, "search", str(tmp_path / "t"), "door", "--limit", str(rows), "--format", "jsonl"],
        env=plain_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["message"] == "door"
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(PATIENCE_SECONDS) == 0
    assert errors.startswith(b"50,000 of 50,000 hits")


def test_an_interrupt_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from indextables.cli.new_file import new_file\n"
        "with new_file(Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half')\n"
        "    print('written', flush=True)\n"
        "    signal.pause()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "rows.csv")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    assert [file.suffix for file in tmp_path.iterdir()] == [".tmp"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_cannot_wait_deletes_its_unfinished_files(tmp_path: Path) -> None:
    with contextlib.suppress(FileNotFoundError), new_file(tmp_path / "rows.csv") as stream:
        stream.write(b"half")
        delete_unfinished_files()
    assert list(tmp_path.iterdir()) == []
