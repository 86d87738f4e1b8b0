"""Rows survive a round trip: every type, nulls, extremes, and independent readers."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
import tantivy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.config import Settings
from indextables.errors import InvalidOptionError, InvalidSchemaError, InvalidValueError
from indextables.pruning import StatisticsOptions
from indextables.schema import TableShape, canonical_schema
from indextables.split.builder import SplitBuilder, SplitShape
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_cache import IndexCache
from indextables.split.reader import open_split
from indextables.split.rows_file import bounded_slices
from indextables.split.writer import WriterOptions
from indextables.storage import open_store
from support.split_samples import (
    EVERY_TYPE,
    EVERY_TYPE_OPTIONS,
    PREFIX,
    null_row,
    opened,
    ordinary_row,
    read_all,
    searcher_of,
    unpacked_index,
    write_split,
    write_splits,
)


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equality in which NaN equals itself, and -0.0 is not 0.0."""
    return left.schema.equals(right.schema) and repr(left.to_pylist()) == repr(right.to_pylist())


def test_every_type_with_nulls_comes_back_as_it_was(store):
    rows = [ordinary_row(), null_row(), ordinary_row()]
    table = pa.Table.from_pylist(rows, schema=EVERY_TYPE)
    file = write_split(store, table, EVERY_TYPE_OPTIONS)
    split = opened(store, file)
    assert same(read_all(split), table)
    assert same(split.take([2, 1]), table.take([2, 1]))
    assert file.num_records == split.num_records == 3


def test_extremes_of_every_type_come_back_as_they_were(store):
    rows = []
    for sign in (-1, 1):
        for edge in (0, 1):
            row = null_row() | {
                "byte": 127 * sign - edge * (sign < 0),
                "short": 32767 * sign,
                "integer": 2**31 - 1 if sign > 0 else -(2**31),
                "long": 2**63 - 1 if sign > 0 else -(2**63),
                "float": math.inf * sign,
                "double": 5e-324 * sign if edge else 1.7976931348623157e308 * sign,
                "small_decimal": Decimal("99999999.99") * sign,
                "widest_long_decimal": Decimal(10**18 - 1) * sign,
                "big_decimal": Decimal(("-" if sign < 0 else "") + "9" * 28 + "." + "9" * 10),
                "date": date.min if sign < 0 else date.max,
                "timestamp": datetime(1, 1, 1, tzinfo=UTC)
                if sign < 0
                else datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
                "timestamp_ntz": datetime(1677, 1, 1) if sign < 0 else datetime(2262, 12, 31),
                "string": "\U0010ffff\x00\u202e é \U0001d518" if edge else "",
                "text": "ß" * 1000 if edge else "",
                "json_text": "{}",
                "ip": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" if sign > 0 else "0.0.0.0",
                "binary": bytes(range(256)) if edge else b"",
                "array": [] if edge else [None],
                "map": [],
            }
            rows.append(row)
    table = pa.Table.from_pylist(rows, schema=EVERY_TYPE)
    split = opened(store, write_split(store, table, EVERY_TYPE_OPTIONS))
    assert same(read_all(split), table)


def test_nan_and_negative_zero_come_back_and_are_searchable(store, tmp_path):
    table = pa.table({"x": pa.array([math.nan, -0.0, 0.0, -math.inf, math.inf, None, 1.0])})
    split = opened(store, write_split(store, table))
    assert same(read_all(split), table)
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    zero = tantivy.Query.term_query(split.mapping.tantivy_schema(), "x", 0.0)
    assert searcher.search(zero).count == 2


def test_timestamps_outside_pythons_years_come_back_also_inside_structs(store):
    moments = pa.array([-(2**62), 2**62], pa.int64()).cast(pa.timestamp("us"))
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32())
    nested = pa.StructArray.from_arrays([moments, days], names=["at", "on"])
    table = pa.table({"moment": moments, "day": days, "nested": nested})
    split = opened(store, write_split(store, table))
    assert read_all(split).equals(table)


