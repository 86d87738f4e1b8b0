"""A split in our format: rows from its Parquet file, the index from its members."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from indextables.errors import SplitCorruptedError
from indextables.predicates import Predicate
from indextables.split.base import RowNumbers, Split
from indextables.split.bundle import Bundle, read_range
from indextables.split.footer import SplitInfo
from indextables.split.index_reader import fetch_index
from indextables.split.mapping import DocMapping
from indextables.split.rows_reader import RowsReader
from indextables.split.table_columns import TableColumns
from indextables.storage import ObjectStore

_CHUNK_BYTES: Final = 8 * 1024**2


class OwnSplit(Split):
    """A split that `SplitWriter` wrote. `info` is what it says about itself."""

    def __init__(
        self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns, info: SplitInfo
    ) -> None:
        super().__init__(store, key, bundle, table)
        self.info = info
        self._rows = RowsReader(store, key, bundle, info, table)

    @property
    def footer_bytes(self) -> int:
        """The size of the footer and of the metadata of the rows."""
        return super().footer_bytes + self.info.rows_footer_bytes

    @property
    def num_records(self) -> int:
        """How many rows there are."""
        return self.info.num_records

    @property
    def mapping(self) -> DocMapping:
        """How the columns were indexed."""
        return self.info.mapping

    def verify(self) -> None:
        """Read everything, and raise SplitCorruptedError if a member is not as it was written."""
        if self.info.checksums.keys() != self._bundle.members.keys():
            raise SplitCorruptedError(
                f"{self._place}: the checksums are of other files than those in the split"
            )
        for name, member in self._bundle.members.items():
            digest = hashlib.sha256()
            for start in range(member.start, member.end, _CHUNK_BYTES):
                end = min(start + _CHUNK_BYTES, member.end)
                digest.update(read_range(self._store, self._key, start, end))
            if digest.hexdigest() != self.info.checksums[name]:
                raise SplitCorruptedError(
                    f"{self._place}: the checksum of {name} is wrong; the file is damaged"
                )
        if self._rows.metadata.num_rows != self.info.num_records:
            raise SplitCorruptedError(
                f"{self._place}: {self._rows.metadata.num_rows} rows, where the footer says {self.info.num_records}"
            )

    def _scan(self, names: list[str], bound: Predicate | None) -> Iterator[pa.RecordBatch]:
        return self._rows.scan(names, bound)

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        return self._rows.take(row_numbers, names)

    def _index_parts(self) -> list[str | bytes]:
        return ["own", *self._identity()]

    def _fill(self, directory: Path) -> None:
        fetch_index(self._store, self._key, self._bundle, self.info, directory)
