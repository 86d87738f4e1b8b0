"""Files that a predicate can do without, case by case."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from indextables.errors import InvalidPredicateError
from indextables.predicates import AlwaysFalse, AlwaysTrue, bind, col, parse_predicate, to_arrow_filter
from indextables.pruning import match_partitions, prune_files
from indextables.schema import TableShape

STRING_MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("month", pa.int32()),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("hour", pa.timestamp("us", "UTC")),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("score", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("seen", pa.timestamp("us", "UTC")),
        ("born", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
PARTITION_COLUMNS = ["month", "region", "day", "hour"]
SHAPE = TableShape(SCHEMA, tuple(PARTITION_COLUMNS))


def entries(*files):
    """Files as (partition values, minima, maxima), or as their partition values alone."""
    rows = [(file, None, None) if isinstance(file, dict) else (*file, None, None)[:3] for file in files]
    names = ("partitionValues", "minValues", "maxValues")
    columns = zip(*rows, strict=True) if rows else [(), (), ()]
    return pa.table(
        {
            name: pa.array([None if m is None else list(m.items()) for m in maps], STRING_MAP)
            for name, maps in zip(names, columns, strict=True)
        }
    )


def kept(files, where, partition_columns=PARTITION_COLUMNS):
    predicate = parse_predicate(where) if isinstance(where, str) else where
    keep = prune_files(files, bind(predicate, SCHEMA), TableShape(SCHEMA, tuple(partition_columns))).keep
    return [n for n, is_kept in enumerate(keep.to_pylist()) if is_kept]


MONTHS = entries(*({"month": str(n)} for n in range(1, 13)))
RANGES = entries(
    ({}, {"id": "1", "name": "a"}, {"id": "9", "name": "m"}),
    ({}, {"id": "10", "name": "n"}, {"id": "100", "name": "z"}),
    ({}, {"id": "5", "name": "a"}, {"id": "5", "name": "a"}),
    ({},),
)


@pytest.mark.parametrize(
    ("where", "months"),
    [
        ("month BETWEEN 2 AND 11", range(2, 12)),
        ("month > 9", (10, 11, 12)),
        ("month = '10'", (10,)),
        ("month < 2 OR month IN (11, 12)", (1, 11, 12)),
        ("NOT (month >= 2)", (1,)),
        ("month NOT IN (1, NULL)", ()),
        ("month > 11.5", (12,)),
        ("month IS NULL", ()),
        ("month IS NOT NULL", range(1, 13)),
    ],
)
def test_integer_partitions_compare_as_numbers(where, months):
    assert [n + 1 for n in kept(MONTHS, where)] == list(months)


def test_string_partitions_compare_as_text():
    files = entries({"region": "100"}, {"region": "25"}, {"region": "9"})
    assert kept(files, "region < '25'") == [0]
    assert kept(files, "region > '25'") == [2]
    assert kept(files, "region BETWEEN '100' AND '25'") == [0, 1]


def test_or_of_a_partition_predicate_and_another_does_not_prune_by_partition():
    files = entries(
        ({"month": "1"}, {"id": "1"}, {"id": "9"}),
        ({"month": "2"}, {"id": "5"}, {"id": "7"}),
        ({"month": "3"},),
    )
    assert kept(files, "month = 1 OR id = 6") == [0, 1, 2]
    assert kept(files, "month = 1 OR id = 60") == [0, 2]
    assert kept(files, "month = 1 AND id = 6") == [0]
    result = prune_files(files, bind(parse_predicate("month = 1 OR id = 60"), SCHEMA), SHAPE)
    assert (result.candidates, result.skipped_by_partition, result.skipped_by_statistics) == (3, 0, 1)


def test_skipped_files_are_counted_by_the_reason():
    files = entries(
        ({"month": "1"}, {"id": "1"}, {"id": "9"}),
        ({"month": "2"}, {"id": "5"}, {"id": "7"}),
        ({"month": "1"},),
    )
    result = prune_files(files, bind(parse_predicate("month = 1 AND id > 9"), SCHEMA), SHAPE)
    assert result.keep.to_pylist() == [False, False, True]
    assert (result.candidates, result.skipped_by_partition, result.skipped_by_statistics) == (3, 1, 1)


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("id = 5", [0, 2, 3]),
        ("id = 9", [0, 3]),
        ("id = 10", [1, 3]),
        ("id > 9", [1, 3]),
        ("id >= 9", [0, 1, 3]),
        ("id < 5", [0, 3]),
        ("id <= 1", [0, 3]),
        ("id <> 5", [0, 1, 3]),
        ("id IN (5, 200)", [0, 2, 3]),
        ("id IN (200, 300, -4)", [3]),
        ("id NOT IN (5)", [0, 1, 3]),
        ("id IN (4, 6)", [0, 3]),
        ("id = 1.5", []),
        ("id < 1e30", [0, 1, 2, 3]),
        ("id IS NULL", [0, 1, 2, 3]),
        ("id IS NOT NULL", [0, 1, 2, 3]),
        ("name LIKE 'n%'", [1, 3]),
        ("name LIKE 'm%'", [0, 3]),
        ("name LIKE 'a'", [0, 2, 3]),
        ("name LIKE 'b%c'", [0, 3]),
        ("name LIKE '%x'", [0, 1, 3]),
        ("name NOT LIKE 'a%'", [0, 1, 3]),
        ("id = 5 AND name = 'zz'", [3]),
        ("id > 9 OR name > 'y'", [1, 3]),
        ("TRUE", [0, 1, 2, 3]),
        ("FALSE", []),
    ],
)
def test_statistics_skip_what_lies_outside(where, files):
    assert kept(RANGES, where) == files


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("NOT (id BETWEEN 2 AND 8)", [0, 1, 3]),
        ("NOT (id > 4)", [0, 3]),
        ("NOT (id = 5)", [0, 1, 3]),
        ("NOT (id = 5 AND name = 'b')", [0, 1, 2, 3]),
        ("NOT (id > 1 OR name > 'a')", [0, 3]),
        ("NOT (id IS NULL)", [0, 1, 2, 3]),
        ("NOT (NOT (id = 200))", [3]),
    ],
)
def test_not_over_a_range_never_skips_wrongly(where, files):
    assert kept(RANGES, where) == files


def test_a_null_partition_value_is_an_absent_key():
    files = entries({}, {"region": None}, {"region": "x"})
    assert kept(files, "region IS NULL") == [0, 1]
    assert kept(files, "region IS NOT NULL") == [2]
    assert kept(files, "region = 'x'") == [2]
    assert kept(files, "region <> 'y'") == [2]
    assert kept(files, "NOT (region = 'y')") == [2]
    assert kept(files, "NOT (region <=> 'y')") == [0, 1, 2]


def test_null_and_empty_and_the_word_null_are_three_partition_values():
    files = entries({}, {"region": ""}, {"region": "null"})
    assert kept(files, "region IS NULL") == [0]
    assert kept(files, "region = ''") == [1]
    assert kept(files, "region = 'null'") == [2]


@pytest.mark.parametrize(
    "value", ["A/A", "B B", "%", "é", "..", "x" * 10_000, "😀", "a=b", "'", "\x00", "%2F"]
)
def test_partition_values_are_taken_from_the_log_as_they_are(value):
    files = entries({"region": value}, {"region": value + "x"})
    assert kept(files, col("region") == value) == [0]


@pytest.mark.parametrize("name", ["A/A", "B B", "%", "é", "a.b", "a`b", 'a"b', "PartitionValues"])
def test_column_names_with_odd_characters(name):
    schema = pa.schema([(name, pa.int64()), ("x" + name, pa.int64())])
    files = entries(
        ({name: "9"}, {"x" + name: "9"}, {"x" + name: "10"}),
        ({name: "10"}, {"x" + name: "11"}, {"x" + name: "12"}),
    )
    quoted = name.replace("`", "``")
    for where, expected in [(f"`{quoted}` = 10", [False, True]), (f"`x{quoted}` = 10", [True, False])]:
        kept = prune_files(files, bind(parse_predicate(where), schema), TableShape(schema, (name,))).keep
        assert kept.to_pylist() == expected


def test_hive_name_of_null_as_a_value_may_be_null_or_the_text():
    files = entries({"region": "__HIVE_DEFAULT_PARTITION__"}, {"region": "x"})
    assert kept(files, "region IS NULL") == [0]
    assert kept(files, "region = 'x'") == [0, 1]


@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("month", "Jan", "month = 5"),
        ("month", "", "month > 5"),
        ("day", "2024-9", "day = '2024-09-01'"),
        ("day", "20260322", "day < '2026-01-01'"),
        ("day", "19723", "day > '2030-01-01'"),
        ("hour", "2024-01-01 00:00:00", "hour = '2030-01-01'"),
        ("hour", "1704067200000000", "hour IS NULL"),
    ],
)
def test_partition_value_that_does_not_parse_is_never_skipped(column, value, where):
    good = {"month": "12", "day": "1999-01-01", "hour": "1999-01-01T00:00:00Z"}[column]
    assert kept(entries({column: value}, {column: good}), where)[0] == 0
    assert kept(entries({column: value}, {column: good}), f"NOT ({where})")[0] == 0


def test_dates_are_iso_everywhere():
    files = entries({"day": "2024-01-09"}, {"day": "2024-01-10"}, {"day": "2024-02-01"})
    assert kept(files, "day >= '2024-01-10'") == [1, 2]
    assert kept(files, "day = DATE '2024-01-10'") == [1]
    statistics = entries(
        ({}, {"born": "1999-12-31"}, {"born": "2000-01-01"}), ({}, {"born": "20000102"}, {"born": "20260322"})
    )
    assert kept(statistics, "born > '2000-01-01'") == [1]
    assert kept(statistics, "born < '1999-12-31'") == [1]


def test_microseconds_of_timestamps_count():
    files = entries(
        ({}, {"seen": "2024-01-01T00:00:00.000001Z"}, {"seen": "2024-01-01T00:00:00.000002Z"}),
        ({}, {"seen": "2024-01-01T00:00:00.000003Z"}, {"seen": "2024-01-01T00:00:00.000003Z"}),
    )
    assert kept(files, "seen = '2024-01-01 00:00:00.000002'") == [0]
    assert kept(files, "seen > '2024-01-01 00:00:00.000002'") == [1]


def test_maximum_that_was_cut_to_milliseconds_or_seconds_loses_no_row():
    files = entries(
        ({}, {"seen": "2024-01-01T00:00:00.000Z"}, {"seen": "2024-01-01T00:00:00.123Z"}),
        ({}, {"seen": "2024-01-01T00:00:00Z"}, {"seen": "2024-01-01T00:00:00Z"}),
    )
    assert kept(files, "seen = '2024-01-01 00:00:00.123456'") == [0, 1]
    assert kept(files, "seen = '2024-01-01 00:00:00.124000'") == [1]
    assert kept(files, "seen = '2024-01-01 00:00:01'") == []


def test_zone_less_texts_and_literals_do_not_skip_wrongly():
    zone_less = entries(({}, {"seen": "2024-01-01 00:00:00"}, {"seen": "2024-01-01 06:00:00"}))
    assert kept(zone_less, "seen > '2024-01-01 09:00:00'") == [0]
    files = entries(({}, {"seen": "2024-01-01T00:00:00Z"}, {"seen": "2024-01-01T06:00:00Z"}))
    data = pa.table({"seen": pa.array([datetime(2024, 1, 1, 6, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    for where in ("seen >= '2024-01-01 06:00:00'", "seen > '2024-01-01 06:00:01'"):
        predicate = bind(parse_predicate(where), SCHEMA)
        assert kept(files, predicate) == ([0] if data.filter(to_arrow_filter(predicate)).num_rows else [])


def test_epoch_numbers_of_an_unknown_unit_prove_nothing():
    files = entries(({}, {"seen": "1704067200000000"}, {"seen": "1704067200000001"}))
    assert kept(files, "seen > '2030-01-01'") == [0]


@pytest.mark.parametrize(
    "where",
    ["score > 5", "score >= 5", "score = 'NaN'", "score <> 2", "score IN ('NaN')", "NOT (score <= 5)"],
)
def test_maximum_that_ignores_nan_loses_no_row(where):
    assert kept(
        entries(({}, {"score": "1.5"}, {"score": "2.0"}), ({}, {"score": "2"}, {"score": "2"})), where
    ) == [0, 1]


def test_floats_are_skipped_where_nan_does_not_matter():
    files = entries(
        ({}, {"score": "1.5"}, {"score": "2.0"}),
        ({}, {"score": "-Infinity"}, {"score": "-0.0"}),
        ({}, {"score": "NaN"}, {"score": "NaN"}),
    )
    assert kept(files, "score = 3") == []
    assert kept(files, "score < 1.5") == [1]
    assert kept(files, "score = 0.0") == [1]
    assert kept(files, "score = '-Infinity'") == [1]
    assert kept(files, "score IN (2, 7)") == [0]


def test_decimals_compare_as_numbers():
    files = entries(({}, {"price": "9.50"}, {"price": "10.25"}), ({}, {"price": "100.00"}, {"price": "1000"}))
    assert kept(files, "price > 11") == [1]
    assert kept(files, "price = 9.505") == []
    assert kept(files, col("price") <= Decimal("9.5")) == [0]


def test_empty_strings_are_values():
    files = entries(({}, {"name": ""}, {"name": ""}), ({}, {"name": ""}, {"name": "b"}))
    assert kept(files, "name = ''") == [0, 1]
    assert kept(files, "name > ''") == [1]
    assert kept(files, "name LIKE '%'") == [0, 1]


def test_all_null_columns_have_no_statistics_and_are_kept():
    files = entries(({}, {"id": "1"}, {"id": "2"}), ({}, {}, {}), ({}, None, None))
    for where in ("name = 'x'", "name IS NULL", "name IS NOT NULL", "NOT (name = 'x')"):
        assert kept(files, where) == [0, 1, 2]


def test_unknown_null_count_is_not_zero():
    assert kept(RANGES, "id IS NULL AND name IS NULL") == [0, 1, 2, 3]


def test_one_bound_alone_is_used():
    files = entries(({}, {"id": "5"}, {}), ({}, {}, {"id": "5"}))
    assert kept(files, "id < 5") == [1]
    assert kept(files, "id > 5") == [0]


def test_bounds_that_contradict_each_other_prove_nothing():
    assert kept(entries(({}, {"id": "9"}, {"id": "1"})), "id = 500") == [0]


def test_is_not_null_as_the_only_predicate_still_filters_partitions():
    files = entries({"month": "1"}, {})
    assert kept(files, "month IS NOT NULL") == [0]


def test_nested_columns_are_kept():
    assert kept(RANGES, "tags IS NULL OR tags IS NOT NULL") == [0, 1, 2, 3]


def test_text_maximum_that_was_simply_cut_loses_no_row():
    cut = "a" * 32
    files = entries(({}, {"name": "a"}, {"name": cut}))
    assert kept(files, col("name") == cut + "zzz") == [0]
    assert kept(files, col("name") > cut) == [0]
    assert kept(files, col("name").starts_with(cut + "b")) == [0]
    assert kept(files, "name = 'b'") == []


def test_column_is_named_in_any_case():
    files = entries(({"month": "1"}, {"id": "1"}, {"id": "2"}), ({"month": "2"}, {"id": "3"}, {"id": "4"}))
    assert kept(files, "MONTH = 1") == [0]
    assert kept(files, "ID = 3") == [1]
    assert kept(files, "month = 1", partition_columns=["Month"]) == []  # the log has no value under that name


def test_constants_keep_everything_or_nothing():
    assert kept(RANGES, AlwaysTrue()) == [0, 1, 2, 3]
    assert kept(RANGES, AlwaysFalse()) == []


def test_no_files_need_no_answer():
    result = prune_files(entries(), bind(parse_predicate("month = 1 AND id = 2"), SCHEMA), SHAPE)
    assert result.keep.to_pylist() == []
    assert result.candidates == 0


def test_entries_in_many_chunks():
    chunked = pa.concat_tables([MONTHS.slice(0, 5), MONTHS.slice(5, 0), MONTHS.slice(5)])
    assert kept(chunked, "month > 9") == [9, 10, 11]


def test_predicate_that_does_not_fit_is_refused():
    with pytest.raises(InvalidPredicateError, match=r"'moth'.*'month'"):
        kept(MONTHS, "moth = 1")
    with pytest.raises(InvalidPredicateError, match="'day'"):
        kept(MONTHS, "day = 20260322")


def test_partition_predicates_are_decided_for_dropping():
    files = entries({"month": "1"}, {"month": "10"}, {}, {"month": "Jan"})
    assert match_partitions(files, bind(col("month") >= 9, SCHEMA), SHAPE).to_pylist() == [
        False,
        True,
        False,
        None,
    ]
    assert match_partitions(files, bind(~(col("month") >= 9), SCHEMA), SHAPE).to_pylist() == [
        True,
        False,
        False,
        None,
    ]
    assert (
        match_partitions(files, bind(col("day") == date(2024, 1, 1), SCHEMA), SHAPE).to_pylist()
        == [False] * 4
    )


def test_dropping_by_a_column_that_is_no_partition_is_refused():
    with pytest.raises(InvalidPredicateError, match="'id' is not a partition column; use month"):
        match_partitions(MONTHS, bind((col("month") == 1) & (col("id") == 1), SCHEMA), SHAPE)