def test_strings_of_a_megabyte_are_kept_whole(store, tmp_path):
    long = ["x" * 1_000_000, "é" * 500_000, "a b " * 250_000, None]
    table = pa.table(
        {"exact": long, "tokens": long, "bytes": [None if t is None else t.encode() for t in long]}
    )
    split = opened(store, write_split(store, table, {PREFIX + "typemap.text": "tokens"}))
    assert read_all(split).equals(table)
    assert searcher_of(split, IndexCache(tmp_path / "cache", 10**9)).num_docs == 4


def test_large_rows_make_small_row_groups():
    table = pa.table({"blob": [bytes(1000)] * 100 + [bytes(100_000)] + [b""] * 5000})
    slices = list(bounded_slices(table, max_rows=2048, max_bytes=50_000))
    assert pa.concat_tables(slices).equals(table)
    assert max(each.num_rows for each in slices) <= 2048
    assert all(each.nbytes <= 50_000 or each.num_rows == 1 for each in slices)


def test_a_write_without_rows_creates_no_split(store):
    assert write_splits(store, EVERY_TYPE.empty_table(), EVERY_TYPE_OPTIONS) == ()
    assert list(store.list("")) == []


def test_a_split_without_rows_reads_as_no_rows(store, tmp_path):
    table = TableShape(canonical_schema(EVERY_TYPE))
    mapping = mapping_from_settings(table, Settings.resolve(EVERY_TYPE_OPTIONS))
    shape = SplitShape(table, mapping, StatisticsOptions(), 15_000_000, 10**8)
    built = SplitBuilder(tmp_path / "scratch", shape, {}).finish(created_time_ms=0)
    store.put("empty.split", built.path.read_bytes())
    split = open_split(store, "empty.split")
    split.verify()
    assert split.num_records == 0
    assert list(split.scan()) == []
    assert split.take([]).schema.equals(table.schema)
    assert searcher_of(split, IndexCache(tmp_path / "cache", 10**9)).num_docs == 0


def test_columns_with_unusual_names_come_back_and_are_searchable(store, tmp_path):
    names = [
        "a.b",
        "a",
        "-minus",
        "~tilde",
        "~row",
        "with space",
        "é:ü",
        "a\\b",
        "tab\there",
        "NUL\x00",
        "x" * 300,
    ]
    table = pa.table({name: [name, "other"] for name in names})
    split = opened(store, write_split(store, table))
    assert read_all(split).equals(table)
    assert split.take([0], ["a"]).schema.names == ["a"]
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    for field in split.mapping:
        query = tantivy.Query.term_query(split.mapping.tantivy_schema(), field.index_name, field.name)
        assert searcher.search(query).count == 1, field.name


def test_plain_tantivy_opens_the_index(store, tmp_path):
    table = pa.table({"id": range(5000), "text": [f"word{i % 7} common" for i in range(5000)]})
    split = opened(store, write_split(store, table, {PREFIX + "typemap.text": "text"}))
    index = unpacked_index(store, split, tmp_path)
    assert index.searcher().search(index.parse_query("text:word3")).count == 714


def test_a_table_can_be_rebuilt_from_its_splits_alone(store):
    table = pa.table(
        {"id": [1, 2], "day": pa.array([date(2024, 1, 1)] * 2), "region": [None, None]},
    )
    table = table.cast(pa.schema([("id", pa.int64()), ("day", pa.date32()), ("region", pa.string())]))
    (file,) = write_splits(store, table, partition_columns=("day", "region"))
    split = opened(store, file)
    assert split.info.partition_values == {"day": "2024-01-01", "region": None}
    assert split.info.statistics.min_values == file.min_values == {"id": "1"}
    assert split.info.mapping.hash == file.doc_mapping_ref
    assert read_all(split).equals(table)


