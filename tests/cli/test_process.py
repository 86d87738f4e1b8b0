"""The command line in its own process: streams, exit codes, terminals and signals."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from support import PATIENCE_SECONDS
from support.cli_tables import SCHEMA, RunProcess, add
from support.terminal import run_in_terminal, until_closed

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Well before the timeouts of a store's client.
PROMPT_SECONDS = 40


@pytest.mark.parametrize("name", ["files", "describe"])
def test_stdout_is_json_and_nothing_else(run_process: RunProcess, table_path: str, name: str) -> None:
    contradicting = [
        f"--option=spark.{name}.checkpoint.interval={len(name)}" for name in ("indextables", "tantivy4spark")
    ]
    result = run_process(name, table_path, "--json", *contradicting)
    assert result.returncode == 0
    assert isinstance(json.loads(result.stdout), dict | list)
    assert result.stderr.startswith("warning: spark.indextables.checkpoint.interval and spark.tantivy4spark")
    assert result.stderr.count("\n") == 1


def test_error_is_one_line_without_a_stack_trace(run_process: RunProcess, tmp_path: Path) -> None:
    result = run_process("describe", str(tmp_path / "nowhere"))
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"error: file://.*: there is no table here .*\n", result.stderr)


def test_wrong_usage_exits_with_2(run_process: RunProcess) -> None:
    result = run_process("describe", "somewhere", "--bogus")
    assert (result.returncode, result.stdout) == (2, "")
    assert "--bogus" in result.stderr


def test_package_runs_as_a_module(table_path: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "indextables", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout == f"indextables {indextables.__version__}\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("indextables fi", {"files"}),
        ("indextables checkpoint ./logs --format ", {"avro", "json", "parquet"}),
    ],
)
def test_shell_completes_commands_and_options(typed: str, expected: set[str]) -> None:
    start = "import sys; sys.argv[0] = 'indextables'; from indextables.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", start],
        env={
            **os.environ,
            "_INDEXTABLES_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(typed.count(" ")),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(result.stdout.split()) == expected


def test_output_into_a_pipe_has_no_escapes_and_no_boxes(run_process: RunProcess, table_path: str) -> None:
    result = run_process("history", table_path, FORCE_COLOR="1", TERM="xterm-256color", COLUMNS="40")
    assert result.returncode == 0
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    # Lines are not cut or wrapped to the width of a terminal.
    assert len(result.stdout.splitlines()) == 5


def test_locale_without_unicode_works(run_process: RunProcess, tmp_path: Path) -> None:
    table = IndexTable.create(str(tmp_path / "t"), SCHEMA, partition_by=["date"])
    table.commit(adds=[add("é", "a")])
    plain = run_process("files", str(tmp_path / "t"), PYTHONIOENCODING="ascii")
    assert plain.returncode == 0
    assert "date=\\xe9/a.split" in plain.stdout
    rows = json.loads(run_process("files", str(tmp_path / "t"), "--json", PYTHONIOENCODING="ascii").stdout)
    assert rows[0]["path"] == "date=é/a.split"


def test_terminal_output_is_styled_and_complete(
    command: list[str], terminal_environment: dict[str, str], table_path: str
) -> None:
    code, text = run_in_terminal([*command, "files", table_path], terminal_environment)
    assert code == 0
    assert COLOUR.search(text)
    assert "date=2026-01-30/a.split" in text
    assert re.search(r"\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\)", text)


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"NO_COLOR": "1"}, ["files"]),
        ({"NO_COLOR": "1"}, ["describe", "--version", "99"]),
        ({"NO_COLOR": "1"}, ["files", "--help"]),
        ({"TERM": "dumb"}, ["describe"]),
    ],
)
def test_terminal_output_has_no_escapes_if_turned_off(
    command: list[str],
    terminal_environment: dict[str, str],
    table_path: str,
    settings: dict[str, str],
    arguments: list[str],
) -> None:
    _, text = run_in_terminal([*command, *arguments, table_path], {**terminal_environment, **settings})
    assert text
    assert "\x1b" not in text


def test_help_on_a_terminal_has_panels(command: list[str], terminal_environment: dict[str, str]) -> None:
    code, text = run_in_terminal([*command, "--help"], terminal_environment)
    plain = COLOUR.sub("", text)
    assert code == 0
    assert "─ Inspect a table ─" in plain
    assert "indextables describe s3://bucket/logs --json" in plain


def test_settings_on_a_terminal_are_grouped(command: list[str], terminal_environment: dict[str, str]) -> None:
    code, text = run_in_terminal(
        [*command, "config", "--option", "checkpoint.interval=7"], terminal_environment
    )
    lines = [line.rstrip() for line in COLOUR.sub("", text).splitlines()]
    assert code == 0
    assert lines.count("Checkpoints") == 1
    assert "  spark.indextables.checkpoint.interval  7 (default: 10)" in lines


def test_closed_pipe_ends_the_command_quietly(
    command: list[str], plain_environment: dict[str, str], large_table_path: str
) -> None:
    process = subprocess.Popen(
        [*command, "files", large_table_path, "--json"],
        env=plain_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1) == b"["
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE_SECONDS) == 0


@pytest.fixture
def large_table_path(tmp_path: Path) -> str:
    """A table whose list of files exceeds the buffer of a pipe."""
    path = str(tmp_path / "large")
    table = IndexTable.create(path, SCHEMA, partition_by=["date"])
    table.commit(adds=[add("2026-01-31", f"{number:06d}") for number in range(1500)])
    return path


def test_interrupt_during_output_exits_with_130_and_one_line(
    command: list[str], plain_environment: dict[str, str], large_table_path: str
) -> None:
    process = subprocess.Popen(
        [*command, "files", large_table_path, "--json"],
        env=plain_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    # After the first byte the command is writing output that exceeds the buffer of the pipe.
    assert process.stdout.read(1) == b"["
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert errors == b"interrupted: stopped by the user\n"


def test_interrupt_while_a_store_does_not_respond_exits_with_130_and_one_line(
    command: list[str], terminal_environment: dict[str, str]
) -> None:
    master, slave = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        storage = {
            "aws_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "aws_region": "us-east-1",
            "aws_access_key_id": "somebody",
            "aws_secret_access_key": "canary-5f0c3b",
        }
        pairs = [text for name, value in storage.items() for text in ("--storage-option", f"{name}={value}")]
        process = subprocess.Popen(
            [*command, "describe", "s3://bucket/logs", *pairs],
            env=terminal_environment,
            stdin=slave,
            stdout=subprocess.PIPE,
            stderr=slave,
        )
        os.close(slave)
        silent.settimeout(PATIENCE_SECONDS)
        try:
            connection, _ = silent.accept()
            with connection:
                written = b""
                # The spinner: the command is inside the call that waits for the store.
                while b"opening s3://bucket/logs" not in written:
                    written += os.read(master, 65536)
                process.send_signal(signal.SIGINT)
                process.wait(PROMPT_SECONDS)
        finally:
            process.kill()
            output, _ = process.communicate()
    written += b"".join(until_closed(master))
    os.close(master)
    assert process.returncode == 130
    assert output == b""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
    assert text.rstrip().endswith("interrupted: stopped by the user")
    assert "canary" not in text


def test_without_pyspark_the_help_works_and_the_demo_names_the_extra(tmp_path: Path) -> None:
    start = (
        "import sys; sys.modules['pyspark'] = None; sys.argv = ['indextables', *sys.argv[1:]]; "
        "from indextables.cli import main; main()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", start, "--help"], capture_output=True, text=True, check=False
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    refused = subprocess.run(
        [sys.executable, "-c", start, "demo", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: Spark support needs the package pyspark")


def test_help_waits_for_no_large_library() -> None:
    code = (
        "import sys, indextables.cli.app\n"
        "large = {'numpy', 'pyarrow', 'pandas', 'lark', 'obstore', 'tantivy', 'datafusion'}\n"
        "print(sorted(large & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_search_of_several_splits_does_not_wait_for_masked_arrays(tmp_path: Path) -> None:
    """pyarrow imports it to convert a numpy array, which takes longer than the search."""
    table = IndexTable.create(tmp_path / "table", pa.schema([("message", pa.string())]), text=["message"])
    for number in range(2):
        table.append(pa.table({"message": [f"disk {number} is full"]}))
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "indextables",
        "search",
        str(tmp_path / "table"),
        "disk",
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in shown.stderr.splitlines()}
    assert "indextables.ops.search" in imported
    assert "numpy.ma" not in imported
