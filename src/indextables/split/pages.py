"""The pages of a split's rows: where each one is, and a reader that fetches only those that hold some rows.

A few pages, put together with metadata that names only them, are a small Parquet file, which Arrow decodes. So reading
ten rows costs ten pages of each column, however large the row groups are.
"""

import zlib
from collections.abc import Sequence
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
    Pages,
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
    def decode(cls, data: bytes) -> "PageTable":
        """Decode a table. Raises ValueError and Arrow's errors."""
        num_leaves, num_groups, num_pages = np.frombuffer(data, "<u4", 3).tolist()
        counts = [
            num_pages,
            num_groups,
            num_leaves * num_groups,
            3 * num_leaves * num_groups,
            num_leaves * num_pages,
        ]
        shuffled = pa.decompress(data[12:], 8 * sum(counts), "zstd", asbytes=True)
        numbers = np.frombuffer(np.frombuffer(shuffled, np.uint8).reshape(8, -1).T.tobytes(), "<i8")
        rows, pages, starts, statistics, sizes = np.split(numbers, np.cumsum(counts)[:-1])
        return cls(
            np.concatenate([[0], np.cumsum(rows)]),
            np.concatenate([[0], np.cumsum(pages)]),
            starts.reshape(num_leaves, num_groups),
            sizes.reshape(num_leaves, num_pages),
            statistics.reshape(num_leaves, num_groups, 3),
        )


def find_pages(path: Path, metadata: Struct) -> PageTable | None:
    """Return the pages of a Parquet file without its metadata; None if the columns' pages start at different rows.

    Raises OSError, and ValueError if the file has no page index.
    """
    chunks, group_rows = column_chunks(metadata), rows_of_groups(metadata)
    num_leaves = len(chunks[0]) if chunks else 0
    starts = np.zeros((num_leaves, len(chunks)), np.int64)
    statistics = np.zeros((num_leaves, len(chunks), 3), np.int64)
    sizes: list[list[list[int]]] = [[] for _ in range(num_leaves)]
    first_rows: list[int] = []
    first_pages = [0]
    rows_before = 0
    with path.open("rb") as file:
        for group, leaves in enumerate(chunks):
            of_group: list[int] | None = None
            for leaf, chunk in enumerate(leaves):
                locations = _locations(_read(file, offset_index_place(chunk)))
                cuts = [first for _, _, first in locations]
                if of_group is None:
                    of_group = cuts
                ends = [offset + size for offset, size, _ in locations]
                if cuts != of_group or [offset for offset, _, _ in locations[1:]] != ends[:-1]:
                    return None
                starts[leaf, group] = locations[0][0] if locations else 0
                sizes[leaf].append([size for _, size, _ in locations])
                if (place := column_index_place(chunk)) is not None:
                    statistics[leaf, group] = (*place, zlib.crc32(_read(file, place)))
            first_rows += [rows_before + first for first in of_group or ()]
            first_pages.append(len(first_rows))
            rows_before += group_rows[group]
    return PageTable(
        np.array([*first_rows, rows_before], np.int64),
        np.array(first_pages, np.int64),
        starts,
        np.array([sum(of_leaf, []) for of_leaf in sizes], np.int64).reshape(num_leaves, len(first_rows)),
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
                page_sizes = sizes[of_group - first].tolist()
                plan.append(_Part(group, leaf, num_rows, places, dictionary, page_sizes))
        return plan

    def _assemble(self, plan: Sequence["_Part"], data: Sequence[bytes], columns: Sequence[str]) -> bytes:
        pieces: list[bytes] = [PARQUET_MAGIC]
        position, taken = len(PARQUET_MAGIC), 0
        groups: list[tuple[int, list[tuple[Struct, Pages]]]] = []
        previous = -1
        for part in plan:
            fetched = data[taken : taken + len(part.places)]
            taken += len(part.places)
            pieces += fetched
            has_dictionary = part.dictionary is not None
            pages_data = b"".join(fetched[1:] if has_dictionary else fetched)
            size = sum(map(len, fetched))
            first_page = position + (len(fetched[0]) if has_dictionary else 0)
            num_values = part.num_rows
            if part.leaf.is_repeated:
                num_values = _count_values(pages_data, part.page_sizes)
            if part.group != previous:
                groups.append((part.num_rows, []))
                previous = part.group
            pages = Pages(num_values, size, first_page, position if has_dictionary else None)
            groups[-1][1].append((self._chunks[part.group][part.leaf.number], pages))
            position += size
        metadata = encode_selected(self._metadata, self._schema.selected(columns), groups)
        return b"".join([*pieces, metadata, len(metadata).to_bytes(4, "little"), PARQUET_MAGIC])


class _Part:
    """The pages of one leaf in one row group: the ranges to read, the dictionary's first if there is one."""

    def __init__(
        self,
        group: int,
        leaf: Leaf,
        num_rows: int,
        pages: list[tuple[int, int]],
        dictionary: tuple[int, int] | None,
        page_sizes: list[int],
    ) -> None:
        self.group = group
        self.leaf = leaf
        self.num_rows = num_rows
        self.dictionary = dictionary
        self.places = pages if dictionary is None else [dictionary, *pages]
        self.page_sizes = page_sizes


def _runs(pages: _Numbers) -> list[tuple[int, int]]:
    """Return the first and the last page of each run of consecutive pages."""
    breaks = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(pages, breaks)]


def _count_values(data: bytes, page_sizes: Sequence[int]) -> int:
    """Return the number of values of pages, as their headers say."""
    count, position = 0, 0
    for size in page_sizes:
        header, _ = decode_struct(data, position)
        page = header[5] if 5 in header else header[8]
        count += int(page[1].value)
        position += size
    return count