@pytest.mark.parametrize(
    ("options", "column", "error"),
    [
        ({PREFIX + "typemap.n": "text"}, "n", InvalidOptionError),
        ({PREFIX + "typemap.missing": "text"}, "missing", InvalidOptionError),
        ({PREFIX + "tokenizer.s": "klingon"}, "klingon", InvalidOptionError),
    ],
)
def test_unsupported_columns_are_rejected_before_anything_is_written(store, options, column, error):
    table = pa.table({"n": [1], "s": ["x"]})
    with pytest.raises(error, match=column):
        write_split(store, table, options)
    assert list(store.list("")) == []


def test_a_struct_without_fields_is_rejected_with_the_column(store):
    schema = pa.schema([("n", pa.int64()), ("outer", pa.struct([("hollow", pa.struct([]))]))])
    with pytest.raises(InvalidSchemaError, match=r"outer\.hollow"):
        write_split(store, schema.empty_table())


@pytest.mark.parametrize(
    ("kind", "value"), [("ip", "300.1.1.1"), ("json", "not json"), ("json", "[1, 2]"), ("json", '"text"')]
)
def test_a_value_that_does_not_fit_its_mapping_is_rejected_with_column_and_row(store, kind, value):
    good = {"ip": "1.2.3.4", "json": "{}"}[kind]
    table = pa.table({"fine": ["a", "b", "c"], "odd": [good, None, value]})
    with pytest.raises(InvalidValueError, match=r"'odd'.*row 2"):
        write_split(store, table, {PREFIX + "typemap.odd": kind})
    assert list(store.list("")) == []


texts = st.text(max_size=20)
row_values = st.fixed_dictionaries(
    {
        "long": st.none() | st.integers(-(2**63), 2**63 - 1),
        "double": st.none() | st.floats(),
        "float": st.none() | st.floats(width=32),
        "string": st.none() | texts,
        "text": st.none() | texts,
        "binary": st.none() | st.binary(max_size=20),
        "boolean": st.none() | st.booleans(),
        "date": st.none() | st.dates(),
        "timestamp_ntz": st.none() | st.datetimes(),
        "big_decimal": st.none()
        | st.decimals(
            allow_nan=False, allow_infinity=False, places=10, max_value=10**20, min_value=-(10**20)
        ),
        "small_decimal": st.none()
        | st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**7, min_value=-(10**7)),
        "array": st.none() | st.lists(st.none() | texts, max_size=3),
        "map": st.none()
        | st.dictionaries(texts, st.none() | st.integers(-100, 100), max_size=3).map(
            lambda d: list(d.items())
        ),
        "struct": st.none()
        | st.fixed_dictionaries(
            {
                "name": st.none() | texts,
                "when": st.none(),
                "price": st.none(),
                "raw": st.none() | st.binary(max_size=4),
                "inner": st.none(),
            }
        ),
    }
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(row_values, min_size=1, max_size=8), take=st.data())
def test_any_rows_come_back_as_they_were(tmp_path_factory, rows, take):
    store = open_store(tmp_path_factory.mktemp("any"))
    schema = pa.schema([EVERY_TYPE.field(name) for name in rows[0]])
    table = pa.Table.from_pylist(rows, schema=schema)
    split = opened(store, write_split(store, table, {PREFIX + "typemap.text": "text"}))
    assert same(read_all(split), table)
    numbers = take.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
    assert same(split.take(numbers), table.take(pa.array(numbers, pa.int64())))


def test_splits_are_closed_at_their_target_size(store):
    rows = 60_000
    table = pa.table({"id": range(rows), "text": [f"{i:x} {i * 7919:x}" for i in range(rows)]})
    files = write_splits(store, table, writer_options=WriterOptions(target_bytes=400_000))
    assert len(files) > 1
    found = [
        number for file in files for number in read_all(opened(store, file), ["id"]).column(0).to_pylist()
    ]
    assert found == list(range(rows))
