"""The pages of a split's rows: where each one is, and a reader that fetches only those that hold some rows.

A few pages, put together with metadata that names only them, are a small Parquet file, which Arrow decodes. So reading
ten rows costs ten pages of each column, however large the row groups are.
"""

import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import SplitCorruptedError
from indextables.split.byte_ranges import read_ranges
from indextables.split.parquet_footer import (
    PARQUET_MAGIC,
    Leaf,
    PagesPlace,
    RowsSchema,
    column_chunks,
    column_index_place,
    dictionary_place,
    encode_selected,
    offset_index_place,
    rows_of_groups,
)
from indextables.split.thrift import Struct, decode_struct
from indextables.storage import ObjectStore

_Numbers = npt.NDArray[np.int64]

# A table of more numbers is damaged: this many pages hold a hundred billion values.
_MAX_NUMBERS: Final = 128 * 1024**2

# The fields of a page's header.
_COMPRESSED_PAGE_SIZE, _DATA_PAGE_HEADER, _DATA_PAGE_HEADER_V2 = 3, 5, 8

# More decoded bytes than this are decoded by several threads.
_PARALLEL_BYTES: Final = 1024**2


class PageTable(NamedTuple):
    """The places of all pages. The pages of all columns start at the same rows.

    `first_rows` has the first row of every page, and the number of rows; `first_pages` the first page of every row
    group, and the number of pages. `starts` has the place of the first page of each leaf in each row group, `sizes` the
    size of each page of each leaf. `statistics` has the start, the end and the checksum of the statistics of the pages
    of each leaf in each row group, or zeros.
    """

    first_rows: _Numbers
    first_pages: _Numbers
    starts: _Numbers
    sizes: _Numbers
    statistics: _Numbers

    @property
    def num_pages(self) -> int:
        return len(self.first_rows) - 1

    def pages_of(self, rows: _Numbers) -> _Numbers:
        """Return the page of each row."""
        return np.searchsorted(self.first_rows, rows, side="right").astype(np.int64) - 1

    def groups_of(self, pages: _Numbers) -> _Numbers:
        """Return the row group of each page."""
        return np.searchsorted(self.first_pages, pages, side="right").astype(np.int64) - 1

    def encode(self) -> bytes:
        """Encode the table: the number of leaves, row groups and pages, and the compressed numbers."""
        num_leaves, num_groups = self.starts.shape
        numbers = [
            np.diff(self.first_rows),
            np.diff(self.first_pages),
            self.starts.ravel(),
            self.statistics.ravel(),
            self.sizes.ravel(),
        ]
        data = np.concatenate(numbers).astype("<i8").tobytes()
        # Most high bytes are zero: with the bytes of equal weight together, they take next to no room.
        shuffled = np.frombuffer(data, np.uint8).reshape(-1, 8).T.tobytes()
        header = np.array([num_leaves, num_groups, self.num_pages], "<u4").tobytes()
        return header + bytes(pa.compress(shuffled, "zstd", asbytes=True))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "PageTable":
        """Decode a table. Raises ValueError and Arrow's errors."""
        num_leaves, num_groups, num_pages = np.frombuffer(data, "<u4", 3).tolist()
        if max(num_leaves, 1) * (num_pages + 4 * num_groups) > _MAX_NUMBERS:
            raise ValueError(f"{num_pages} pages of {num_leaves} columns are too many")
        counts = [
            num_pages,
            num_groups,
            num_leaves * num_groups,
            3 * num_leaves * num_groups,
            num_leaves * num_pages,
        ]
        shuffled = pa.decompress(data[12:], 8 * sum(counts), "zstd", asbytes=True)
        numbers = np.frombuffer(np.frombuffer(shuffled, np.uint8).reshape(8, -1).T.tobytes(), "<i8")
        if len(numbers) and numbers.min() < 0:
            raise ValueError("the page table has negative numbers")
        bounds = [0, *accumulate(counts)]
        rows, pages, starts, statistics, sizes = (numbers[start:end] for start, end in pairwise(bounds))
        return cls(
            _running_sums(rows),
            _running_sums(pages),
            starts.reshape(num_leaves, num_groups),
            sizes.reshape(num_leaves, num_pages),
            statistics.reshape(num_leaves, num_groups, 3),
        )


