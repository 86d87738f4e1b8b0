"""`indextables index`."""

from pathlib import Path

import pytest

from indextables import IndexTable
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
