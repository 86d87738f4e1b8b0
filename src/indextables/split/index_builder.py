"""Builds Tantivy indexes in local directories: the index of a new split, and short-lived ones of some rows."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import tantivy

from indextables.errors import SplitWriteError
from indextables.split.doc_mapping import DocMapping
from indextables.split.documents import DocumentEncoder
from indextables.split.index_files import MANAGED_FILE, META_FILE, open_index, translating

# Tantivy's limits for one thread.
MIN_HEAP_BYTES: Final = 15_000_000
MAX_HEAP_BYTES: Final = 4_000_000_000


class IndexBuilder:
    """One index under construction. Rows are numbered in the order in which they are added.

    One thread writes the index, in one segment as long as the heap suffices and in several beyond that; each
    document stores its row number. The index is incomplete until `finish`. A builder that is abandoned needs `abort`,
    because its thread writes into the directory.
    """

    def __init__(self, directory: Path, mapping: DocMapping, heap_bytes: int) -> None:
        self._directory = directory
        self._what = f"building an index in {directory}"
        heap = min(max(heap_bytes, MIN_HEAP_BYTES), MAX_HEAP_BYTES)
        with translating(self._what, SplitWriteError):
            index = tantivy.Index(mapping.tantivy_schema(), path=str(directory), reuse=False)
            mapping.register_tokenizers(index)
            self._writer = index.writer(heap, num_threads=1)
        self._encoder = DocumentEncoder(mapping)
        self._next_row = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Index some rows.

        Raises InvalidValueError for a value that does not fit its mapping, and SplitWriteError if the index cannot be
        written, usually because the disk is full.
        """
        add = self._writer.add_document
        with translating(self._what, SplitWriteError):
            for document in self._encoder.documents(rows, self._next_row):
                add(document)
        self._next_row += rows.num_rows

    def finish(self) -> list[Path]:
        """Complete the index and return its files. Raises SplitWriteError."""
        with translating(self._what, SplitWriteError):
            self._writer.commit()
            # Background merges of segments replace files.
            self._writer.wait_merging_threads()
        return index_files(self._directory)

    def abort(self) -> None:
        """Stop writing, so the directory can be removed. Does nothing after `finish`."""
        # The index is discarded; the error that led here is the one to report.
        with contextlib.suppress(SplitWriteError), translating(self._what, SplitWriteError):
            self._writer.rollback()


def index_files(directory: Path) -> list[Path]:
    """Return the files that meta.json refers to, without locks and leftovers."""
    meta = orjson.loads((directory / META_FILE).read_bytes())
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    files = [path for path in directory.iterdir() if path.name.partition(".")[0] in segments]
    return [*sorted(files), directory / MANAGED_FILE, directory / META_FILE]


@contextlib.contextmanager
def row_index(rows: pa.Table, mapping: DocMapping) -> Iterator[tantivy.Index]:
    """Index some rows for the duration of the block. Raises InvalidValueError and SplitWriteError."""
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
