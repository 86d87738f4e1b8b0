"""Every kind of field answers the typed conditions that apply to it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from indextables.errors import InvalidQueryError
from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import matching_rows
from indextables.search.parser import parse_query
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from support.search_indexes import build_index, found_rows, json_field, string_field, text_field

MAX_I64 = 2**63 - 1


def one_column(kind, values, data_type, **options):
    """Return a mapping of one column `x`, and an index of its values."""
    mapping = DocMapping((FieldMapping("x", kind, **options),))
    return mapping, build_index(mapping, pa.table({"x": pa.array(values, data_type)}))


def check(kind, values, data_type, expected, **options):
    mapping, index = one_column(kind, values, data_type, **options)
    assert {text: found_rows(index, mapping, text) for text in expected} == expected


@pytest.mark.parametrize("fast", [True, False])
def test_integers(fast):
    values = [0, -5, 404, MAX_I64, -(2**63), None]
    expected = {
        "x:404": [2],
        "x:-5": [1],
        "x:404.0": [2],
        "x:404.5": [],
        "x:>404.5": [3],
        "x:[-5 TO 404]": [0, 1, 2],
        "x:{-5 TO 404}": [0],
        "x:[* TO 0}": [1, 4],
        "x:>=9223372036854775807": [3],
        "x:>9223372036854775807": [],
        "x:<99999999999999999999": [0, 1, 2, 3, 4],
        "x:99999999999999999999": [],
        "x:IN [0 404 7]": [0, 2],
        "x:*": [0, 1, 2, 3, 4],
        "NOT x:*": [5],
        "NOT x:404": [0, 1, 3, 4, 5],
    }
    check(FieldKind.I64, values, pa.int64(), expected, fast=fast)


@pytest.mark.parametrize("fast", [True, False])
def test_floats_with_nan_infinity_and_signed_zero(fast):
    values = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), -float("nan"), None]
    expected = {
        "x:0": [0, 1],
        "x:-0.0": [0, 1],
        "x:>0": [2, 3, 4, 6],
        "x:>=0": [0, 1, 2, 3, 4, 6],
        "x:<0": [5],
        "x:<=0": [0, 1, 5],
        "x:1.5": [2],
        "x:NaN": [3, 6],
        "x:>Infinity": [3, 6],
        "x:>=Infinity": [3, 4, 6],
        "x:<NaN": [0, 1, 2, 4, 5],
        "x:[-Infinity TO 1.5}": [0, 1, 5],
        "x:IN [0 NaN]": [0, 1, 3, 6],
        "x:*": [0, 1, 2, 3, 4, 5, 6],
    }
    check(FieldKind.F64, values, pa.float64(), expected, fast=fast)


def test_booleans():
    expected = {
        "x:true": [0],
        "x:false": [1],
        "x:no": [1],
        "x:>false": [0],
        "x:<=true": [0, 1],
        "x:*": [0, 1],
        "x:IN [true false]": [0, 1],
    }
    check(FieldKind.BOOL, [True, False, None], pa.bool_(), expected)
    check(FieldKind.BOOL, [True, False, None], pa.bool_(), expected, fast=False)


def test_dates():
    values = [date(2024, 1, 31), date(2024, 2, 1), date(1, 1, 1), date(9999, 12, 31), None]
    expected = {
        "x:2024-01-31": [0],
        "x:[2024-01-01 TO 2024-01-31]": [0],
        "x:>2024-01-31": [1, 3],
        "x:<1970-01-01": [2],
        "x:9999-12-31": [3],
        "x:IN [2024-02-01 0001-01-01]": [1, 2],
    }
    check(FieldKind.DATE, values, pa.date32(), expected)


def test_a_day_compared_with_timestamps_is_the_whole_day():
    values = [
        datetime(2024, 1, 30, 23, 59, 59, 999_999, UTC),
        datetime(2024, 1, 31, tzinfo=UTC),
        datetime(2024, 1, 31, 23, 59, 59, 999_999, UTC),
        datetime(2024, 2, 1, tzinfo=UTC),
        None,
    ]
    expected = {
        "x:2024-01-31": [1, 2],
        "x:<2024-01-31": [0],
        "x:<=2024-01-31": [0, 1, 2],
        "x:>2024-01-31": [3],
        "x:>=2024-01-31": [1, 2, 3],
        "x:[2024-01-31 TO 2024-01-31]": [1, 2],
        "x:IN [2024-01-30 2024-02-01]": [0, 3],
        "x:[2024-01-31 TO *}": [1, 2, 3],
    }
    check(FieldKind.TIMESTAMP, values, pa.timestamp("us", "UTC"), expected)
    local = [None if value is None else value.replace(tzinfo=None) for value in values]
    check(FieldKind.TIMESTAMP_NTZ, local, pa.timestamp("us"), expected)


def test_timestamps_to_the_microsecond():
    values = [datetime(2024, 1, 31, 12, 0, 0, 1, UTC), datetime(2024, 1, 31, 12, tzinfo=UTC)]
    expected = {
        "x:2024-01-31T12:00:00Z": [1],
        "x:2024-01-31T12:00:00.000001Z": [0],
        "x:2024-01-31T13:00:00+01:00": [1],
        'x:>"2024-01-31 12:00:00"': [0],
        'x:"2024-01-31 12:00:00"': [1],
    }
    check(FieldKind.TIMESTAMP, values, pa.timestamp("us", "UTC"), expected)


def test_timestamps_without_a_zone_are_read_in_the_scopes_zone():
    values = [datetime(2024, 1, 30, 23, tzinfo=UTC), datetime(2024, 1, 31, 12, tzinfo=UTC)]
    mapping, index = one_column(FieldKind.TIMESTAMP, values, pa.timestamp("us", "UTC"))
    berlin = ZoneInfo("Europe/Berlin")
    assert found_rows(index, mapping, "x:2024-01-31") == [1]
    assert found_rows(index, mapping, "x:2024-01-31", time_zone=berlin) == [0, 1]


@pytest.mark.parametrize(("kind", "digits"), [(FieldKind.DECIMAL, 18), (FieldKind.BIG_DECIMAL, 38)])
def test_decimals(kind, digits):
    largest = Decimal("9" * (digits - 2) + ".99")
    values = [Decimal("1.50"), Decimal("-2.25"), Decimal(0), largest, largest.copy_negate(), None]
    expected = {
        "x:1.5": [0],
        "x:1.505": [],
        "x:>1.495": [0, 3],
        "x:<0": [1, 4],
        "x:<=0": [1, 2, 4],
        "x:>=-2.25": [0, 1, 2, 3],
        "x:{-2.25 TO 1.5}": [2],
        f"x:{largest}": [3],
        f"x:>={largest}": [3],
        f"x:<=-{largest}": [4],
        "x:1e99": [],
        "x:<1e99": [0, 1, 2, 3, 4],
        "x:*": [0, 1, 2, 3, 4],
        "x:IN [0 1.50]": [0, 2],
    }
    check(kind, values, pa.decimal128(digits, 2), expected, scale=2)


@pytest.mark.parametrize("fast", [True, False])
def test_addresses_and_networks(fast):
    values = ["10.0.0.1", "10.1.2.3", "192.168.0.1", "::1", "2001:db8::1", None]
    expected = {
        "x:10.0.0.1": [0],
        "x:10.0.0.0/8": [0, 1],
        "x:10.0.0.0/16": [0],
        "x:2001:db8::1": [4],
        "x:2001:db8::/32": [4],
        "x:::1": [3],
        'x:"::1"': [3],
        "x:[10.0.0.2 TO 192.168.0.1]": [1, 2],
        "x:[10.0.0.1 TO 10.1.2.3}": [0],
        "x:>=192.168.0.0": [2, 4],
        "x:IN [::1 10.0.0.0/8]": [0, 1, 3],
        "x:*": [0, 1, 2, 3, 4],
    }
    check(FieldKind.IP, values, pa.string(), expected, fast=fast)


@pytest.mark.parametrize("fast", [True, False])
def test_whole_strings(fast):
    values = ["ERROR", "error", "a b", "", "x.y*z", "line\nbreak", "é", None]
    expected = {
        "x:ERROR": [0],
        'x:"a b"': [2],
        'x:""': [3],
        r"x:x.y\*z": [4],
        "x:ERR*": [0],
        "x:*R*": [0],
        "x:line*": [5],
        "x:*break": [5],
        "x:x.*z": [4],
        "x:[a TO f}": [1, 2],
        "x:>=f": [4, 5, 6],
        'x:<""': [],
        'x:<=""': [3],
        "x:errors~1": [1],
        'x:IN [ERROR "a b"]': [0, 2],
        "x:*": [0, 1, 2, 3, 4, 5, 6],
        "ERROR": [0],
    }
    check(FieldKind.STRING, values, pa.string(), expected, max_token_bytes=65_530, fast=fast)


def test_partition_columns_hold_for_the_whole_split():
    mapping = DocMapping((text_field("body"),))
    index = build_index(mapping, pa.table({"body": ["a", "b"]}))
    partition = pa.table(
        {"day": [date(2024, 1, 31)], "region": ["eu-west"], "n": pa.array([None], pa.int32())}
    )
    expected = {
        "day:2024-01-31": [0, 1],
        "day:>2024-01-31": [],
        "b AND day:[2024-01-01 TO *}": [1],
        "region:eu-west": [0, 1],
        "REGION:eu*": [0, 1],
        "region:*we*": [0, 1],
        "region:us": [],
        "region:IN [us eu-west]": [0, 1],
        "n:1": [],
        "n:*": [],
        "NOT n:1": [0, 1],
    }
    assert {text: found_rows(index, mapping, text, partition=partition) for text in expected} == expected
    with pytest.raises(InvalidQueryError, match="write a date"):
        found_rows(index, mapping, "day:x", partition=partition)


def test_columns_added_after_the_split_match_nothing():
    mapping = DocMapping((FieldMapping("n", FieldKind.I64),))
    index = build_index(mapping, pa.table({"n": [1, 2]}))
    schema = pa.schema([("n", pa.int64()), ("later", pa.string()), ("extra", pa.struct([("a", pa.int64())]))])
    for text, expected in {
        "later:x": [],
        "later:*": [],
        "extra.a:1": [],
        "NOT later:x": [0, 1],
        "n:1 OR later:x": [0],
        "anything": [],
    }.items():
        assert found_rows(index, mapping, text, schema=schema) == expected


def test_default_fields_may_be_of_any_kind():
    mapping = DocMapping((text_field("body"), FieldMapping("n", FieldKind.I64), json_field("j")))
    index = build_index(
        mapping, pa.table({"body": ["404", "x"], "n": [1, 404], "j": ['{"a":404}', '{"a":"x"}']})
    )
    for fields, text, expected in [
        (("body", "n"), "404", [0, 1]),
        (("body", "n"), "x", [1]),
        (("n",), "404", [1]),
        (("j.a",), "404", [0]),
        (("body", "j.a"), "x", [1]),
    ]:
        assert found_rows(index, mapping, text, default_fields=fields) == expected
    with pytest.raises(InvalidQueryError, match="write a whole number"):
        found_rows(index, mapping, "x", default_fields=("n",))


def test_column_names_ignore_case_and_may_have_any_characters():
    names = ["Plain", "with space", "a.b", "-dash", "colon:x", "é日本", 'q"uote', "tab\tx", "back\\slash"]
    mapping = DocMapping(tuple(string_field(name) for name in names))
    index = build_index(mapping, pa.table({name: ["v", None] for name in names}))
    written = [
        r"plain",
        r"with\ space",
        "a.b",
        r"\-dash",
        r"colon\:x",
        "É日本",
        r"q\"uote",
        "tab\\\tx",
        r"back\\slash",
    ]
    for name in written:
        assert found_rows(index, mapping, f"{name}:v") == [0], name
        assert found_rows(index, mapping, f"{name}:*") == [0], name
        assert found_rows(index, mapping, f"{name}:v*") == [0], name


def test_boosts_change_scores_and_filters_do_not():
    mapping = DocMapping((text_field("title"), text_field("body")))
    index = build_index(mapping, pa.table({"title": ["spark", "flink"], "body": ["flink", "spark"]}))

    def best(text):
        query = compile_query(parse_query(text), SearchScope(mapping))
        return [address.doc for _, address in index.search(query.query, 10).hits]

    assert best("title:spark^5 body:spark") == [0, 1]
    assert best("title:spark body:spark^5") == [1, 0]


def test_rows_come_back_in_order_and_once():
    mapping = DocMapping((text_field("body"),))
    index = build_index(mapping, pa.table({"body": ["a a a", "b", "a b a"]}))
    query = compile_query(parse_query("a b a"), SearchScope(mapping))
    assert matching_rows(index, query).tolist() == [0, 1, 2]