def _running_sums(counts: _Numbers) -> _Numbers:
    """Return the sum of the counts before each one, and that of all of them."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def find_pages(path: Path, metadata: Struct) -> PageTable:
    """Return the pages of a Parquet file without its metadata. Raises OSError, and ValueError for a file without them.

    Where the pages of the columns of a row group start at different rows, the whole group counts as one page.
    """
    chunks, group_rows = column_chunks(metadata), rows_of_groups(metadata)
    num_leaves = len(chunks[0]) if chunks else 0
    starts = np.zeros((num_leaves, len(chunks)), np.int64)
    statistics = np.zeros((num_leaves, len(chunks), 3), np.int64)
    sizes: list[list[int]] = [[] for _ in range(num_leaves)]
    first_rows: list[int] = []
    first_pages = [0]
    rows_before = 0
    with path.open("rb") as file:
        for group, leaves in enumerate(chunks):
            of_group = [_locations(_read(file, offset_index_place(chunk))) for chunk in leaves]
            cuts = [[first for _, _, first in pages] for pages in of_group]
            is_aligned = all(each == cuts[0] for each in cuts)
            for leaf, (chunk, pages) in enumerate(zip(leaves, of_group, strict=True)):
                starts[leaf, group] = pages[0][0]
                sizes[leaf] += (
                    [size for _, size, _ in pages] if is_aligned else [sum(size for _, size, _ in pages)]
                )
                place = column_index_place(chunk)
                if place is not None and is_aligned:
                    statistics[leaf, group] = (*place, zlib.crc32(_read(file, place)))
            first_rows += [rows_before + first for first in cuts[0]] if is_aligned else [rows_before]
            first_pages.append(len(first_rows))
            rows_before += group_rows[group]
    return PageTable(
        np.array([*first_rows, rows_before], np.int64),
        np.array(first_pages, np.int64),
        starts,
        np.array(sizes, np.int64).reshape(num_leaves, len(first_rows)),
        statistics,
    )


def _read(file: Any, place: tuple[int, int] | None) -> bytes:
    if place is None:
        raise ValueError("the Parquet file has no page index")
    file.seek(place[0])
    data: bytes = file.read(place[1] - place[0])
    return data


def _locations(data: bytes) -> list[tuple[int, int, int]]:
    """Return the offset, the size and the first row in its row group of each page."""
    index, _ = decode_struct(data)
    return [(page[1].value, page[2].value, page[3].value) for page in index[1].values]


class PageReader:
    """Reads pages of the rows of one split; `metadata` is its Parquet metadata."""

    def __init__(self, store: ObjectStore, key: str, metadata: Struct, table: PageTable) -> None:
        self._store = store
        self._key = key
        self._metadata = metadata
        self._table = table
        self._chunks = column_chunks(metadata)
        self._schema = RowsSchema(metadata)

    def read(self, pages: _Numbers, columns: Sequence[str]) -> pa.Table:
        """Return the rows of these pages, which are in order, with these columns, in one round trip.

        Raises storage errors and SplitCorruptedError.
        """
        leaves = [leaf for name in columns for leaf in self._schema.leaves[name]]
        plan = self._plan(pages, leaves)
        data = read_ranges(self._store, self._key, [place for part in plan for place in part.places])
        try:
            file = self._assemble(plan, data, columns)
            # Opened this way, Arrow verifies the checksum of every page.
            parquet = pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True)
            return parquet.read(use_threads=len(file) > _PARALLEL_BYTES).select(list(columns))
        except (OSError, ValueError, KeyError, AttributeError, pa.ArrowException) as error:
            raise SplitCorruptedError(
                f"{self._store.url}: {self._key}: the rows cannot be read: {error}"
            ) from error

    def _plan(self, pages: _Numbers, leaves: Sequence[Leaf]) -> list["_Part"]:
        """Return what to read for each row group and leaf, in the order of the file of pages."""
        table, plan = self._table, []
        groups, firsts = np.unique(table.groups_of(pages), return_index=True)
        for group, of_group in zip(groups.tolist(), np.split(pages, firsts[1:]), strict=True):
            first = int(table.first_pages[group])
            num_rows = int((table.first_rows[of_group + 1] - table.first_rows[of_group]).sum())
            runs = _runs(of_group - first)
            for leaf in leaves:
                sizes = table.sizes[leaf.number, first : int(table.first_pages[group + 1])]
                ends = table.starts[leaf.number, group] + np.cumsum(sizes)
                places = [(int(ends[low] - sizes[low]), int(ends[high])) for low, high in runs]
                dictionary = dictionary_place(self._chunks[group][leaf.number])
                plan.append(_Part(group, leaf, num_rows, places, dictionary))
        return plan

    def _assemble(self, plan: Sequence["_Part"], data: Sequence[bytes], columns: Sequence[str]) -> bytes:
        pieces: list[bytes] = [PARQUET_MAGIC]
        position, taken = len(PARQUET_MAGIC), 0
        groups: list[tuple[int, list[tuple[Struct, PagesPlace]]]] = []
        previous = -1
        for part in plan:
            fetched = data[taken : taken + len(part.places)]
            taken += len(part.places)
            pieces += fetched
            has_dictionary = part.dictionary is not None
            size = sum(map(len, fetched))
            first_page = position + (len(fetched[0]) if has_dictionary else 0)
            num_values = part.num_rows
            if part.leaf.is_repeated:
                num_values = _count_values(b"".join(fetched[1:] if has_dictionary else fetched))
            if part.group != previous:
                groups.append((part.num_rows, []))
                previous = part.group
            pages = PagesPlace(num_values, size, first_page, position if has_dictionary else None)
            groups[-1][1].append((self._chunks[part.group][part.leaf.number], pages))
            position += size
        metadata = encode_selected(self._metadata, self._schema.selected(columns), groups)
        return b"".join([*pieces, metadata, len(metadata).to_bytes(4, "little"), PARQUET_MAGIC])


class _Part(NamedTuple):
    """The pages of one leaf in one row group: their ranges, and that of the dictionary."""

    group: int
    leaf: Leaf
    num_rows: int
    pages: list[tuple[int, int]]
    dictionary: tuple[int, int] | None

    @property
    def places(self) -> list[tuple[int, int]]:
        return self.pages if self.dictionary is None else [self.dictionary, *self.pages]


def _runs(pages: _Numbers) -> list[tuple[int, int]]:
    """Return the first and the last page of each run of consecutive pages."""
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(pages, breaks)]


def _count_values(data: bytes) -> int:
    """Return the number of values of pages, as their headers say."""
    count, position = 0, 0
    while position < len(data):
        header, position = decode_struct(data, position)
        page = header[_DATA_PAGE_HEADER] if _DATA_PAGE_HEADER in header else header[_DATA_PAGE_HEADER_V2]
        count += int(page[1].value)
        position += int(header[_COMPRESSED_PAGE_SIZE].value)
    return count
