"""Builds the index of a split in a local directory."""

import contextlib
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
import tantivy

from indextables.errors import SplitWriteError
from indextables.split.columns import DocumentEncoder
from indextables.split.mapping import DocMapping
from indextables.split.tantivy_errors import translating

# Tantivy's limits for one thread.
MIN_HEAP_BYTES: Final = 15_000_000
MAX_HEAP_BYTES: Final = 4_000_000_000

META_FILE: Final = "meta.json"
MANAGED_FILE: Final = ".managed.json"


class IndexBuilder:
    """One index under construction. Rows are numbered in the order in which they are added.

    The index is written by one thread, in one segment as long as the heap suffices and in several from there
    on; each document knows its row number. Nothing is complete before `finish`. A builder that is given up
    needs `abort`, because a thread of its own writes into the directory.
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

        Raises InvalidValueError for a value that its mapping cannot take, and SplitWriteError when the index
        cannot be written (a full disk, most often).
        """
        add = self._writer.add_document
        with translating(self._what, SplitWriteError):
            for document in self._encoder.documents(rows, self._next_row):
                add(document)
        self._next_row += rows.num_rows

    def finish(self) -> list[Path]:
        """Complete the index, and return its files. Raises SplitWriteError."""
        with translating(self._what, SplitWriteError):
            self._writer.commit()
            # Segments may be merging in the background, which replaces files.
            self._writer.wait_merging_threads()
        return index_files(self._directory)

    def abort(self) -> None:
        """Stop writing, so that the directory can be removed. Does nothing after `finish`."""
        # Whatever is wrong with an index that is thrown away, the reason for that counts.
        with contextlib.suppress(SplitWriteError), translating(self._what, SplitWriteError):
            self._writer.rollback()


def index_files(directory: Path) -> list[Path]:
    """The files that make up an index: what its meta.json refers to, without locks and left-overs."""
    meta = orjson.loads((directory / META_FILE).read_bytes())
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    files = [path for path in directory.iterdir() if path.name.partition(".")[0] in segments]
    return [*sorted(files), directory / MANAGED_FILE, directory / META_FILE]
