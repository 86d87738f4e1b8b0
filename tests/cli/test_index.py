"""`indextables index`."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.errors import TableNotFoundError
from support import PATIENCE_SECONDS
from support.cli_tables import Invoke


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"day": "mon", "message": "hello world"}\n{"day": "tue", "message": "hello again"}\n')
    return str(path)


def test_index_creates_a_table_and_appends_to_it(invoke: Invoke, lines: str, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    options = ("--partition-by", "day", "--text", "message")
    assert invoke("index", lines, place, *options).exit_code == 0
    assert invoke("index", lines, place, *options).exit_code == 0
    table = IndexTable(place)
    assert (table.version, table.num_rows, table.partition_columns) == (1, 4, ["day"])
    assert table.count("hello AND again") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partition-by", "message"), "partitioned by day"),
        (("--text", "message,day"), "day is not a text column in it"),
    ],
)
def test_options_that_contradict_the_table_are_wrong_usage(
    invoke: Invoke, lines: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    place = str(tmp_path / "table")
    invoke("index", lines, place, "--partition-by", "day", "--text", "message")
    result = invoke("index", lines, place, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert IndexTable(place).version == 0


def test_no_file_is_wrong_usage(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("index", str(tmp_path / "table")).exit_code == 2


def test_the_choice_of_text_columns_is_shown_and_can_be_changed(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,title,note\n1,the first of them,x\n2,another one here,y\n")
    shown = invoke("index", str(file), str(tmp_path / "table"), "--dry-run")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "column  type    search",
        "id      int64   value and range",
        "title   text    full text ← chosen; --text/--exact to change",
        "note    string  exact value",
        f"2 rows from 1 file would be indexed into {tmp_path / 'table'}; nothing was written",
    ]
    assert not (tmp_path / "table").exists()
    changed = invoke("index", str(file), str(tmp_path / "table"), "--text", "note")
    assert "note    text    full text\n" in changed.stdout
    assert "title   string  exact value\n" in changed.stdout
    exact = invoke("index", str(file), str(tmp_path / "other"), "--exact", "title", "--json")
    assert [column["search"] for column in json.loads(exact.stdout)["columns"]] == [
        "value and range",
        "exact value",
        "full text",
    ]
    described = invoke("describe", str(tmp_path / "table"))
    assert re.search(r"note +string +full text\n", described.stdout)
    assert re.search(r"title +string +exact value\n", described.stdout)


def test_a_table_without_full_text_says_so(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,code\n1,a\n2,b\n")
    result = invoke("index", str(file), str(tmp_path / "table"))
    assert result.exit_code == 0
    assert "no column is full text" in result.stderr


def test_bad_lines_and_files_left_out_are_counted(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"a":"x"}\nnonsense\n')
    (folder / "b.dat").write_text("?")
    result = invoke("index", str(folder), str(tmp_path / "table"), "--bad-lines", "skip")
    assert result.exit_code == 0
    assert "1 row from 1 file in version 0" in result.stdout
    assert "1 bad line left out" in result.stdout
    assert f"the first: {folder / 'a.jsonl'}, line 2: it is not JSON" in result.stderr
    assert "b.dat" in result.stderr
    failed = invoke("index", str(folder), str(tmp_path / "other"))
    assert failed.exit_code == 1
    assert "a.jsonl, line 2" in " ".join(failed.stderr.split())


@pytest.mark.parametrize("arguments", [("no.csv",), ("--encoding", "klingon"), ("--type", "a=wibble")])
def test_options_that_make_no_sense_are_wrong_usage(
    invoke: Invoke, lines: str, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    assert invoke("index", lines, *arguments[:1], *arguments[1:], str(tmp_path / "t")).exit_code == 2
    assert not (tmp_path / "t").exists()


def test_standard_input_is_read(
    command: list[str], plain_environment: dict[str, str], tmp_path: Path
) -> None:
    result = subprocess.run(
        [*command, "index", "-", str(tmp_path / "t")],
        env=plain_environment,
        input='{"a":"hello there world"}\n',
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert "1 row from 1 file in version 0" in result.stdout
    assert IndexTable(str(tmp_path / "t")).count("hello") == 1


def test_an_interrupt_leaves_no_table_and_the_path_free(
    command: list[str], plain_environment: dict[str, str], tmp_path: Path
) -> None:
    large, small, place = tmp_path / "large.jsonl", tmp_path / "small.csv", tmp_path / "t"
    line = '{"id":%d,"message":"the disk of host %d is full, and it has been for a while"}\n'
    large.write_text("".join(line % (number, number) for number in range(300_000)))
    small.write_text("other,schema\n1,x\n")
    process = subprocess.Popen(
        [*command, "index", str(large), str(place)],
        env=plain_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    # The columns are printed before the rows are indexed, which takes much longer than a signal.
    assert process.stdout.readline().startswith(b"column")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert errors == b"interrupted: stopped by the user\n"
    assert not list(tmp_path.glob("t/**/*.split"))
    with pytest.raises(TableNotFoundError):
        IndexTable(str(place))
    subprocess.run(
        [*command, "index", str(small), str(place)],
        env=plain_environment,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert IndexTable(str(place)).schema.names == ["other", "schema"]
