"""Opens splits, ours and those written on the JVM, and reads those in our format."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from indextables.predicates import BoundPredicate
from indextables.schema import check_partition_columns
from indextables.split.bundle import Bundle, SplitInfo, decode_info, is_ours, read_bundle, read_range
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_files import fetch_index
from indextables.split.rows_reader import RowsReader
from indextables.split.split import RowNumbers, Split, TableColumns
from indextables.storage import ObjectStore

_CHUNK_BYTES: Final = 8 * 1024**2


def open_split(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
    *,
    schema: pa.Schema | None = None,
    partition_columns: Sequence[str] = (),
    partition_values: Mapping[str, str | None] | None = None,
) -> Split:
    """Open a split, with one range request if the log has the footer's offsets, and two more otherwise.

    `schema`, `partition_columns` and `partition_values` come from the log; rows are returned in that schema. Without a
    schema, one of our splits is read as it was written, including its partition values.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError for a file that is damaged, truncated or
    not a split, and UnsupportedSplitError for a newer format or a JVM split without a schema.
    """
    bundle = read_bundle(store, key, size, footer_start, footer_end)
    place = f"{store.url}: {key}"
    info = decode_info(bundle, place) if is_ours(bundle) else None
    if schema is not None:
        names = check_partition_columns(schema, partition_columns)
        table = TableColumns(schema, names, dict(partition_values or {}))
    elif info is not None:
        table = TableColumns(info.schema, info.partition_columns, info.partition_values)
    else:
        raise UnsupportedSplitError(
            f"{place}: this split was written on the JVM; open it with the table's schema"
        )
    if info is not None:
        return OwnSplit(store, key, bundle, table, info)
    # Imported here because it needs the writer: it indexes the rows of the split again.
    from indextables.split.jvm import JvmSplit

    return JvmSplit(store, key, bundle, table)


class OwnSplit(Split):
    """A split that `SplitWriter` wrote; `info` is its own description."""

    def __init__(
        self, store: ObjectStore, key: str, bundle: Bundle, table: TableColumns, info: SplitInfo
    ) -> None:
        super().__init__(store, key, bundle, table)
        self.info = info
        self._rows = RowsReader(store, key, bundle, info, table)

    @property
    def footer_bytes(self) -> int:
        """The size of the split's footer and of the Parquet metadata."""
        return super().footer_bytes + self.info.rows_footer_bytes

    @property
    def num_records(self) -> int:
        return self.info.num_records

    @property
    def mapping(self) -> DocMapping:
        return self.info.mapping

    def verify(self) -> None:
        if self.info.checksums.keys() != self._bundle.members.keys():
            raise SplitCorruptedError(
                f"{self._place}: the footer's checksums do not cover the files of the split"
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
                f"{self._place}: the split has {self._rows.metadata.num_rows} rows, and its footer says "
                f"{self.info.num_records}"
            )

    def _scan(self, names: list[str], bound: BoundPredicate | None) -> Iterator[pa.RecordBatch]:
        return self._rows.scan(names, bound)

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        return self._rows.take(row_numbers, names)

    def _index_parts(self) -> list[str | bytes]:
        return ["own", *self._identity()]

    def _fill(self, directory: Path) -> None:
        fetch_index(self._store, self._key, self._bundle, self.info, directory)
