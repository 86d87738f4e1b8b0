"""The edge to Tantivy: its errors, and the panics of its Rust code, become ours."""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import orjson
import pyarrow as pa
import tantivy

from indextables.errors import IndexTablesError, SplitCorruptedError, SplitWriteError
from indextables.split.bundle import ROWS_MEMBER, Bundle, SplitInfo, read_range
from indextables.split.doc_mapping import DocMapping
from indextables.split.documents import DocumentEncoder
from indextables.split.parquet_ranges import coalesce, prefetched
from indextables.storage import ObjectStore

# Rust panics arrive as this class, which derives from BaseException and cannot be imported.
_PANIC = "PanicException"


class translating:  # noqa: N801  # read as a statement
    """Raise `error_type` for what Tantivy raises, or panics with, inside the block; `what` begins its message.

    Interrupts pass, and so do our own errors. A class and no generator, because every search enters it.
    """

    __slots__ = ("_error_type", "_what")

    def __init__(self, what: str, error_type: type[IndexTablesError]) -> None:
        self._what = what
        self._error_type = error_type

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, IndexTablesError):
            return
        if isinstance(error, Exception):
            raise self._error_type(f"{self._what}: {error}") from error
        if type(error).__name__ == _PANIC:
            raise self._error_type(f"{self._what}: the index library gave up: {error}") from error


# Builds the index of a split in a local directory.


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


# Opens indexes: from a split's members on their way into the cache, and from a local directory.


_PIECE_BYTES: Final = 8 * 1024**2
_PIECES_AHEAD: Final = 4


def index_members(bundle: Bundle) -> list[str]:
    """The names of the files that make up the index."""
    return [name for name in bundle.members if name != ROWS_MEMBER]


def fetch_members(
    store: ObjectStore, key: str, bundle: Bundle, names: Iterable[str], directory: Path
) -> dict[str, str]:
    """Copy members into a directory; the checksum of each.

    Members that lie side by side are fetched together, in large pieces and several at a time. Raises storage
    errors, SplitCorruptedError, and OSError for the local side.
    """
    members = {name: bundle.members[name] for name in names}
    spans = coalesce([(member.start, member.end) for member in members.values()])
    pieces = [
        (start, min(start + _PIECE_BYTES, end))
        for first, end in spans
        for start in range(first, end, _PIECE_BYTES)
    ]
    digests = {name: hashlib.sha256() for name in members}
    for name in members:
        (directory / name).touch()
    fetched = prefetched(lambda piece: read_range(store, key, *piece), pieces, depth=_PIECES_AHEAD)
    for (start, end), data in fetched:
        for name, member in members.items():
            part = data[max(member.start - start, 0) : max(min(member.end, end) - start, 0)]
            if part:
                digests[name].update(part)
                with (directory / name).open("ab") as target:
                    target.write(part)
    return {name: digest.hexdigest() for name, digest in digests.items()}


def fetch_index(store: ObjectStore, key: str, bundle: Bundle, info: SplitInfo, directory: Path) -> None:
    """Copy the index of one of our splits into a directory, and check it. Raises SplitCorruptedError."""
    found = fetch_members(store, key, bundle, index_members(bundle), directory)
    for name, checksum in found.items():
        if info.checksums.get(name) != checksum:
            raise SplitCorruptedError(
                f"{store.url}: {key}: the checksum of {name} is wrong; the file is damaged"
            )


def open_index(directory: Path, mapping: DocMapping, place: str) -> tantivy.Index:
    """An index for queries. All its files are open afterwards, so that their directory may go.

    Raises SplitCorruptedError if it is not an index.
    """
    with translating(f"{place}: the index cannot be opened", SplitCorruptedError):
        index = tantivy.Index.open(str(directory))
        mapping.register_tokenizers(index)
        # Nobody changes the index of a split. Without a watcher, no thread waits for that either.
        index.config_reader("manual")
        index.reload()
        return index


# An index of some rows only, for as long as a question about them takes.


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
