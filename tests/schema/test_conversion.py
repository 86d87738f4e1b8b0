"""Conversion to the types of a table is exact, or an error."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from indextables.schema.conversion import LossyConversionError, convert, converts

MOMENT = dt.datetime(2026, 1, 31, 10)


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        (pa.array([3, None]), pa.float64(), [3.0, None]),
        (pa.array([3.0]), pa.int32(), [3]),
        (pa.array([3]), pa.decimal128(5, 2), [decimal.Decimal("3.00")]),
        (pa.array([MOMENT], pa.timestamp("ns")), pa.timestamp("us"), [MOMENT]),
        (pa.array([MOMENT.date()]), pa.timestamp("us"), [dt.datetime(2026, 1, 31)]),
        (pa.array([dt.datetime(2026, 1, 31)]), pa.date32(), [dt.date(2026, 1, 31)]),
        (pa.array([MOMENT.date()]), pa.string(), ["2026-01-31"]),
        (pa.array([1.5]), pa.string(), ["1.5"]),
        (pa.array([True]), pa.string(), ["true"]),
        (pa.nulls(2), pa.list_(pa.int64()), [None, None]),
        (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
        (pa.array([0.5, float("inf")]), pa.float32(), [0.5, float("inf")]),
        (
            pa.array([{"B": 1}, None, {"B": None}]),
            pa.struct([("a", pa.string()), ("b", pa.float64())]),
            [{"a": None, "b": 1.0}, None, {"a": None, "b": None}],
        ),
        (pa.array([[1], None, [], [2, None]]), pa.list_(pa.float64()), [[1.0], None, [], [2.0, None]]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), pa.list_(pa.int64()), [[1, 2], [3, 4]]),
    ],
)
def test_values_that_have_equals_are_converted(given, wanted, expected):
    assert converts(given.type, wanted)
    doubled = pa.chunked_array([given.slice(0, 1), given.slice(1), given])
    assert convert(doubled, wanted).to_pylist() == [*expected, *expected]
    assert convert(doubled, wanted).type == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([float("nan")]), pa.int64()),
        (pa.array([300]), pa.int8()),
        (pa.array([0.1]), pa.float32()),
        (pa.array([1e300]), pa.float32()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([MOMENT]), pa.date32()),
        (pa.array([1000]), pa.decimal128(3, 0)),
        (pa.array([decimal.Decimal("1.25")]), pa.decimal128(3, 1)),
        (pa.array([[0.1]]), pa.list_(pa.float32())),
        (pa.array([{"x": 1.5}]), pa.struct([("x", pa.int64())])),
    ],
)
def test_values_that_would_lose_something_are_refused(given, wanted):
    assert converts(given.type, wanted)
    with pytest.raises(LossyConversionError):
        convert(pa.chunked_array([given]), wanted)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int64()),
        (pa.binary(), pa.string()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.struct([("x", pa.int64())]), pa.struct([("y", pa.int64())])),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
        (pa.list_(pa.string()), pa.string()),
        (pa.float64(), pa.decimal128(5, 2)),
        (pa.duration("s"), pa.int64()),
    ],
)
def test_types_without_a_common_meaning_do_not_convert(given, wanted):
    assert not converts(given, wanted)
