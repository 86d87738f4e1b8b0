"""`indextables count`, `facets` and `histogram`."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables.cli.bars import bar
from support.cli_tables import Invoke
from support.terminal import run_in_terminal

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("level", pa.string()),
        ("host", pa.string()),
        ("message", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
    ]
)
START = datetime(2026, 1, 31, tzinfo=UTC)
ROWS = [
    {
        "id": number,
        "level": "ERROR" if number % 4 == 0 else "INFO",
        "host": ["a\x1b[31m", "b", None][number % 3],
        "message": f"disk {number} full",
        "ts": START + timedelta(hours=6 * number),
    }
    for number in range(12)
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = IndexTable.create(str(tmp_path / "events"), SCHEMA, text=["message"])
    table.append(pa.Table.from_pylist(ROWS[:7], SCHEMA))
    # The last day comes after two without rows.
    late = [{**row, "ts": row["ts"] + timedelta(days=2)} for row in ROWS[8:]]
    table.append(pa.Table.from_pylist([ROWS[7], *late], SCHEMA))
    return str(tmp_path / "events")


def test_the_count_is_one_number(invoke: Invoke, path: str) -> None:
    result = invoke("count", path)
    assert (result.exit_code, result.stdout) == (0, "12\n")
    assert result.stderr.startswith("12 rows in ")
    assert invoke("count", path, "level:ERROR", "--where", "id > 0").stdout == "2\n"
    assert json.loads(invoke("count", path, "disk", "--json").stdout) == {"count": 12}
    assert invoke("count", path, "--format", "csv").stdout == '"count"\n12\n'


def test_the_count_by_columns_has_a_row_per_combination(invoke: Invoke, path: str) -> None:
    lines = invoke("count", path, "--by", "level,host").stdout.splitlines()
    assert lines[0].split() == ["level", "host", "count"]
    assert [line.split() for line in lines[1:]] == [
        ["INFO", "a\\x1b[31m", "3"],
        ["INFO", "b", "3"],
        ["ERROR", "a\\x1b[31m", "1"],
        ["ERROR", "b", "1"],
    ]
    rows = json.loads(invoke("count", path, "--by", "level", "--json").stdout)
    assert rows == [{"level": "INFO", "count": 9}, {"level": "ERROR", "count": 3}]


def test_facets_are_the_values_of_exact_columns(invoke: Invoke, path: str) -> None:
    rows = json.loads(invoke("facets", path, "disk", "--json").stdout)
    assert rows == [
        {"column": "level", "value": "INFO", "count": 9},
        {"column": "level", "value": "ERROR", "count": 3},
        {"column": "host", "value": "a\x1b[31m", "count": 4},
        {"column": "host", "value": "b", "count": 4},
    ]
    assert len(json.loads(invoke("facets", path, "--top", "1", "--json").stdout)) == 2
    plain = invoke("facets", path, "--by", "id,level", "--top", "1", "--where", "id = 5")
    assert plain.stdout.splitlines() == ["id  count", "5       1", "", "level  count", "INFO       1"]
    assert plain.stderr.startswith("2 columns in ")
    assert invoke("facets", path, "--by", "level", "--where", "id = 99").stdout == "level: no values\n"


def test_a_histogram_shows_the_intervals_without_rows(invoke: Invoke, path: str) -> None:
    result = invoke("histogram", path, "--interval", "1d")
    assert result.stdout.splitlines() == [
        "ts          count",
        "2026-01-31      4",
        "2026-02-01      4",
        "2026-02-02      0",
        "2026-02-03      0",
        "2026-02-04      4",
    ]
    assert result.stderr.startswith("12 rows in 5 intervals of 1d, in ")
    rows = json.loads(invoke("histogram", path, "level:ERROR", "--interval", "1M", "--json").stdout)
    assert rows == [
        {"ts": "2026-01-01T00:00:00.000000Z", "count": 1},
        {"ts": "2026-02-01T00:00:00.000000Z", "count": 2},
    ]


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (("--by", "ts"), ["2026-01-31 00:00", "1"]),
        (("--by", "id"), ["0", "1"]),
        (("--by", "id", "--interval", "5"), ["0", "5"]),
        (("--interval", "1d", "--time-zone", "Asia/Kolkata"), ["2026-01-31", "4"]),
    ],
)
def test_an_interval_that_fits_is_chosen(
    invoke: Invoke, path: str, arguments: tuple[str, ...], first: list[str]
) -> None:
    lines = invoke("histogram", path, *arguments).stdout.splitlines()
    assert lines[1].rsplit(maxsplit=1) == first
    assert 2 < len(lines) < 35


def test_chosen_intervals_hold_dates_of_all_years(invoke: Invoke, tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.date32()), ("x", pa.float64())])
    table = IndexTable.create(str(tmp_path / "t"), schema)
    table.append(pa.table({"day": [date(1, 1, 1), date(9999, 12, 31)], "x": [0.001, 0.25]}, schema))
    assert len(invoke("histogram", str(tmp_path / "t")).stdout.splitlines()) == 3
    lines = invoke("histogram", str(tmp_path / "t"), "--by", "x").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["0", "1"], ["0.25", "1"]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("histogram", "--by", "level"), "which a date histogram cannot group"),
        (("histogram", "--by", "tss"), "did you mean 'ts'?"),
        (("histogram", "--by", "id", "--interval", "1d"), "holds numbers, and the interval '1d' is none"),
        (("histogram", "--interval", "soon"), "'soon' is no interval"),
        (("facets", "--by", "leve"), "did you mean 'level'?"),
        (("count", "--by", "nothing"), "there is no column 'nothing'"),
        (("count", "mesage:x"), "did you mean message?"),
    ],
)
def test_what_does_not_fit_the_table_exits_with_1(
    invoke: Invoke, path: str, arguments: tuple[str, ...], told: str
) -> None:
    name, *rest = arguments
    result = invoke(name, path, *rest)
    assert (result.exit_code, result.stdout) == (1, "")
    assert told in result.stderr


def test_a_table_without_a_fitting_column_asks_for_one(invoke: Invoke, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("message", pa.string())])
    IndexTable.create(str(tmp_path / "t"), schema, text=["message"])
    assert "name the column with --by" in invoke("histogram", str(tmp_path / "t")).stderr
    assert "name columns with --by" in invoke("facets", str(tmp_path / "t")).stderr


@pytest.mark.parametrize("columns", ["80", "30", "8"])
def test_bars_fit_the_terminal(
    command: list[str], terminal_environment: dict[str, str], path: str, columns: str
) -> None:
    environment = {**terminal_environment, "COLUMNS": columns, "NO_COLOR": "1"}
    code, text = run_in_terminal([*command, "facets", path, "--by", "level,host"], environment)
    assert code == 0
    lines = text.replace("\r", "").splitlines()
    assert all(len(line) <= int(columns) for line in lines if "column" not in line)
    assert "\x1b" not in text
    assert ("█" in text) == (columns != "8")


def test_bars_are_coloured_unless_the_encoding_lacks_them(
    command: list[str], terminal_environment: dict[str, str], path: str
) -> None:
    _, text = run_in_terminal([*command, "histogram", path, "--interval", "1d"], terminal_environment)
    assert "\x1b[36m" in text
    ascii_only = {**terminal_environment, "PYTHONIOENCODING": "ascii"}
    _, text = run_in_terminal([*command, "histogram", path, "--interval", "1d"], ascii_only)
    assert "####" in text
    assert "█" not in text


def test_the_length_of_a_bar_is_the_share_of_the_largest() -> None:
    assert [len(bar(count, 100, 40)) for count in (0, 1, 50, 100)] == [0, 1, 20, 40]
