"""An index of some rows only, for as long as a question about them takes."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import tantivy

from indextables.split.index_builder import MIN_HEAP_BYTES, IndexBuilder
from indextables.split.index_reader import open_index
from indextables.split.mapping import DocMapping


@contextlib.contextmanager
def row_index(rows: pa.Table, mapping: DocMapping) -> Iterator[tantivy.Index]:
    """An index of these rows, which goes with the block. Raises InvalidValueError and SplitWriteError."""
    with tempfile.TemporaryDirectory(prefix="indextables-") as folder:
        builder = IndexBuilder(Path(folder), mapping, MIN_HEAP_BYTES)
        try:
            for batch in rows.to_batches():
                builder.add(batch)
            builder.finish()
        except BaseException:
            builder.abort()
            raise
        yield open_index(Path(folder), mapping, "rows in memory")
