"""Splits written on the JVM: the tables of the reference implementation, and every type."""

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import tantivy

from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from indextables.predicates import col
from indextables.schema import TableShape, from_spark_json
from indextables.split.doc_mapping import ROW_FIELD, FieldKind
from indextables.split.index_builder import index_files
from indextables.split.index_cache import IndexCache
from indextables.split.jvm_bundle import Member
from indextables.split.reader import open_split
from indextables.storage import open_store
from support.faults import FaultStore
from support.jvm_bundles import encode_footer, encode_manifest
from support.split_samples import parsed, read_all, searcher_of

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
EXPECTED = FIXTURES / "expected.json"

NO_TABLES = pytest.mark.skip(reason="the reference tables are not at ../shared/fixtures")
TABLES = (
    sorted(json.loads(EXPECTED.read_text())) if EXPECTED.is_file() else [pytest.param("", marks=NO_TABLES)]
)


def table_metadata(root: Path) -> dict:
    data = (root / "_transaction_log" / f"{0:020}.json").read_bytes()
    lines = (gzip.decompress(data[2:]) if data[:2] == b"\x01\x01" else data).splitlines()
    return next(action["metaData"] for action in map(json.loads, lines) if "metaData" in action)


def splits_of(name: str):
    """The live splits of a reference table, and its expected content."""
    root = FIXTURES / name
    expected = json.loads(EXPECTED.read_text())[name]
    metadata = table_metadata(root)
    schema = from_spark_json(metadata["schemaString"])
    shape = TableShape(schema, tuple(metadata["partitionColumns"]))
    store = open_store(root)
    splits = []
    for path in expected["paths"]:
        values = dict(part.split("=") for part in path.split("/")[:-1])
        splits.append(open_split(store, path, shape=shape, partition_values=values))
    return splits, expected


@pytest.mark.parametrize("name", TABLES)
def test_reference_tables_read_like_an_independent_reader(name):
    splits, expected = splits_of(name)
    rows = pa.concat_tables(read_all(split) for split in splits)
    assert rows.schema.names == expected["columns"]
    assert rows.num_rows == expected["rows"] == sum(split.num_records for split in splits)
    assert sum(rows.column("id").to_pylist()) == expected["idSum"]
    assert not any(column.null_count for column in rows.columns)
    for split in splits:
        split.verify()


@pytest.mark.parametrize("name", TABLES)
def test_reference_splits_are_searched_after_indexing_them_again(name, tmp_path):
    splits, _ = splits_of(name)
    cache = IndexCache(tmp_path, 10**9)
    split = splits[0]
    rows = read_all(split)
    searcher = searcher_of(split, cache)
    for number, text in enumerate(rows.column(rows.schema.get_field_index("id")).to_pylist()):
        hits = searcher.search(parsed(split, f"id:{text}")).hits
        (row,) = searcher.fast_field_values(ROW_FIELD, [address for _, address in hits])
        assert row == number
        assert split.take([row]).equals(rows.slice(number, 1))
    entries = cache.entries()
    searcher_of(split, cache)
    assert [entry.path for entry in cache.entries()] == [entry.path for entry in entries]


def test_predicates_and_projections_apply_to_jvm_splits(foreign):
    split = foreign(STORED_FIELDS, [FULL, {"text": "other", "i64": 5}])
    found = read_all(split, ["text"], col("i64") == 5)
    assert found.to_pylist() == [{"text": "other"}]
    assert [batch.num_rows for batch in split.scan([])] == [2]


