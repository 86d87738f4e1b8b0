"""What all commands have in common: help, exit codes, errors and warnings."""

import logging
from pathlib import Path

import pytest
from typer.main import get_command

import indextables
from indextables.cli.app import build_app
from indextables.cli.command import CommandLine
from indextables.ops.write import run
from indextables.table import Operation
from indextables.table.intent import ChangeProperties
from support.cli_tables import Invoke

GROUP = get_command(build_app())
assert isinstance(GROUP, CommandLine)
COMMANDS = sorted(GROUP.commands)


def test_the_main_commands_exist() -> None:
    assert {"files", "history", "describe", "checkpoint", "config", "demo"} <= set(COMMANDS)


def test_help_groups_the_commands_and_gives_examples(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert result.stderr == ""
    for title in ("Inspect a table:", "Maintain a table:", "Explore IndexTables:", "Examples:"):
        assert f"\n{title}\n" in result.stdout
    assert all(f"\n  {name}" in result.stdout for name in COMMANDS)
    assert "..." not in result.stdout.partition("Inspect a table:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_examples_and_json(invoke: Invoke, name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert f"Usage: indextables {name}" in result.stdout
    assert f"Examples:\n  indextables {name}" in result.stdout
    assert "--json" in result.stdout


def test_help_has_no_boxes_and_no_escapes_without_a_terminal(invoke: Invoke) -> None:
    text = invoke("files", "--help", FORCE_COLOR="1").stdout
    assert text.isascii()
    assert "\x1b" not in text


def test_version_prints_the_release(invoke: Invoke) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"indextables {indextables.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ((), "Usage: indextables"),
        (("fiels",), "Did you mean 'files'?"),
        (("--colour",), "--colour"),
        (("files",), "Missing argument 'PATH'"),
        (("files", "somewhere", "--wehre", "x"), "--where"),
        (("files", "somewhere", "--limit", "few"), "--limit"),
        (("files", "somewhere", "--limit", "-1"), "--limit"),
        (("describe", "somewhere", "--version", "-1"), "--version"),
        (("describe", "somewhere", "--timestamp", "yesterday"), "2026-01-31T12:00:00Z"),
        (("describe", "somewhere", "--version", "1", "--timestamp", "2026-01-31"), "not both"),
        (("checkpoint", "somewhere", "--format", "xml"), "avro, json, parquet"),
        (("describe", "somewhere", "elsewhere"), "elsewhere"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_hint(invoke: Invoke, arguments: tuple[str, ...], hint: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["files", "history", "describe", "checkpoint"])
def test_path_without_a_table_exits_with_1_and_one_line(
    invoke: Invoke, tmp_path: object, command: str
) -> None:
    result = invoke(command, f"{tmp_path}/nowhere", "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: file://{tmp_path}/nowhere: there is no table here")
    assert result.stderr.count("\n") == 1


def test_unsupported_url_exits_with_1(invoke: Invoke) -> None:
    result = invoke("describe", "ftp://host/table")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ftp: URLs are not supported")


def test_missing_version_exits_with_1(invoke: Invoke, table_path: str) -> None:
    result = invoke("describe", table_path, "--version", "99")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "99" in result.stderr


def test_unknown_setting_is_wrong_usage_that_suggests_the_right_one(invoke: Invoke, table_path: str) -> None:
    result = invoke("files", table_path, "--json", "--option", "spark.indextables.checkpoint.intervall=5")
    assert result.exit_code == 2
    assert "did you mean spark.indextables.checkpoint.interval?" in result.stderr


def test_wrong_table_property_is_one_warning(invoke: Invoke, table_path: str) -> None:
    key = "spark.indextables.checkpoint.interval"
    table = indextables.IndexTable(table_path)
    with pytest.warns(UserWarning, match="never"):
        # Another writer may set a value that this package rejects.
        run(table._snapshot, ChangeProperties({key: "never"}), Operation("SET PROPERTIES"))
    result = invoke("describe", table_path)
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if "never" in line] == result.stderr.splitlines()
    assert result.stderr.startswith(f"warning: table property {key} is 'never'")
    assert result.stderr.count("\n") == 1


def test_logged_warning_of_the_package_is_a_line_on_stderr(
    invoke: Invoke, table_path: str, tmp_path: object
) -> None:
    Path(table_path, "_transaction_log", "_last_checkpoint").write_text("this is no JSON")
    result = invoke("files", table_path, "--json")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        f"warning: file://{table_path}/_transaction_log/_last_checkpoint is not readable"
    )
    assert result.stderr.count("\n") == 1


def test_no_handler_stays_behind_after_a_command(invoke: Invoke, table_path: str) -> None:
    before = list(logging.getLogger("indextables").handlers)
    invoke("files", table_path)
    invoke("files", f"{table_path}/nowhere")
    assert logging.getLogger("indextables").handlers == before
