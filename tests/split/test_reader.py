"""Reading rows: columns, predicates, single rows, evolved schemas, and how little is read."""

import math
import mmap
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import (
    InvalidPredicateError,
    InvalidSchemaError,
    SplitCorruptedError,
    TransientStorageError,
)
from indextables.predicates import bind, col, parse_predicate, to_arrow_filter
from indextables.schema import TableShape
from indextables.split import rows_reader
from indextables.split.doc_mapping import ROW_FIELD
from indextables.split.index_cache import IndexCache
from indextables.split.reader import open_split
from indextables.storage import open_store
from support.faults import FaultStore, Moment
from support.split_samples import PREFIX, opened, parsed, read_all, searcher_of, write_split, write_splits

ROWS = 9000


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A store with one split of several row groups, and its table."""
    store = open_store(tmp_path_factory.mktemp("sample"))
    nan_group = [math.nan if 2048 <= i < 4096 and i % 2 else float(i // 2048) for i in range(ROWS)]
    table = pa.table(
        {
            "id": range(ROWS),
            "group": [f"g{i // 2048}" for i in range(ROWS)],
            "x": nan_group,
            "maybe": [None if i < 4096 else i for i in range(ROWS)],
            "day": pa.array([i // 100 for i in range(ROWS)], pa.int32()).cast(pa.date32()),
            "price": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(12, 2)),
            "huge": pa.array([Decimal(i - 4000) * 10**20 for i in range(ROWS)], pa.decimal128(38, 2)),
            "flag": [i >= 6144 for i in range(ROWS)],
            "nested": [{"a": i, "b": [str(i)]} for i in range(ROWS)],
        }
    )
    return store, write_split(store, table), table


@pytest.mark.parametrize(
    "text",
    [
        "id = 5000",
        "id > 8990 OR id < 3",
        "NOT (id > 10)",
        "group = 'g3' AND id > 8000",
        "group IN ('g0', 'zzz')",
        "group LIKE 'g2%'",
        "x <> 1",
        "x > 3",
        "x = 1",
        "maybe IS NULL",
        "maybe IS NOT NULL AND maybe < 4100",
        "day = DATE '1970-01-03'",
        "price >= 2000.25",
        "huge < 0",
        "flag",
        "nested IS NULL",
        "id < 0",
    ],
)
def test_a_pruned_scan_gives_what_a_filter_gives(sample, text):
    store, file, table = sample
    predicate = parse_predicate(text)
    expected = table.filter(to_arrow_filter(bind(predicate, table.schema)))
    found = read_all(opened(store, file), None, predicate)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


numbers = st.integers(-1, ROWS) | st.sampled_from([2047, 2048, 4095, 4096, ROWS - 1])
leaves = st.one_of(
    st.builds(lambda n: col("id") <= n, numbers),
    st.builds(lambda n: col("maybe") > n, numbers),
    st.builds(lambda n: col("x") == n, st.sampled_from([0.0, 1.0, 2.0, math.nan, 3.5])),
    st.builds(lambda n: col("x") != n, st.sampled_from([0.0, 1.0, math.nan])),
    st.builds(lambda n: col("huge") < Decimal(n) * 10**20, numbers),
    st.builds(lambda n: col("group") >= n, st.sampled_from(["g0", "g1", "g2x", ""])),
    st.just(col("maybe").is_null()),
    st.just(col("flag") == True),  # noqa: E712  # builds a predicate
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=60)
@given(predicate=trees)
def test_pruning_row_groups_never_loses_or_adds_a_row(sample, predicate):
    store, file, table = sample
    expected = table.filter(to_arrow_filter(bind(predicate, table.schema))).column("id")
    found = [
        number
        for batch in opened(store, file).scan(["id"], bind(predicate, table.schema))
        for number in batch.column(0).to_pylist()
    ]
    assert found == expected.to_pylist()


def test_a_scan_for_one_page_reads_little_and_never_the_index(sample):
    store, file, _ = sample
    counting = RangeCounter(store)
    split = opened(counting, file)
    counting.ranges.clear()
    counting.round_trips = 0
    assert read_all(split, ["id"], col("id") == 5000).num_rows == 1
    rows_end = split._bundle.index_start
    assert all(end <= rows_end for _, end in counting.ranges)
    # The statistics of the pages, and one page.
    assert counting.round_trips == 2
    assert sum(end - start for start, end in counting.ranges) < rows_end / 50


def test_row_groups_that_match_in_a_few_pages_are_read_by_page(sample, monkeypatch):
    store, file, table = sample
    predicate = bind((col("id") == 5000) | (col("id") > 8990), table.schema)
    read = []
    read_pages = rows_reader.RowsReader._read_pages

    def recording(self, pages, columns):
        read.append(pages.tolist())
        return read_pages(self, pages, columns)

    monkeypatch.setattr(rows_reader.RowsReader, "_read_pages", recording)
    batches = opened(store, file).scan(["id"], predicate)
    assert [row for batch in batches for row in batch.column(0).to_pylist()] == [5000, *range(8991, ROWS)]
    assert read == [[4, 8]]


class RangeCounter(FaultStore):
    """A store that records the ranges it reads."""

    def __init__(self, inner):
        super().__init__(inner)
        self.ranges = []
        self.round_trips = 0

    def get_range(self, key, start, end):
        self.ranges.append((start, end))
        self.round_trips += 1
        return super().get_range(key, start, end)

    def get_ranges(self, key, ranges):
        self.ranges += ranges
        self.round_trips += 1
        return super().get_ranges(key, ranges)


@pytest.mark.parametrize("window_bytes", [1, 20_000, 16 * 1024**2])
def test_a_scan_from_a_store_gives_what_one_from_a_file_gives(sample, monkeypatch, window_bytes):
    monkeypatch.setattr(rows_reader, "_WINDOW_BYTES", window_bytes)
    store, file, table = sample
    for names in (table.schema.names, ["nested"], ["flag", "id"]):
        found = read_all(opened(FaultStore(store), file), names)
        assert repr(found.to_pylist()) == repr(table.select(names).to_pylist())
        assert repr(found.to_pylist()) == repr(read_all(opened(store, file), names).to_pylist())


def test_fetched_bytes_are_released_after_decoding(sample):
    store, file, _ = sample
    sparse = rows_reader._SparseFile(store, file.path, file.size)
    sparse.fetch([(0, file.size)])
    whole = sparse.reader().read()
    assert whole == store.get(file.path)
    sparse.forget([(100, file.size)])  # from the first whole page on
    left = sparse.reader().read()
    assert left[:100] == whole[:100]
    assert left[mmap.PAGESIZE : 2 * mmap.PAGESIZE] == bytes(mmap.PAGESIZE)


def test_columns_come_in_the_requested_order_and_in_any_case(sample):
    store, file, _ = sample
    found = read_all(opened(store, file), ["X", "id"], col("ID") < 3)
    assert found.schema.names == ["x", "id"]
    assert read_all(opened(store, file), [], col("id") < 3).num_rows == 3
    assert sum(batch.num_rows for batch in opened(store, file).scan([])) == ROWS
    with pytest.raises(InvalidSchemaError, match="'zzz' does not exist"):
        opened(store, file).scan(["zzz"])
    with pytest.raises(InvalidPredicateError):
        read_all(opened(store, file), ["id"], col("zzz") == 1)


@settings(max_examples=30)
@given(rows=st.lists(numbers.filter(lambda n: 0 <= n < ROWS), max_size=30))
def test_taken_rows_follow_the_requested_order_and_repetition(sample, rows):
    store, file, table = sample
    taken = opened(store, file).take(np.array(rows, np.int64), ["id", "nested"])
    assert taken.equals(table.select(["id", "nested"]).take(pa.array(rows, pa.int64())))


def test_taking_rows_reads_only_their_pages_in_one_round_trip(sample):
    store, file, _ = sample
    counting = RangeCounter(store)
    split = opened(counting, file)
    split.take([0])
    counting.ranges.clear()
    counting.round_trips = 0
    split.take([5000, 5001, 4999, 17], ["id", "nested"])
    assert counting.round_trips == 1
    assert sum(end - start for start, end in counting.ranges) < 40_000
    counting.ranges.clear()
    split.take([5002, 18], ["id", "nested"])
    assert counting.ranges == []  # the pages are kept


@pytest.mark.parametrize("are_large", [False, True])
def test_the_pages_of_many_rows_are_kept_unless_they_are_large(sample, monkeypatch, are_large):
    store, file, table = sample
    monkeypatch.setattr(rows_reader, "_MAX_PAGES_KEPT", 2)
    monkeypatch.setattr(rows_reader, "_PAGES_AT_A_TIME", 2)
    if are_large:
        monkeypatch.setattr(rows_reader, "_MAX_STORED_BYTES_KEPT", 1000)
    counting = RangeCounter(store)
    split = opened(counting, file)
    rows = np.arange(ROWS - 1, 0, -7)
    for _ in range(2):
        counting.ranges.clear()
        taken = split.take(rows, ["id", "nested"])
        assert taken.equals(table.select(["id", "nested"]).take(pa.array(rows)))
    assert bool(counting.ranges) == are_large


@pytest.mark.parametrize("rows", [[ROWS], [-1], [0, 2**40]])
def test_rows_that_the_split_does_not_have_are_an_error(sample, rows):
    store, file, _ = sample
    with pytest.raises(SplitCorruptedError, match="is out of range"):
        opened(store, file).take(rows)


def test_columns_added_later_are_null_and_dropped_ones_are_not_read(sample):
    store, file, _ = sample
    schema = pa.schema([("added", pa.string()), ("id", pa.int64()), ("maybe", pa.float64())])
    split = opened(store, file, shape=TableShape(schema))
    found = read_all(split, None, (col("added").is_null()) & (col("id") > ROWS - 3))
    assert found.schema.equals(schema)
    assert found.to_pylist() == [
        {"added": None, "id": ROWS - 2, "maybe": float(ROWS - 2)},
        {"added": None, "id": ROWS - 1, "maybe": float(ROWS - 1)},
    ]
    assert read_all(split, None, col("added") == "x").num_rows == 0


def test_partition_values_come_from_the_log(tmp_path):
    store = open_store(tmp_path)
    table = pa.table({"id": [1, 2], "day": pa.array([date(2024, 1, 1)] * 2)})
    (file,) = write_splits(store, table, partition_columns=("day",))
    shape = TableShape(table.schema, ("day",))
    split = opened(store, file, shape=shape, partition_values={"day": "2030-12-31"})
    assert (
        read_all(split, ["day"], col("day") == date(2030, 12, 31)).column(0).to_pylist()
        == [date(2030, 12, 31)] * 2
    )
    assert read_all(split, ["day"], col("day") == date(2024, 1, 1)).num_rows == 0
    absent = opened(store, file, shape=shape, partition_values={})
    assert read_all(absent, ["day"]).column(0).to_pylist() == [None, None]


def test_a_store_that_fails_in_the_middle_of_a_scan_is_a_storage_error(sample):
    store, file, _ = sample
    healthy = FaultStore(store)
    read_all(opened(healthy, file))
    for number in range(len(healthy.calls)):
        with pytest.raises(TransientStorageError):
            read_all(opened(FaultStore(store, fail_call=(number, Moment.AFTER)), file))


def test_every_hit_of_the_index_names_its_row(tmp_path):
    store = open_store(tmp_path / "table")
    table = pa.table({"id": range(5000), "text": [f"token{i} word{i % 10}" for i in range(5000)]})
    split = opened(store, write_split(store, table, {PREFIX + "typemap.text": "text"}))
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    hits = searcher.search(parsed(split, "text:word7"), limit=5000).hits
    rows = searcher.fast_field_values(ROW_FIELD, [address for _, address in hits])
    assert sorted(split.take(rows, ["id"]).column(0).to_pylist()) == list(range(7, 5000, 10))


def test_an_unrelated_file_is_not_a_split(tmp_path):
    store = open_store(tmp_path)
    store.put("x.split", b"PAR1" * 100)
    with pytest.raises(SplitCorruptedError, match=r"x\.split"):
        open_split(store, "x.split", shape=TableShape(pa.schema([("id", pa.int64())])))
