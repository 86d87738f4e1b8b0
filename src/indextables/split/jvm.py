"""Splits written by IndexTables on the JVM: Tantivy indexes whose stored documents are the rows.

Their term dictionaries have a format that this release of Tantivy does not read, so the rows are indexed again before
a search.
"""

import base64
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import tantivy

from indextables._caching import lazy_property
from indextables.errors import InvalidOptionError, SplitCorruptedError, SplitWriteError, UnsupportedSplitError
from indextables.predicates import BoundPredicate
from indextables.schema import TableShape, to_spark_json
from indextables.split.cold_search import CachedIndex, HasRoom, Warmed, search_complete, warm_complete
from indextables.split.deleted_rows import DeletedRows
from indextables.split.doc_mapping import (
    ARRAY_KEY,
    DEFAULT,
    RAW,
    DocMapping,
    FieldKind,
    FieldMapping,
    check_tokenizer,
    default_record,
    default_token_bytes,
)
from indextables.split.doc_mapping_settings import is_wrapped, kind_of_type
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_files import META_FILE, translating
from indextables.split.index_opener import open_index
from indextables.split.jvm_bundle import JvmBundle, fetch_members, read_member
from indextables.split.needs import Needs
from indextables.split.split import (
    NumberedRows,
    RowNumbers,
    Split,
    TableColumns,
    needed_columns,
    numbered,
)
from indextables.storage import ObjectStore

_Convert: TypeAlias = Callable[[Any], Any]
T = TypeVar("T")

_BATCH_ROWS: Final = 8192
_HEAP_BYTES: Final = 128_000_000

# The types whose values Tantivy returns from fast fields.
_FAST_TYPES: Final = frozenset({"i64", "u64", "f64", "bool"})


