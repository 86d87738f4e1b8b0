"""A search of many splits holds few of them in memory at a time, and their number does not limit the answer."""

import gc

import pyarrow as pa
import pytest

from indextables import IndexTable
from indextables._caching import clear_process_caches
from indextables.ops import read, search
from indextables.split import cold_search
from indextables.split.split import Split

SPLITS = 30
FEW = 5


@pytest.fixture
def table(tmp_path) -> IndexTable:
    schema = pa.schema([("body", pa.string()), ("n", pa.int64()), ("part", pa.int64())])
    table = IndexTable.create(tmp_path / "table", schema, partition_by=["part"], text=["body"])
    numbers = range(SPLITS)
    table.append(pa.table({"body": [f"word w{n}" for n in numbers], "n": numbers, "part": numbers}, schema))
    assert table.num_files == SPLITS
    return table


@pytest.fixture
def _small_caches(table, monkeypatch):
    """Caches with room for a few splits and their queries, in place of tens of thousands."""
    clear_process_caches()
    largest = max(read.open_ref(table.snapshot, ref).memory_bytes for ref in read.split_refs(table.files()))
    monkeypatch.setattr(read._OPEN_SPLITS, "_max_bytes", FEW * largest)
    monkeypatch.setattr(search._COMPILED, "_max_entries", FEW)
    yield
    clear_process_caches()


def live_splits() -> int:
    gc.collect()
    return sum(isinstance(value, Split) for value in gc.get_objects())


@pytest.mark.usefixtures("_small_caches")
def test_memory_does_not_grow_with_the_splits_that_were_searched(table):
    before = live_splits()
    for _ in range(2):
        assert table.count("word") == SPLITS
        assert table.search("word", limit=SPLITS).num_rows == SPLITS
        assert table.aggregate(["max(n)"], where="n >= 0").to_pylist() == [{"max(n)": SPLITS - 1}]
        # The footers differ by a few bytes, so one more may fit.
        assert 0 < live_splits() - before <= FEW + 1
        assert len(search._COMPILED) <= FEW


def test_the_cache_of_open_splits_counts_what_they_take(table):
    splits = [read.open_ref(table.snapshot, ref) for ref in read.split_refs(table.files())]
    for split in splits:
        # Arrow's objects are larger than their encoding, and their size is not known to Python.
        assert split.memory_bytes >= 4 * len(split._bundle.tail)


@pytest.mark.usefixtures("_small_caches")
def test_a_small_index_leaves_no_cold_data_in_memory(table, monkeypatch):
    """The cache holds the whole index, so the pages for opening it are not needed again."""
    monkeypatch.setattr(cold_search, "_SMALL_INDEX_BYTES", 1024**2)
    ref = read.split_refs(table.files())[0]
    split = read.open_again(table.snapshot, ref)
    assert table.count("word") == SPLITS
    assert not {name for name in vars(split) if "cold" in name}
