"""A split written on the JVM: its stored documents are the rows, and are indexed again to be searched.

Such a split is a Tantivy index with stored documents, whose term dictionaries are of another kind than those
that this release of Tantivy reads.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import tantivy

from indextables._caching import lazy_property
from indextables.errors import SplitCorruptedError, SplitWriteError, UnsupportedSplitError
from indextables.predicates import Predicate
from indextables.schema import to_spark_json
from indextables.split.base import RowNumbers, Split
from indextables.split.bundle import read_member
from indextables.split.index_builder import META_FILE, IndexBuilder
from indextables.split.index_reader import fetch_members
from indextables.split.jvm_index import IndexedField, IndexMeta, decode_meta, foreign_mapping
from indextables.split.mapping import DocMapping
from indextables.split.stored_values import plain_address, stored_column
from indextables.split.table_columns import matching, needed_columns
from indextables.split.tantivy_errors import translating

_BATCH_ROWS: Final = 8192
_HEAP_BYTES: Final = 128_000_000

# What Tantivy returns the values of from its fast fields.
_FAST_TYPES: Final = frozenset({"i64", "u64", "f64", "bool"})


class JvmSplit(Split):
    """A split that IndexTables for Spark on the JVM wrote."""

    @property
    def num_records(self) -> int:
        """How many rows there are."""
        return self._meta.num_docs

    @lazy_property
    def mapping(self) -> DocMapping:
        """How the rows are indexed again."""
        return foreign_mapping(self._meta, self._table.schema, self._table.partition_columns)

    @property
    def unreadable_columns(self) -> tuple[str, ...]:
        """The columns that are neither stored nor held by column in a type that can be read."""
        found = {name: self._meta.find(name) for name in self._table.stored(self._table.schema.names)}
        return tuple(
            name
            for name, field in found.items()
            if field is not None and not field.is_stored and not _is_fast_only(field)
        )

    def verify(self) -> None:
        """Read all documents. There are no checksums, so that only what cannot be read is found."""
        count = sum(batch.num_rows for batch in self.scan())
        if count != self.num_records:
            raise SplitCorruptedError(
                f"{self._place}: {count} documents, where meta.json says {self.num_records}"
            )

    def _scan(self, names: list[str], bound: Predicate | None) -> Iterator[pa.RecordBatch]:
        needed = needed_columns(names, bound)
        searcher, addresses = self._documents
        for start in range(0, len(addresses), _BATCH_ROWS):
            rows = self._rows(searcher, addresses[start : start + _BATCH_ROWS], needed)
            found = matching(rows, bound)
            if found.num_rows:
                yield from found.select(names).to_batches()

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        numbers = np.asarray(row_numbers, np.int64).tolist()
        if numbers and not 0 <= min(numbers) <= max(numbers) < self.num_records:
            raise SplitCorruptedError(
                f"{self._place}: row {max(numbers)} was asked for, and there are {self.num_records}"
            )
        searcher, addresses = self._documents
        return self._rows(searcher, [addresses[number] for number in numbers], names)

    def _index_parts(self) -> list[str | bytes]:
        return ["jvm", *self._identity(), self.mapping.to_json(), to_spark_json(self._table.schema)]

    def _fill(self, directory: Path) -> None:
        builder = IndexBuilder(directory, self.mapping, _HEAP_BYTES)
        try:
            for batch in self._scan([field.name for field in self.mapping], None):
                builder.add(batch)
            builder.finish()
        except BaseException:
            builder.abort()
            raise

    @lazy_property
    def _meta(self) -> IndexMeta:
        data = read_member(self._store, self._key, self._bundle, META_FILE)
        meta = decode_meta(data, self._place)
        if meta.num_docs and not any(field.is_stored for field in meta.fields.values()):
            raise UnsupportedSplitError(
                f"{self._place}: the split has no stored documents: it goes with files of another table format, "
                f"which is where its rows are"
            )
        return meta

    @lazy_property
    def _documents(self) -> tuple[tantivy.Searcher, Sequence[tantivy.DocAddress]]:
        """A searcher over the split's own index, and where its documents are.

        The files are open from then on, and go with this object; their names go at once.
        """
        meta = self._meta
        with _scratch() as directory:
            fetch_members(self._store, self._key, self._bundle, self._bundle.members, directory)
            with translating(f"{self._place}: the index cannot be opened", SplitCorruptedError):
                index = tantivy.Index.open(str(directory))
                index.config_reader("manual")
                index.reload()
                searcher = index.searcher()
                return searcher, _addresses(searcher, meta)

    def _rows(
        self, searcher: tantivy.Searcher, addresses: Sequence[tantivy.DocAddress], names: Sequence[str]
    ) -> pa.Table:
        stored = self._table.stored(names)
        with translating(f"{self._place}: the stored documents cannot be read", SplitCorruptedError):
            documents = [searcher.doc(address).to_dict() for address in addresses]
            values = {name: self._values(searcher, addresses, documents, name) for name in stored}
        fields = [self._table.schema.field(name) for name in stored]
        arrays = [stored_column(values[field.name], field, self._place) for field in fields]
        counted = pa.table({"": pa.nulls(len(addresses))})
        rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields)) if fields else counted
        return self._table.assemble(rows, names)

    def _values(
        self,
        searcher: tantivy.Searcher,
        addresses: Sequence[tantivy.DocAddress],
        documents: Sequence[dict[str, list[Any]]],
        name: str,
    ) -> list[Any]:
        """The values of one column, from the documents or, if it is not stored, from its fast field."""
        field = self._meta.find(name)
        if field is None:
            return [None] * len(documents)
        if _is_fast_only(field):
            return list(searcher.fast_field_values(field.name, list(addresses)))
        first = [(document.get(field.name) or [None])[0] for document in documents]
        if field.type == "ip_addr":
            return [None if value is None else plain_address(value) for value in first]
        return first


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="indextables-", ignore_cleanup_errors=True) as name:
            yield Path(name)
    except OSError as error:
        raise SplitWriteError(f"a split cannot be unpacked on local disk: {error}") from error


def _is_fast_only(field: IndexedField) -> bool:
    return not field.is_stored and field.is_fast and field.type in _FAST_TYPES


def _addresses(searcher: tantivy.Searcher, meta: IndexMeta) -> Sequence[tantivy.DocAddress]:
    """Where the documents are, in their order."""
    if len(meta.segment_sizes) == 1 and not meta.deleted_docs:
        return [tantivy.DocAddress(0, doc) for doc in range(meta.num_docs)]
    hits = searcher.search(tantivy.Query.all_query(), limit=max(searcher.num_docs, 1), count=False).hits
    return sorted((address for _, address in hits), key=lambda address: (address.segment_ord, address.doc))