class JvmSplit(Split):
    """A split written by IndexTables on the JVM."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        bundle: JvmBundle,
        table: TableColumns,
        deleted: DeletedRows | None = None,
    ) -> None:
        super().__init__(store, key, table, deleted)
        self._bundle = bundle

    @property
    def memory_bytes(self) -> int:
        return len(self._bundle.manifest) + len(self._bundle.hot_cache)

    @property
    def num_records(self) -> int:
        return self._meta.num_docs

    @lazy_property
    def mapping(self) -> DocMapping:
        return jvm_mapping(self._meta, self._table.shape)

    @property
    def unreadable_columns(self) -> tuple[str, ...]:
        """The columns that are neither stored nor readable from a fast field."""
        found = {name: self._field_of(name) for name in self._table.stored(self._table.shape.schema.names)}
        return tuple(
            name
            for name, field in found.items()
            if field is not None and not field.is_stored and not _is_fast_only(field)
        )

    def verify(self) -> None:
        """Read all documents. JVM splits have no checksums, so only unreadable documents are detected."""
        count = sum(batch.num_rows for batch in self._scan(self._table.names(None), None, None))
        if count != self.num_records:
            raise SplitCorruptedError(
                f"{self._place}: the split has {count} documents, and meta.json says {self.num_records}"
            )

    def _scan(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[pa.RecordBatch]:
        for found in self._scan_numbered(names, bound, deleted):
            yield from found.rows.to_batches()

    def _scan_numbered(
        self, names: list[str], bound: BoundPredicate | None, deleted: DeletedRows | None
    ) -> Iterator[NumberedRows]:
        needed = needed_columns(names, bound)
        searcher, addresses = self._documents
        for start in range(0, len(addresses), _BATCH_ROWS):
            rows = self._rows(searcher, addresses[start : start + _BATCH_ROWS], needed)
            found = numbered(rows, np.arange(start, start + rows.num_rows), bound, deleted)
            if len(found.numbers):
                yield NumberedRows(found.numbers, found.rows.select(names))

    def _take(self, row_numbers: RowNumbers, names: list[str]) -> pa.Table:
        numbers = np.asarray(row_numbers, np.int64).tolist()
        if numbers and not 0 <= min(numbers) <= max(numbers) < self.num_records:
            raise SplitCorruptedError(
                f"{self._place}: row {max(numbers)} is out of range: the split has {self.num_records} rows"
            )
        searcher, addresses = self._documents
        return self._rows(searcher, [addresses[number] for number in numbers], names)

    def _index_parts(self) -> list[str | bytes]:
        bundle = self._bundle
        return [
            "jvm",
            *self._identity(),
            str(bundle.size),
            bundle.manifest,
            bundle.hot_cache,
            self.mapping.to_json(),
            to_spark_json(self._table.shape.schema),
        ]

    def _search(self, cached: CachedIndex, needs: Needs, function: Callable[[tantivy.Searcher], T]) -> T:
        del needs  # the index is built whole
        return search_complete(cached, self._fill, function)

    def _warm(self, cached: CachedIndex, needs: Needs, has_room: HasRoom) -> Warmed:
        del needs  # the index is built whole
        return warm_complete(cached, self._fill, self._bundle.size, has_room)

    def _fill(self, directory: Path) -> None:
        """Index the rows into an empty directory."""
        builder = IndexBuilder(directory, self.mapping, _HEAP_BYTES, is_sorted=True)
        try:
            for batch in self._scan([field.name for field in self.mapping], None, None):
                builder.add(batch)
            builder.finish()
        except BaseException:
            builder.abort()
            raise

    @lazy_property
    def _meta(self) -> "IndexMeta":
        data = read_member(self._store, self._key, self._bundle, META_FILE)
        meta = decode_meta(data, self._place)
        if meta.num_docs and not any(field.is_stored for field in meta.fields.values()):
            raise UnsupportedSplitError(
                f"{self._place}: the split has no stored documents; it is a companion split, whose rows are in "
                f"files of another table format"
            )
        return meta

    @lazy_property
    def _documents(self) -> tuple[tantivy.Searcher, Sequence[tantivy.DocAddress]]:
        """A searcher over the split's own index, and the addresses of its documents.

        The searcher keeps the files open; the directory is removed at once.
        """
        meta = self._meta
        with _scratch() as directory:
            fetch_members(self._store, self._key, self._bundle, self._bundle.members, directory)
            searcher = open_index(directory, None, self._place)
            with translating(f"{self._place}: the index cannot be read", SplitCorruptedError):
                return searcher, _addresses(searcher, meta)

    def _rows(
        self, searcher: tantivy.Searcher, addresses: Sequence[tantivy.DocAddress], names: Sequence[str]
    ) -> pa.Table:
        found = {name: field for name in self._table.stored(names) if (field := self._field_of(name))}
        with translating(f"{self._place}: the stored documents cannot be read", SplitCorruptedError):
            documents = [searcher.doc(address).to_dict() for address in addresses]
            values = [self._values(searcher, addresses, documents, field) for field in found.values()]
        fields = [self._stored_field(name) for name in found]
        arrays = [stored_column(*each, self._place) for each in zip(values, fields, strict=True)]
        counted = pa.table({"": pa.nulls(len(addresses))})
        rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields)) if fields else counted
        return self._table.assemble(rows, names, self._table.names_in_file(rows.schema, names))

    def _stored_field(self, name: str) -> pa.Field:
        """Return a column as the documents have it: with its stored name, and with the type that it had first."""
        shape = self._table.shape
        field = shape.stored.schema.field(shape.stored_names[name])
        return field.with_type(shape.widened.get(name, field.type))

    def _field_of(self, name: str) -> "IndexedField | None":
        return self._meta.find(self._table.shape.stored_names[name])

    def _values(
        self,
        searcher: tantivy.Searcher,
        addresses: Sequence[tantivy.DocAddress],
        documents: Sequence[dict[str, list[Any]]],
        field: "IndexedField",
    ) -> list[Any]:
        """Return the values of one column, from the documents or, if it is not stored, from its fast field."""
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
        raise SplitWriteError(f"cannot unpack a split on local disk: {error}") from error


def _is_fast_only(field: "IndexedField") -> bool:
    return not field.is_stored and field.is_fast and field.type in _FAST_TYPES


def _addresses(searcher: tantivy.Searcher, meta: "IndexMeta") -> Sequence[tantivy.DocAddress]:
    """Return the addresses of the documents, in order."""
    if len(meta.segment_sizes) == 1 and not meta.deleted_docs:
        return [tantivy.DocAddress(0, doc) for doc in range(meta.num_docs)]
    hits = searcher.search(tantivy.Query.all_query(), limit=max(searcher.num_docs, 1), count=False).hits
    return sorted((address for _, address in hits), key=lambda address: (address.segment_ord, address.doc))


# The Tantivy index of a JVM split, as its meta.json describes it.


class IndexedField(msgspec.Struct, frozen=True):
    """A field of the index that the JVM writer built."""

    name: str
    type: str
    tokenizer: str | None
    is_stored: bool
    is_fast: bool


class IndexMeta(msgspec.Struct, frozen=True):
    """A decoded meta.json: the fields, and the size of each segment."""

    fields: Mapping[str, IndexedField]
    segment_sizes: tuple[int, ...]
    deleted_docs: int

    @property
    def num_docs(self) -> int:
        """The number of documents, without deleted ones."""
        return sum(self.segment_sizes) - self.deleted_docs

    def find(self, name: str) -> IndexedField | None:
        """Return the field of a column; an exact match wins over one that ignores case."""
        lowered = name.lower()
        near = (field for key, field in self.fields.items() if key.lower() == lowered)
        return self.fields.get(name) or next(near, None)


def decode_meta(data: bytes, place: str) -> IndexMeta:
    """Decode a meta.json. Raises SplitCorruptedError if it is invalid."""
    try:
        document = orjson.loads(data)
        fields = {entry["name"]: _field(entry) for entry in document["schema"]}
        sizes = tuple(int(segment["max_doc"]) for segment in document["segments"])
        deletes = (segment.get("deletes") or {} for segment in document["segments"])
        deleted = sum(int(each.get("num_deleted_docs", 0)) for each in deletes)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SplitCorruptedError(f"{place}: meta.json cannot be read: {error!r}") from error
    return IndexMeta(fields, sizes, deleted)


def jvm_mapping(meta: IndexMeta, shape: TableShape) -> DocMapping:
    """Return the mapping to index the rows again: the JVM writer's, as far as the column types allow."""
    stored = shape.stored_names
    return DocMapping(tuple(_mapped(column, meta.find(stored[column.name])) for column in shape.data_schema))


