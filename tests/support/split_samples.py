"""Tables and splits that the tests of several modules use."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import tantivy

from indextables.config import Settings
from indextables.predicates import Predicate, bind
from indextables.schema import FieldIds, TableShape
from indextables.split.index_cache import IndexCache
from indextables.split.needs import EVERYTHING
from indextables.split.reader import open_split
from indextables.split.split import Split, SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.storage import ObjectStore

PREFIX = "spark.indextables.indexing."

ELEMENT = pa.field("element", pa.string())

EVERY_TYPE = pa.schema(
    [
        pa.field("boolean", pa.bool_()),
        pa.field("byte", pa.int8()),
        pa.field("short", pa.int16()),
        pa.field("integer", pa.int32()),
        pa.field("long", pa.int64()),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("small_decimal", pa.decimal128(10, 2)),
        pa.field("widest_long_decimal", pa.decimal128(18, 0)),
        pa.field("big_decimal", pa.decimal128(38, 10)),
        pa.field("string", pa.string()),
        pa.field("text", pa.string()),
        pa.field("json_text", pa.string()),
        pa.field("ip", pa.string()),
        pa.field("binary", pa.binary()),
        pa.field("date", pa.date32()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestamp_ntz", pa.timestamp("us")),
        pa.field(
            "struct",
            pa.struct(
                [
                    pa.field("name", pa.string()),
                    pa.field("when", pa.timestamp("us", tz="UTC")),
                    pa.field("price", pa.decimal128(12, 3)),
                    pa.field("raw", pa.binary()),
                    pa.field("inner", pa.struct([pa.field("day", pa.date32()), pa.field("x", pa.float64())])),
                ]
            ),
        ),
        pa.field("array", pa.list_(ELEMENT)),
        pa.field("matrix", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int64()))))),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.int64()))),
        pa.field("map_by_number", pa.map_(pa.int32(), pa.field("value", pa.string()))),
        pa.field(
            "map_by_struct",
            pa.map_(pa.struct([pa.field("k", pa.string())]), pa.field("value", pa.string())),
        ),
        pa.field("void", pa.null()),
    ]
)

EVERY_TYPE_OPTIONS = {
    PREFIX + "typemap.text": "text",
    PREFIX + "typemap.json_text": "json",
    PREFIX + "typemap.ip": "ip",
}


def ordinary_row() -> dict[str, object]:
    """A row of EVERY_TYPE with an ordinary value in each column."""
    return {
        "boolean": True,
        "byte": 7,
        "short": -300,
        "integer": 70_000,
        "long": 5_000_000_000,
        "float": 1.5,
        "double": 0.1,
        "small_decimal": Decimal("-12.50"),
        "widest_long_decimal": Decimal(123456789012345678),
        "big_decimal": Decimal("1234567890123456789012345678.0123456789"),
        "string": "exact value",
        "text": "the quick brown fox",
        "json_text": '{"user": {"name": "ada", "age": 36}}',
        "ip": "10.1.2.3",
        "binary": b"\x00\x01\xff",
        "date": date(2024, 2, 29),
        "timestamp": datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
        "timestamp_ntz": datetime(2024, 2, 29, 12, 30, 15, 123456),
        "struct": {
            "name": "grace",
            "when": datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            "price": Decimal("9.990"),
            "raw": b"\xfe",
            "inner": {"day": date(1999, 12, 31), "x": 2.5},
        },
        "array": ["red", None, "green blue"],
        "matrix": [[1, 2], [], None, [3]],
        "map": [("a", 1), ("b", None)],
        "map_by_number": [(1, "one"), (2, "two")],
        "map_by_struct": [({"k": "x"}, "y")],
        "void": None,
    }


def null_row() -> dict[str, object]:
    """A row of EVERY_TYPE with all nulls."""
    return dict.fromkeys(EVERY_TYPE.names)


def write_splits(
    store: ObjectStore,
    table: pa.Table,
    options: dict[str, str] | None = None,
    partition_columns: tuple[str, ...] = (),
    writer_options: WriterOptions | None = None,
    field_ids: FieldIds = (),
) -> tuple[SplitFile, ...]:
    """Write a table through the real writer."""
    shape = TableShape(table.schema, partition_columns, field_ids)
    writer = SplitWriter(store, shape, Settings.resolve(options or {}), writer_options)
    with writer:
        writer.write(table)
        return writer.commit()


def write_split(store: ObjectStore, table: pa.Table, options: dict[str, str] | None = None) -> SplitFile:
    """Write a table as one split."""
    (file,) = write_splits(store, table, options)
    return file


def opened(store: ObjectStore, file: SplitFile, **arguments: object) -> Split:
    """Open a split with the offsets that its writer reported."""
    return open_split(
        store,
        file.path,
        file.size,
        file.footer_start_offset,
        file.footer_end_offset,
        **arguments,  # type: ignore[arg-type]
    )


def parsed(split: Split, text: str) -> tantivy.Query:
    """Parse a query in Tantivy's own language for the index of a split."""
    index = tantivy.Index(split.mapping.tantivy_schema())
    split.mapping.register_tokenizers(index)
    return index.parse_query(text)


def read_all(
    split: Split, columns: Sequence[str] | None = None, predicate: Predicate | None = None
) -> pa.Table:
    """Return the rows of a scan as one table."""
    batches = list(split.scan(columns, None if predicate is None else bind(predicate, split.schema)))
    return pa.Table.from_batches(batches, schema=batches[0].schema if batches else split.schema)


def unpacked_index(store: ObjectStore, split: Split, directory: Path) -> tantivy.Index:
    """Unpack the index of a split with nothing but the layout, and open it with plain Tantivy."""
    bundle = split._bundle
    chunk = 0
    place = bundle.index_start
    for name, member in bundle.members.items():
        data = b""
        while len(data) < member.size:
            stored = store.get_range(split.path, place, place + int(bundle.chunks.sizes[chunk]))
            length = min(16384, member.size - len(data))
            data += stored if len(stored) == length else pa.decompress(stored, length, "zstd", asbytes=True)
            place += len(stored)
            chunk += 1
        (directory / name).write_bytes(data)
    return tantivy.Index.open(str(directory))


def searcher_of(split: Split, cache: IndexCache) -> tantivy.Searcher:
    """Return a searcher of the whole index of a split."""
    return split.search_index(cache, EVERYTHING, lambda searcher: searcher)
