"""A small table, and fixtures that run the command line in the test process or in its own process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from indextables import IndexTable
from indextables.cli.app import build_app
from support import PATIENCE_SECONDS
from support.cli_tables import SCHEMA, Invoke, RunProcess, add


@pytest.fixture
def table_path(tmp_path: Path) -> str:
    """Versions: 0 creates the table, 1 adds a file, 2 adds two, 3 removes one of them."""
    path = str(tmp_path / "logs")
    table = IndexTable.create(path, SCHEMA, partition_by=["date"], text=["message"])
    table.commit(adds=[add("2026-01-30", "a")])
    table.commit(adds=[add("2026-01-31", "b"), add("2026-01-31", "c", size=512)])
    table.commit(removes=["date=2026-01-31/c.split"])
    return path


@pytest.fixture
def invoke() -> Invoke:
    """Run a command in the test process; any exception other than an exit fails the test."""

    def run(*arguments: str, **environment: str) -> Result:
        return CliRunner().invoke(
            build_app(), list(arguments), prog_name="indextables", catch_exceptions=False, env=environment
        )

    return run


@pytest.fixture
def command() -> list[str]:
    """The start of a command line for a new process, in which Ctrl-C works no matter how the tests were started."""
    start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    return [sys.executable, "-c", f"{start}from indextables.cli import main; main()"]


@pytest.fixture
def plain_environment() -> dict[str, str]:
    """The environment without variables that affect colors and widths."""
    deciding = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "TERMINAL_WIDTH", "PY_COLORS", "GITHUB_ACTIONS")
    return {name: value for name, value in os.environ.items() if name not in deciding}


@pytest.fixture
def run_process(command: list[str], plain_environment: dict[str, str]) -> RunProcess:
    """Run a command in its own process, with pipes for stdout and stderr."""

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, *arguments],
            env={**plain_environment, **environment},
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def terminal_environment(plain_environment: dict[str, str]) -> dict[str, str]:
    """The environment of a terminal with colors."""
    return {**plain_environment, "TERM": "xterm-256color", "COLUMNS": "80"}