def _field(entry: dict[str, Any]) -> IndexedField:
    options = entry.get("options") or {}
    indexing = options.get("indexing") or {}
    return IndexedField(
        str(entry["name"]),
        str(entry["type"]),
        indexing.get("tokenizer"),
        options.get("stored") is True,
        bool(options.get("fast")),
    )


def _mapped(column: pa.Field, field: IndexedField | None) -> FieldMapping:
    kind = kind_of_type(column)
    tokenizer = _tokenizer(field, kind)
    if field is not None and pa.types.is_string(column.type):
        if field.type == "ip_addr":
            kind = FieldKind.IP
        elif field.type == "json_object":
            kind, tokenizer = FieldKind.JSON, DEFAULT
        elif tokenizer != RAW:
            kind = FieldKind.TEXT
    return FieldMapping(
        column.name,
        kind,
        tokenizer=tokenizer,
        record=default_record(kind),
        max_token_bytes=default_token_bytes(kind),
        fast=kind not in (FieldKind.TEXT, FieldKind.BYTES, FieldKind.NOTHING),
        is_array=kind is FieldKind.JSON and is_wrapped(column.type),
        scale=column.type.scale if pa.types.is_decimal(column.type) else 0,
    )


def _tokenizer(field: IndexedField | None, kind: FieldKind) -> str:
    if kind is FieldKind.JSON:
        return DEFAULT
    if kind is not FieldKind.STRING or field is None or field.tokenizer is None:
        return RAW
    try:
        return check_tokenizer(field.tokenizer)
    except InvalidOptionError:
        # An unknown tokenizer: words are the best guess.
        return DEFAULT


