"""Building an index: Tantivy's limits, and the end of its writer."""

import pyarrow as pa
import pytest

from indextables.errors import SplitWriteError
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_builder import IndexBuilder, index_files
from indextables.split.index_opener import open_index
from support.search_indexes import found_rows, text_field

MAPPING = DocMapping((text_field("body"),))
ROWS = pa.record_batch({"body": ["open source", "search", None] * 500})


def build(directory, heap_bytes: int) -> IndexBuilder:
    builder = IndexBuilder(directory, MAPPING, heap_bytes)
    builder.add(ROWS)
    return builder


@pytest.mark.parametrize("heap_bytes", [0, 1, 15_000_000, 256_000_000, 10**13])
def test_any_heap_is_clamped_to_the_limits_of_one_thread(tmp_path, heap_bytes):
    build(tmp_path, heap_bytes).finish()
    index = open_index(tmp_path, MAPPING, "here")
    assert found_rows(index, MAPPING, "search") == list(range(1, 1500, 3))


def test_one_thread_writes_one_segment(tmp_path):
    files = build(tmp_path, 15_000_000).finish()
    assert open_index(tmp_path, MAPPING, "here").num_segments == 1
    assert files == index_files(tmp_path)


def test_a_finished_builder_rejects_rows_and_abort_keeps_its_index(tmp_path):
    """Tantivy's writer is consumed by waiting for its merging threads."""
    builder = build(tmp_path, 15_000_000)
    builder.finish()
    with pytest.raises(SplitWriteError, match="building an index"):
        builder.add(ROWS)
    builder.abort()
    assert len(found_rows(open_index(tmp_path, MAPPING, "here"), MAPPING, "search")) == 500
