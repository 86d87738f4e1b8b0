"""The formats of rows."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from indextables._results import plain_rows
from indextables.cli.row_formats import (
    WriteRows,
    write_csv,
    write_json_array,
    write_jsonl,
    write_parquet,
    write_text,
)


def written(write: WriteRows, table: pa.Table, chunk_rows: int = 1000) -> bytes:
    stream = io.BytesIO()
    starts = range(0, table.num_rows, chunk_rows)
    write(table.schema, (table.slice(start, chunk_rows) for start in starts), stream)
    return stream.getvalue()


def test_rows_have_jsons_own_types() -> None:
    moment = datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)
    table = pa.table(
        {
            "when": pa.array([moment, None], pa.timestamp("ms", tz="UTC")),
            "values": pa.array([[("a", "1"), ("b", None)], None], pa.map_(pa.string(), pa.string())),
            "n": pa.array([2**63 - 1, None]),
        }
    )
    assert json.loads(written(write_json_array, table)) == [
        {"when": "2026-01-31T12:00:00.123Z", "values": {"a": "1", "b": None}, "n": 2**63 - 1},
        {"when": None, "values": None, "n": None},
    ]


def test_many_rows_are_one_array_with_a_row_a_line() -> None:
    rows = 25_000
    text = written(write_json_array, pa.table({"n": pa.array(range(rows))}))
    assert [row["n"] for row in json.loads(text)] == list(range(rows))
    assert text.count(b"\n") == rows


def test_no_rows_are_an_empty_array() -> None:
    assert written(write_json_array, pa.table({"n": pa.array([], pa.int64())})) == b"[]\n"


def test_timestamp_outside_of_the_calendar_is_written() -> None:
    table = pa.table({"when": pa.array([2**62], pa.timestamp("ms", tz="UTC"))})
    assert list(plain_rows(table)) == [{"when": f"{2**62} ms"}]


def test_values_that_json_has_no_type_for_are_written_as_text() -> None:
    table = pa.table(
        {
            "day": [date(2026, 1, 31)],
            "price": [Decimal("1.50")],
            "raw": [b"\x00\xff"],
            "nested": [{"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}],
        }
    )
    assert json.loads(written(write_json_array, table)) == [
        {
            "day": "2026-01-31",
            "price": "1.50",
            "raw": "AP8=",
            "nested": {"at": "2026-01-31T12:00:00+00:00"},
        }
    ]


@pytest.mark.parametrize(
    ("unit", "zone", "text"),
    [
        ("s", None, "2026-01-31T12:00:05.000"),
        ("ms", "UTC", "2026-01-31T12:00:05.000Z"),
        ("us", "UTC", "2026-01-31T12:00:05.000000Z"),
        ("us", "Europe/Berlin", "2026-01-31T12:00:05.000000Z"),
        ("us", None, "2026-01-31T12:00:05.000000"),
        ("ns", None, "2026-01-31T12:00:05.000000000"),
    ],
)
def test_timestamps_keep_their_digits_and_say_whether_they_are_utc(
    unit: str, zone: str | None, text: str
) -> None:
    moment = pa.array([datetime(2026, 1, 31, 12, 0, 5), None], pa.timestamp(unit)).cast(
        pa.timestamp(unit, zone)
    )
    assert [row["t"] for row in plain_rows(pa.table({"t": moment}))] == [text, None]


@pytest.mark.parametrize(("year", "is_text"), [(999, False), (1000, True), (9999, True)])
def test_years_that_iso_8601_lacks_are_numbers(year: int, is_text: bool) -> None:
    moment = datetime(year, 12, 31, 23, 59, 59, 999_999)
    (row,) = plain_rows(pa.table({"t": pa.array([moment], pa.timestamp("us"))}))
    assert row["t"] == (f"{year}-12-31T23:59:59.999999" if is_text else "-30610224000000001 us")


def test_numbers_that_json_lacks_are_names() -> None:
    values = [1.5, float("nan"), float("inf"), float("-inf")]
    table = pa.table({"x": values, "nested": [{"y": [value]} for value in values]})
    rows = [json.loads(line) for line in written(write_jsonl, table).splitlines()]
    assert [row["x"] for row in rows] == [1.5, "NaN", "Infinity", "-Infinity"]
    assert rows[1]["nested"] == {"y": ["NaN"]}


def test_csv_has_one_header_and_tells_null_from_the_empty_string() -> None:
    table = pa.table(
        {
            "text": ["", None, 'a "b",\nc'],
            "price": pa.array([Decimal("1.50"), None, None], pa.decimal128(9, 2)),
            "tags": [["a"], None, []],
            "at": pa.array([0, None, 1], pa.timestamp("ms", tz="UTC")),
            "raw": [b"\xff", None, b""],
        }
    )
    text = written(write_csv, table, chunk_rows=1).decode()
    assert text == (
        '"text","price","tags","at","raw"\n'
        '"",1.50,"[""a""]","1970-01-01T00:00:00.000Z","/w=="\n'
        ",,,,\n"
        '"a ""b"",\nc",,"[]","1970-01-01T00:00:00.001Z",""\n'
    )


def test_csv_of_no_rows_is_a_header() -> None:
    assert written(write_csv, pa.table({"a": pa.array([], pa.int64())})) == b'"a"\n'


def test_parquet_has_bounded_row_groups_and_the_same_rows() -> None:
    table = pa.table({"n": pa.array(range(250_000)), "tags": [["x"]] * 250_000})
    stream = io.BytesIO(written(write_parquet, table, chunk_rows=10_000))
    assert parquet.ParquetFile(stream).metadata.num_row_groups == 3
    assert parquet.read_table(stream) == table
    nothing = table.slice(0, 0)
    assert parquet.read_table(io.BytesIO(written(write_parquet, nothing))) == nothing


def test_csv_is_read_back_with_the_same_values() -> None:
    table = pa.table({"n": pa.array([2**63 - 1, None]), "x": [0.1, 1e300], "t": ["ä\u2028", "b"]})
    assert csv.read_csv(io.BytesIO(written(write_csv, table))) == table


def test_text_has_the_widths_of_the_first_chunk_and_one_title() -> None:
    table = pa.table({"name": ["a", "long name"], "n": [1, 22], "x": pa.array([0.1, None], pa.float32())})
    assert written(write_text, table, chunk_rows=1).decode() == (
        "name  n    x\n"
        "a     1  0.1\n"
        "long name  22    -\n"
    )  # fmt: skip