# Stored values, as Tantivy returns them, in the table's types. JVM writers have stored dates and timestamps as dates or
# as numbers (days, microseconds), decimals as floats or text, and nested values as JSON objects, with arrays under
# their own key. All of these are read.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DECIMALS = Context(prec=38, rounding=ROUND_HALF_EVEN)


def stored_column(values: list[Any], field: pa.Field, place: str) -> pa.Array:
    """Return stored values as a column. Raises SplitCorruptedError for a value that does not fit the type."""
    convert = _or_null(_converter(field.type))
    try:
        return pa.array([convert(value) for value in values], field.type)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        raise SplitCorruptedError(
            f"{place}: column {field.name!r} has stored values that are not {field.type}: {error!r}"
        ) from error


def plain_address(value: str) -> str:
    """Return the usual form of an IP address: Tantivy stores IPv4 addresses as IPv6 ones."""
    address = ip_address(value)
    return str(address.ipv4_mapped or address) if isinstance(address, IPv6Address) else value


def _converter(data_type: pa.DataType) -> _Convert:
    if pa.types.is_struct(data_type):
        return _struct([(member.name, _or_null(_converter(member.type))) for member in data_type])
    if pa.types.is_list(data_type):
        return _list(_or_null(_converter(data_type.value_type)))
    if pa.types.is_map(data_type):
        return _map(_converter(data_type.key_type), _or_null(_converter(data_type.item_type)))
    if pa.types.is_decimal(data_type):
        return _decimal(data_type.scale)
    for is_type, convert in _ATOMIC:
        if is_type(data_type):
            return convert
    return lambda value: value


def _or_null(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _struct(members: list[tuple[str, _Convert]]) -> _Convert:
    def convert(value: Any) -> dict[str, Any]:
        document = _document(value)
        return {name: convert_member(document.get(name)) for name, convert_member in members}

    return convert


def _list(convert_element: _Convert) -> _Convert:
    def convert(value: Any) -> list[Any]:
        document = _document(value)
        elements = document.get(ARRAY_KEY, []) if isinstance(document, dict) else document
        return [convert_element(element) for element in elements]

    return convert


def _map(convert_key: _Convert, convert_item: _Convert) -> _Convert:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        document = _document(value)
        if isinstance(document, dict) and ARRAY_KEY not in document:
            return [(convert_key(key), convert_item(item)) for key, item in document.items()]
        entries = document[ARRAY_KEY] if isinstance(document, dict) else document
        return [(convert_key(entry["key"]), convert_item(entry["value"])) for entry in entries]

    return convert


def _document(value: Any) -> Any:
    return orjson.loads(value) if isinstance(value, str) else value


def _boolean(value: Any) -> bool:
    return value == "true" if isinstance(value, str) else bool(value)


def _integer(value: Any) -> int:
    number = int(value)
    if number != value and not isinstance(value, str):
        raise ValueError("not a whole number")
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # Tantivy parses text in a JSON object that looks like a timestamp.
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return orjson.dumps(value, option=orjson.OPT_UTC_Z).decode()


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def _decimal(scale: int) -> _Convert:
    unit = Decimal(1).scaleb(-scale)
    return lambda value: Decimal(str(value)).quantize(unit, context=_DECIMALS)


def _day(value: Any) -> int:
    if isinstance(value, datetime):
        return (value.date() - _EPOCH_DAY).days
    if isinstance(value, str):
        return (date.fromisoformat(value[:10]) - _EPOCH_DAY).days
    return (value - _EPOCH_DAY).days if isinstance(value, date) else int(value)


def _moment(value: Any) -> int:
    if isinstance(value, str):
        return _moment(datetime.fromisoformat(value))
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    return int(value)


_ATOMIC: tuple[tuple[Callable[[pa.DataType], bool], _Convert], ...] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, float),
    (pa.types.is_string, _text),
    (pa.types.is_binary, _bytes),
    (pa.types.is_date32, _day),
    (pa.types.is_timestamp, _moment),
)
