"""One split under construction: where its index is built."""

import pyarrow as pa
import pytest

from indextables.config import Settings
from indextables.pruning import StatisticsOptions
from indextables.schema import TableShape
from indextables.split.builder import SplitBuilder, SplitShape
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_cache import IndexCache
from indextables.split.reader import open_split
from indextables.split.slim_index import RowsOutOfOrderError
from indextables.storage import open_store
from support.split_samples import searcher_of

ROWS = pa.table({"id": range(100), "text": [f"word{number}" for number in range(100)]})
HEAP_BYTES = 20_000_000


@pytest.fixture
def memory(tmp_path):
    path = tmp_path / "memory"
    path.mkdir()
    return path


def new_builder(directory, memory_directory):
    table = TableShape(ROWS.schema)
    mapping = mapping_from_settings(table, Settings())
    shape = SplitShape(table, mapping, StatisticsOptions(), HEAP_BYTES, target_bytes=1024**3)
    return SplitBuilder(directory / "split", shape, {}, memory_directory)


def row_count_of_index(tmp_path, built):
    store = open_store(tmp_path / "table")
    store.put("a.split", built.path.read_bytes())
    return searcher_of(open_split(store, "a.split"), IndexCache(tmp_path / "cache", 10**9)).num_docs


def index_parents(*directories):
    return [directory for directory in directories if (directory / "split" / "index").is_dir()]


@pytest.mark.parametrize("is_indexed_early", [True, False])
def test_a_small_index_is_built_in_memory(tmp_path, memory, is_indexed_early):
    builder = new_builder(tmp_path, memory)
    if is_indexed_early:
        builder.start_index()
    builder.append(ROWS.slice(0, 40))
    builder.append(ROWS.slice(40))
    built = builder.finish(1)
    assert index_parents(tmp_path, memory) == [memory]
    assert row_count_of_index(tmp_path, built) == built.info.num_records == 100
    builder.discard()
    assert list(memory.iterdir()) == []


def test_rows_that_are_on_disk_already_are_indexed_on_disk(tmp_path, memory):
    builder = new_builder(tmp_path, memory)
    builder.start_index()
    builder.append(ROWS.slice(0, 40))
    builder.flush()
    builder.append(ROWS.slice(40))
    built = builder.finish(1)
    assert index_parents(tmp_path, memory) == [tmp_path]
    assert row_count_of_index(tmp_path, built) == 100


@pytest.mark.parametrize("failing", ["add", "finish"])
@pytest.mark.parametrize("is_indexed_early", [True, False])
def test_an_index_that_loses_the_row_order_is_built_again_sorted(
    tmp_path, monkeypatch, failing, is_indexed_early
):
    built_sorted = []

    class Unsorted(IndexBuilder):
        """Loses the row order unless it is sorted."""

        def __init__(self, *args, is_sorted):
            super().__init__(*args, is_sorted=is_sorted)
            built_sorted.append(is_sorted)

        def add(self, rows):
            super().add(rows)
            self._lose_order("add")

        def finish(self):
            self._lose_order("finish")
            return super().finish()

        def _lose_order(self, where):
            if where == failing and not built_sorted[-1]:
                raise RowsOutOfOrderError("out of row order")

    monkeypatch.setattr("indextables.split.builder.IndexBuilder", Unsorted)
    builder = new_builder(tmp_path, None)
    if is_indexed_early:
        builder.start_index()
    builder.append(ROWS.slice(0, 40))
    builder.flush()
    builder.append(ROWS.slice(40))
    built = builder.finish(1)
    assert row_count_of_index(tmp_path, built) == 100
    assert built_sorted == [False, True]


@pytest.mark.usefixtures("busy_watcher")
def test_the_folder_of_a_discarded_index_may_come_back(tmp_path):
    builder = new_builder(tmp_path, None)
    builder.start_index()
    builder.append(ROWS)
    builder.flush()
    builder._start_over_sorted()
    assert row_count_of_index(tmp_path, builder.finish(1)) == 100


def test_without_room_in_memory_a_small_index_is_built_on_disk(tmp_path):
    no_directory = tmp_path / "file"
    no_directory.touch()
    for number, memory in enumerate([None, tmp_path / "missing", no_directory]):
        directory = tmp_path / str(number)
        builder = new_builder(directory, memory)
        builder.start_index()
        builder.append(ROWS)
        built = builder.finish(1)
        assert index_parents(directory) == [directory]
        assert row_count_of_index(directory, built) == 100
