"""JSON output."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables._results import plain_rows
from indextables.cli.json_output import print_json, print_json_rows


def test_rows_have_jsons_own_types(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    table = pa.table(
        {
            "when": pa.array([moment, None], pa.timestamp("ms", tz="UTC")),
            "values": pa.array([[("a", "1"), ("b", None)], None], pa.map_(pa.string(), pa.string())),
            "n": pa.array([2**63 - 1, None]),
        }
    )
    print_json_rows(table)
    assert json.loads(capsysbinary.readouterr().out) == [
        {"when": "2026-01-31T12:00:00.123Z", "values": {"a": "1", "b": None}, "n": 2**63 - 1},
        {"when": None, "values": None, "n": None},
    ]


def test_many_rows_are_one_array_with_a_row_a_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = 25_000
    print_json_rows(pa.table({"n": pa.array(range(rows))}))
    text = capsysbinary.readouterr().out
    assert [row["n"] for row in json.loads(text)] == list(range(rows))
    assert text.count(b"\n") == rows


def test_no_rows_are_an_empty_array(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json_rows(pa.table({"n": pa.array([], pa.int64())}))
    assert capsysbinary.readouterr().out == b"[]\n"


def test_timestamp_outside_of_the_calendar_is_written() -> None:
    table = pa.table({"when": pa.array([2**62], pa.timestamp("ms", tz="UTC"))})
    assert list(plain_rows(table)) == [{"when": f"{2**62} ms"}]


def test_text_is_utf_8_and_undecodable_names_are_escaped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_json({"path": "é/\udcff", "ratio": 0.5})
    text = capsysbinary.readouterr().out
    assert "é".encode() in text
    assert json.loads(text) == {"path": "é/\udcff", "ratio": 0.5}
    assert math.isclose(json.loads(text)["ratio"], 0.5)


def test_values_that_json_has_no_type_for_are_written_as_text(capsysbinary):
    table = pa.table(
        {
            "day": [date(2026, 1, 31)],
            "price": [Decimal("1.50")],
            "raw": [b"\x00\xff"],
            "nested": [{"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}],
        }
    )
    print_json_rows(table)
    assert json.loads(capsysbinary.readouterr().out) == [
        {
            "day": "2026-01-31",
            "price": "1.50",
            "raw": "AP8=",
            "nested": {"at": "2026-01-31T12:00:00+00:00"},
        }
    ]