# How a JVM writer may store a column of each type: the kind of field, and the value.
STORED_FIELDS = {
    "text": "text",
    "i64": "integer",
    "f64": "float",
    "bool": "boolean",
    "moment": "date",
    "day": "date",
    "day_number": "integer",
    "micros": "integer",
    "money": "float",
    "digits": "text",
    "bytes": "bytes",
    "ip": "ip_addr",
    "person": "json",
    "tags": "json",
    "scores": "json",
    "document": "json",
}
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("i64", pa.int32()),
        ("f64", pa.float32()),
        ("bool", pa.bool_()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("day_number", pa.date32()),
        ("micros", pa.timestamp("us")),
        ("money", pa.decimal128(10, 2)),
        ("digits", pa.decimal128(38, 5)),
        ("bytes", pa.binary()),
        ("ip", pa.string()),
        ("person", pa.struct([("name", pa.string()), ("born", pa.date32()), ("at", pa.string())])),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("scores", pa.map_(pa.string(), pa.float64())),
        ("document", pa.string()),
        ("added_since", pa.int64()),
    ]
)
FULL = {
    "text": "hello",
    "i64": -7,
    "f64": 2.5,
    "bool": True,
    "moment": "2024-02-29T12:30:15.123456Z",
    "day": "2024-02-29T00:00:00Z",
    "day_number": 19782,
    "micros": 1709209815123456,
    "money": 12.1,
    "digits": "123456789012345678901234567890.12345",
    "bytes": "AAH/",
    "ip": "10.0.0.1",
    "person": {"name": "ada", "born": "1815-12-10", "at": "2024-01-01T00:00:00Z"},
    "tags": {"_values": ["red", "blue"]},
    "scores": {"x": 1.5, "y": 2},
    "document": {"a": {"b": 1}},
}


@pytest.fixture
def foreign(tmp_path):
    """Writes splits in the JVM layout, with plain tantivy, and opens them."""
    store = open_store(tmp_path / "table")

    def make(fields, documents, *, stored=tuple(STORED_FIELDS), segments=1, deleted=None, schema=SCHEMA):
        builder = tantivy.SchemaBuilder()
        for name, kind in fields.items():
            indexed = {} if kind in ("text", "json") else {"indexed": True}
            tokenizer = {"tokenizer_name": "raw"} if kind == "text" else {}
            fast = {"fast": kind in ("integer", "float", "boolean")}
            getattr(builder, f"add_{kind}_field")(name, stored=name in stored, **indexed, **fast, **tokenizer)
        directory = tmp_path / "made"
        directory.mkdir()
        index = tantivy.Index(builder.build(), str(directory))
        writer = index.writer(15_000_000, 1)
        for start in range(segments):
            for document in documents[start::segments]:
                writer.add_json(json.dumps(document))
            writer.commit()
        if deleted is not None:
            writer.delete_documents_by_query(index.parse_query(deleted))
            writer.commit()
        writer.wait_merging_threads()
        places, data = {}, b""
        for path in [*index_files(directory), *directory.glob("*.del")]:
            if path.name not in places:
                content = path.read_bytes()
                places[path.name] = Member(len(data), len(data) + len(content))
                data += content
        store.put("foreign.split", data + encode_footer(encode_manifest(places), b"\x32\xfc\x75\x98 theirs"))
        return open_split(store, "foreign.split", shape=TableShape(schema))

    return make


def test_every_type_of_stored_documents_is_read_in_the_tables_types(foreign):
    rows = read_all(foreign(STORED_FIELDS, [FULL, {}]))
    assert rows.schema.equals(SCHEMA)
    assert rows.to_pylist() == [
        {
            "text": "hello",
            "i64": -7,
            "f64": 2.5,
            "bool": True,
            "moment": datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
            "day": date(2024, 2, 29),
            "day_number": date(2024, 2, 29),
            "micros": datetime(2024, 2, 29, 12, 30, 15, 123456),
            "money": Decimal("12.10"),
            "digits": Decimal("123456789012345678901234567890.12345"),
            "bytes": b"\x00\x01\xff",
            "ip": "10.0.0.1",
            "person": {"name": "ada", "born": date(1815, 12, 10), "at": "2024-01-01T00:00:00Z"},
            "tags": ["red", "blue"],
            "scores": [("x", 1.5), ("y", 2.0)],
            "document": '{"a":{"b":1}}',
            "added_since": None,
        },
        dict.fromkeys(SCHEMA.names),
    ]


