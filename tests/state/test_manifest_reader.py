"""Reading manifests of this package and of other writers."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from indextables.errors import InvalidOptionError, ManifestCorruptedError, StorageError
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.state import manifest_reader, manifest_writer
from indextables.state.avro import decode
from indextables.state.avro.container import Codec, Compression, parse_container
from indextables.state.avro.decode import decode_rows
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import write_manifest
from support import PATIENCE_SECONDS
from support.manifest_samples import (
    FULL_VALUES,
    REQUIRED_VALUES,
    avro_form,
    avro_schema,
    entries,
    fastavro_file,
    numbered_entries,
)

pytestmark = pytest.mark.usefixtures("each_decoder")

SPECIFIED = avro_schema(write_manifest(entries([REQUIRED_VALUES])))["fields"]


def record(fields):
    return {"type": "record", "name": "FileEntry", "namespace": "io.indextables.spark", "fields": fields}


def with_type(name, avro_type):
    return [
        {"name": field["name"], "type": avro_type if field["name"] == name else field["type"]}
        for field in SPECIFIED
    ]


def specified(row):
    return {field["name"]: row.get(field["name"]) for field in SPECIFIED}


def test_read_empty_manifest():
    table = read_manifest(fastavro_file(record(SPECIFIED), []), expected_entries=0)
    assert table.num_rows == 0
    assert table.schema.equals(FILE_ENTRY_SCHEMA)


def test_read_single_entry():
    table = read_manifest(fastavro_file(record(SPECIFIED), [specified(FULL_VALUES)]))
    assert table.num_rows == 1
    assert table.schema.equals(FILE_ENTRY_SCHEMA)
    assert table["path"].to_pylist() == [FULL_VALUES["path"]]


def test_read_multiple_entries_in_order():
    expected = numbered_entries(3000)
    rows = [specified(row) for row in avro_form(expected)]
    assert read_manifest(fastavro_file(record(SPECIFIED), rows), expected_entries=3000).equals(expected)


def test_read_all_specified_fields():
    (row,) = avro_form(read_manifest(fastavro_file(record(SPECIFIED), [specified(FULL_VALUES)])))
    assert specified(row) == specified(FULL_VALUES)
    assert len(specified(row)) == 18


def test_read_nullable_fields():
    (row,) = avro_form(read_manifest(fastavro_file(record(SPECIFIED), [specified(REQUIRED_VALUES)])))
    assert row == {**dict.fromkeys(FILE_ENTRY_SCHEMA.names), **REQUIRED_VALUES}


@pytest.mark.parametrize("values", [{}, {"date": "2024-01-01"}, {"a": "", "b": "null", "é/%": ".."}])
def test_read_partition_values(values):
    rows = [{**specified(REQUIRED_VALUES), "partitionValues": values}]
    table = read_manifest(fastavro_file(record(SPECIFIED), rows))
    assert dict(table["partitionValues"][0].as_py()) == values


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "null"])
def test_read_codecs_of_another_writer(codec):
    expected = numbered_entries(500)
    data = fastavro_file(record(SPECIFIED), [specified(row) for row in avro_form(expected)], codec)
    assert read_manifest(data, expected_entries=500).equals(expected)


def test_manifest_larger_than_one_group_is_read_whole(monkeypatch):
    monkeypatch.setattr(decode, "_GROUP_BYTES", 1 << 15)
    monkeypatch.setattr(manifest_writer, "BLOCK_ROWS", 100)
    expected = numbered_entries(2000)
    assert read_manifest(write_manifest(expected), expected_entries=2000).equals(expected)


@pytest.mark.parametrize("count", [1, 8190, 8191, 8192, 8193, 16_383, 16_384])
def test_every_count_around_the_size_of_a_batch(count):
    expected = pa.concat_tables([numbered_entries(1000)] * 17).slice(0, count)
    assert read_manifest(write_manifest(expected), expected_entries=count).equals(expected)


def test_parallel_reads():
    tables = [numbered_entries(count) for count in (1, 700, 2000, 30)]
    manifests = [write_manifest(table) for table in tables] * 3
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(read_manifest, manifests))
    assert all(found.equals(table) for found, table in zip(read, tables * 3, strict=True))


@pytest.mark.parametrize(
    ("column", "bound"), [("addedAtVersion", 3), ("addedAtTimestamp", 1_775_000_000_039)]
)
def test_filter_by_when_an_entry_was_added(column, bound):
    table = read_manifest(write_manifest(numbered_entries(100)))
    later = table.filter(pc.greater(table[column], bound))
    assert later["path"].to_pylist() == table["path"].to_pylist()[40:]


def test_projection_selects_columns_in_the_given_order():
    data = write_manifest(numbered_entries(4))
    table = read_manifest(data, columns=["size", "path", "tags"])
    assert table.column_names == ["size", "path", "tags"]
    assert table["size"].to_pylist() == [0, 1000, 2000, 3000]
    assert table["tags"].null_count == 4


def test_projection_of_an_unknown_column_is_refused():
    with pytest.raises(InvalidOptionError, match=r"m\.avro has no column 'sise'"):
        read_manifest(write_manifest(numbered_entries(1)), name="m.avro", columns=["sise"])


def test_old_schema_with_new_reader_takes_defaults():
    without = {"hasFooterOffsets", "dataChange", "stats", "uncompressedSizeBytes"}
    fields = [field for field in SPECIFIED if field["name"] not in without]
    rows = [{name: value for name, value in specified(FULL_VALUES).items() if name not in without}]
    (row,) = avro_form(read_manifest(fastavro_file(record(fields), rows)))
    assert {name: row[name] for name in without} == {
        "hasFooterOffsets": False,
        "dataChange": True,
        "stats": None,
        "uncompressedSizeBytes": None,
    }


@pytest.mark.parametrize(
    "name", ["path", "partitionValues", "size", "modificationTime", "addedAtVersion", "addedAtTimestamp"]
)
def test_schema_without_a_field_that_has_no_default_is_an_error(name):
    fields = [field for field in SPECIFIED if field["name"] != name]
    rows = [{key: value for key, value in specified(FULL_VALUES).items() if key != name}]
    with pytest.raises(ManifestCorruptedError, match=f"no field {name}"):
        read_manifest(fastavro_file(record(fields), rows))


def test_ids_of_the_other_specification_do_not_confuse_fields():
    """protocol.md gives docMappingRef the id 132, which is splitTags in avro-state-file.md: names decide."""
    other_ids = {"hasFooterOffsets": 122, "splitTags": 130, "numMergeOps": 131, "docMappingRef": 132}
    fields = [{**field, "field-id": other_ids.get(field["name"], field["field-id"])} for field in SPECIFIED]
    (row,) = avro_form(read_manifest(fastavro_file(record(fields), [specified(FULL_VALUES)])))
    assert specified(row) == specified(FULL_VALUES)


def renamed(field_id=110, keep_old=False):
    """The bytes of a manifest whose `stats` is called `statistics`."""
    fields, row = [], specified(FULL_VALUES)
    for field in SPECIFIED:
        if field["name"] != "stats":
            fields.append(field)
            continue
        fields += [field] if keep_old else []
        fields.append({**field, "name": "statistics", "field-id": field_id})
    row["statistics"] = row["stats"] if keep_old else row.pop("stats")
    return fastavro_file(record(fields), [row])


def test_a_renamed_field_is_found_by_its_id():
    table = read_manifest(renamed())
    assert table["stats"].to_pylist() == [FULL_VALUES["stats"]]
    assert "statistics" not in table.column_names


def test_a_field_with_our_name_wins_over_one_with_its_id():
    table = read_manifest(renamed(keep_old=True))
    assert table["stats"].to_pylist() == [FULL_VALUES["stats"]]
    assert table["statistics"].to_pylist() == [FULL_VALUES["stats"]]


def test_a_field_with_another_id_is_a_foreign_field():
    table = read_manifest(renamed(field_id=9110))
    assert table["stats"].to_pylist() == [None]
    assert table["statistics"].to_pylist() == [FULL_VALUES["stats"]]
    assert table.schema.field("statistics").metadata == {b"field-id": b"9110"}


@pytest.mark.parametrize(
    ("name", "avro_type", "value", "expected"),
    [
        ("size", "int", 7, 7),
        ("size", {"type": "long", "logicalType": "timestamp-millis"}, 7, 7),
        ("numMergeOps", ["null", "long"], 7, 7),
        ("stats", "string", "{}", "{}"),
        ("stats", ["string", "null"], "{}", "{}"),
        ("path", "bytes", "é.split".encode(), "é.split"),
        ("size", ["int", "long"], 2**40, 2**40),
        ("size", ["null", "int", "long"], 2**40, 2**40),
        ("docMappingRef", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ("minValues", ["null", {"type": "map", "values": ["null", "string"]}], {"a": "b"}, {"a": "b"}),
    ],
    ids=str,
)
def test_other_types_for_known_fields_are_converted(name, avro_type, value, expected):
    rows = [{**specified(REQUIRED_VALUES), name: value}]
    table = read_manifest(fastavro_file(record(with_type(name, avro_type)), rows))
    assert table.schema.field(name).equals(FILE_ENTRY_SCHEMA.field(name))
    assert avro_form(table)[0][name] == expected


@pytest.mark.parametrize(
    ("name", "avro_type", "value"),
    [
        ("numMergeOps", ["null", "long"], 2**40),
        ("size", "string", "big"),
        ("size", ["null", "long"], None),
        ("path", "bytes", b"\xff\xfe"),
        ("partitionValues", "string", "date=1"),
        ("size", ["string", "long"], "big"),
    ],
    ids=str,
)
def test_values_that_do_not_fit_a_known_field_are_an_error(name, avro_type, value):
    rows = [{**specified(REQUIRED_VALUES), name: value}]
    with pytest.raises(ManifestCorruptedError, match=f"m.avro .*{name}"):
        read_manifest(fastavro_file(record(with_type(name, avro_type)), rows), name="m.avro")


def test_both_decoders_yield_the_same_table():
    table = entries([FULL_VALUES, REQUIRED_VALUES] * 20)
    container = parse_container(write_manifest(table))
    known_types = {field.name: field.type for field in FILE_ENTRY_SCHEMA}
    fast, slow = decode.decode_records(container, known_types), decode_rows(container, known_types)
    assert fast.equals(slow)
    assert fast.schema.equals(slow.schema, check_metadata=True)


def test_unexpected_number_of_entries_is_an_error():
    with pytest.raises(ManifestCorruptedError, match=r"m\.avro .*3 entries, and should have 4"):
        read_manifest(write_manifest(numbered_entries(3)), name="m.avro", expected_entries=4)


def _count_in_child(data, results):
    results.put(read_manifest(data).num_rows)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_reads_after_its_parent_did():
    data = write_manifest(numbered_entries(50))
    read_manifest(data)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_count_in_child, args=(data, results))
    child.start()
    try:
        assert results.get(timeout=PATIENCE_SECONDS) == 50
    finally:
        child.kill()
        child.join()


def test_read_does_not_leave_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = write_manifest(numbered_entries(10))
    read_manifest(data)
    with pytest.raises(ManifestCorruptedError):
        read_manifest(
            write_manifest(numbered_entries(10), Codec(Compression.NONE)).replace(b"part-3", b"part-\xff")
        )
    assert list(tmp_path.iterdir()) == []


def test_temporary_folder_with_unusual_characters(tmp_path, monkeypatch):
    folder = tmp_path / "a b%20[c]*ü"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    table = numbered_entries(10)
    assert read_manifest(write_manifest(table)).equals(table)


def test_no_room_for_temporary_files_is_not_corruption(tmp_path, monkeypatch):
    data = write_manifest(numbered_entries(100))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match=r"m\.avro cannot be decoded .* TMPDIR"):
        read_manifest(data, name="m.avro")


def manifest_file(data, name, count):
    return manifest_reader.FetchedManifest(data, name, count)


def test_manifests_read_together_equal_those_read_alone():
    kinds = [
        (write_manifest(numbered_entries(30)), 30),
        (write_manifest(numbered_entries(0)), 0),
        (write_manifest(numbered_entries(20)), 20),
        (fastavro_file(record(SPECIFIED), [specified(FULL_VALUES)]), 1),
        (write_manifest(numbered_entries(10), Codec(Compression.SNAPPY)), 10),
    ]
    files = [manifest_file(data, f"m{number}", count) for number, (data, count) in enumerate(kinds)]
    together = manifest_reader.read_manifests(files, ["path", "size"])
    alone = [read_manifest(data, columns=["path", "size"]) for data, _ in kinds]
    assert [table.to_pylist() for table in together] == [table.to_pylist() for table in alone]


def test_the_damaged_one_of_several_manifests_is_named():
    whole = write_manifest(numbered_entries(30))
    damaged = bytearray(whole)
    damaged[-40] ^= 0xFF
    files = [manifest_file(whole, "m0", 30), manifest_file(bytes(damaged), "m1", 30)]
    with pytest.raises(ManifestCorruptedError, match=r"^m1 "):
        manifest_reader.read_manifests(files, None)