def test_a_jvm_split_is_indexed_again_by_the_types_of_its_fields(foreign, tmp_path):
    split = foreign(STORED_FIELDS, [FULL, {"text": "other"}])
    kinds = {field.name: field.kind for field in split.mapping}
    assert kinds["text"] is FieldKind.STRING
    assert kinds["ip"] is FieldKind.IP
    assert kinds["document"] is FieldKind.JSON
    searcher = searcher_of(split, IndexCache(tmp_path / "cache", 10**9))
    for query in (
        "text:hello",
        "ip:10.0.0.1",
        "document.a.b:1",
        "person.name:ada",
        "tags._values:red",
        "bool:true",
    ):
        assert searcher.search(parsed(split, query)).count == 1, query


def test_several_segments_and_deleted_documents_are_read_correctly(foreign):
    documents = [{"i64": i, "text": f"t{i}"} for i in range(10)]
    split = foreign(STORED_FIELDS, documents, segments=3, deleted="i64:4")
    rows = read_all(split, ["i64"]).column(0).to_pylist()
    assert sorted(rows) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert split.num_records == 9
    assert split.take([8, 0], ["i64"]).column(0).to_pylist() == [rows[8], rows[0]]


def test_columns_that_are_not_stored_come_from_their_fast_fields(foreign):
    fields = {"i64": "integer", "f64": "float", "bool": "boolean", "text": "text"}
    schema = pa.schema(
        [("i64", pa.int64()), ("f64", pa.float64()), ("bool", pa.bool_()), ("text", pa.string())]
    )
    full = {"i64": 1, "f64": 0.5, "bool": True, "text": "x"}
    split = foreign(fields, [full, {"text": "y"}], stored=("text",), schema=schema)
    assert read_all(split).to_pylist() == [full, {"i64": None, "f64": None, "bool": None, "text": "y"}]


def test_unreadable_columns_are_reported(foreign):
    fields = {"i64": "integer", "text": "text", "ip": "ip_addr"}
    schema = pa.schema(
        [("i64", pa.int64()), ("text", pa.string()), ("ip", pa.string()), ("since", pa.int64())]
    )
    split = foreign(fields, [{"i64": 1, "text": "x", "ip": "10.0.0.1"}], stored=("text",), schema=schema)
    assert split.unreadable_columns == ("ip",)


def test_rows_of_a_jvm_split_are_fetched_once(foreign, tmp_path):
    foreign(STORED_FIELDS, [FULL, {"text": "other"}])
    counting = FaultStore(open_store(tmp_path / "table"))
    split = open_split(counting, "foreign.split", shape=TableShape(SCHEMA))
    read_all(split)
    before = len(counting.calls)
    assert split.take([1, 0], ["text"]).column(0).to_pylist() == ["other", "hello"]
    assert read_all(split).num_rows == 2
    assert len(counting.calls) == before


def test_a_split_without_stored_documents_says_where_its_rows_are(foreign):
    with pytest.raises(UnsupportedSplitError, match="no stored documents"):
        read_all(foreign(STORED_FIELDS, [FULL], stored=()))


def test_a_jvm_split_needs_the_tables_schema(foreign, tmp_path):
    foreign(STORED_FIELDS, [FULL])
    with pytest.raises(UnsupportedSplitError, match="schema"):
        open_split(open_store(tmp_path / "table"), "foreign.split")


def test_values_that_do_not_fit_the_schema_are_an_error_with_the_column(foreign):
    schema = pa.schema([("text", pa.int64())])
    with pytest.raises(SplitCorruptedError, match="'text'"):
        read_all(foreign({"text": "text"}, [{"text": "not a number"}], schema=schema))


@pytest.mark.skipif(not EXPECTED.is_file(), reason="the reference tables are not at ../shared/fixtures")
def test_damaged_reference_splits_are_typed_errors(tmp_path):
    splits, _ = splits_of(TABLES[0])
    data = (FIXTURES / TABLES[0] / splits[0].path).read_bytes()
    store = open_store(tmp_path)
    outcomes = set()
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        store.put("x.split", bytes(changed))
        try:
            read_all(open_split(store, "x.split", shape=TableShape(splits[0].schema)))
            outcomes.add("read")
        except (SplitCorruptedError, UnsupportedSplitError):
            outcomes.add("refused")
    # Any other error would have ended the loop.
    assert "refused" in outcomes
