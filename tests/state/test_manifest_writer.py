"""Writing manifests: foreign readers read every one of them back."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indextables import IndexTable
from indextables.errors import InvalidActionError, InvalidOptionError, InvalidSchemaError
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.state import manifest_writer
from indextables.state.avro.container import Codec, Compression, parse_container
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import (
    ManifestWriter,
    estimated_bytes,
    write_manifest,
    write_manifests,
)
from support.manifest_samples import (
    FULL_VALUES,
    REQUIRED_VALUES,
    avro_form,
    avro_schema,
    datafusion_rows,
    entries,
    entry_rows,
    fastavro_rows,
    numbered_entries,
)
from support.state_tables import split, state_of

# The schema, which every manifest begins with.
HEADER_BYTES = 8_000

CODECS = [
    Codec(Compression.ZSTD, 3),
    Codec(Compression.ZSTD, 19),
    Codec(Compression.SNAPPY),
    Codec(Compression.DEFLATE),
    Codec(Compression.NONE),
]

SPECIFIED_FIELD_IDS = {
    "path": 100,
    "partitionValues": 101,
    "size": 102,
    "modificationTime": 103,
    "dataChange": 104,
    "stats": 110,
    "minValues": 111,
    "maxValues": 112,
    "numRecords": 113,
    "footerStartOffset": 120,
    "footerEndOffset": 121,
    "hasFooterOffsets": 124,
    "splitTags": 132,
    "numMergeOps": 134,
    "docMappingRef": 135,
    "uncompressedSizeBytes": 136,
    "addedAtVersion": 140,
    "addedAtTimestamp": 141,
}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(manifest_writer, "BLOCK_ROWS", 256)


def written_fields(table: pa.Table, data: bytes) -> list[dict]:
    """The rows of a table, with the fields that the manifest has."""
    names = [field["name"] for field in avro_schema(data)["fields"]]
    return avro_form(table.select(names))


def test_write_empty_manifest(tmp_path):
    data = write_manifest(empty_entries())
    assert fastavro_rows(data) == []
    assert datafusion_rows(data, tmp_path) == []
    assert read_manifest(data, expected_entries=0).equals(empty_entries())


def test_write_single_entry(tmp_path):
    table = entries([{**REQUIRED_VALUES, "path": "only.split", "size": 42}])
    data = write_manifest(table)
    assert fastavro_rows(data) == written_fields(table, data)
    assert datafusion_rows(data, tmp_path) == written_fields(table, data)


def test_write_multiple_entries_across_blocks(tmp_path, small_blocks):
    table = numbered_entries(1041)
    data = write_manifest(table)
    expected = written_fields(table, data)
    assert fastavro_rows(data) == expected
    assert datafusion_rows(data, tmp_path) == expected
    assert read_manifest(data, expected_entries=len(table)).equals(table)


def test_write_all_fields(tmp_path):
    table = entries([FULL_VALUES, REQUIRED_VALUES])
    data = write_manifest(table)
    rows = fastavro_rows(data)
    assert rows == written_fields(table, data)
    assert rows == datafusion_rows(data, tmp_path)
    assert rows[0] == FULL_VALUES


def test_write_nullable_fields(tmp_path):
    nullable = [field.name for field in FILE_ENTRY_SCHEMA if field.nullable]
    rows = [{**FULL_VALUES, name: None} for name in nullable]
    table = entries(rows)
    data = write_manifest(table)
    assert fastavro_rows(data) == rows
    assert datafusion_rows(data, tmp_path) == rows


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_write_with_every_codec(codec, tmp_path):
    table = entries([FULL_VALUES, REQUIRED_VALUES] * 50)
    data = write_manifest(table, codec)
    assert datafusion_rows(data, tmp_path) == avro_form(table)
    assert read_manifest(data, expected_entries=100).equals(table)
    if codec.compression is not Compression.SNAPPY:  # for which fastavro needs a package of its own
        assert fastavro_rows(data) == avro_form(table)


def test_uncompressed_manifest_shows_its_paths():
    data = write_manifest(numbered_entries(3), Codec(Compression.NONE))
    assert b"part-2.split" in data
    assert b"part-2.split" not in write_manifest(numbered_entries(3), Codec(Compression.ZSTD))


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_small_manifests_written_together_hold_their_own_entries(codec):
    table = numbered_entries(60)
    manifests = [manifest.data for manifest in write_manifests(table, [7, 0, 1, 52], codec)]
    read = [
        read_manifest(data, expected_entries=count)
        for data, count in zip(manifests, [7, 0, 1, 52], strict=True)
    ]
    assert pa.concat_tables(read).equals(table)
    for data, part in zip(manifests, read, strict=True):
        if codec.compression is not Compression.SNAPPY:
            assert fastavro_rows(data) == written_fields(part, data)


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("counts", [[1200], [7, 0, 1, 52]], ids=["alone", "together"])
def test_manifests_know_their_size_without_compression(small_blocks, codec, counts):
    table = numbered_entries(sum(counts))
    plain = write_manifests(table, counts, Codec(Compression.NONE))
    assert [manifest.uncompressed_bytes for manifest in plain] == [len(manifest.data) for manifest in plain]
    # The names of codecs and the lengths of blocks differ by a few bytes.
    for manifest, other in zip(write_manifests(table, counts, codec), plain, strict=True):
        assert abs(manifest.uncompressed_bytes - other.uncompressed_bytes) < 100


@settings(max_examples=40)
@given(groups=st.lists(st.lists(entry_rows(), max_size=4), min_size=1, max_size=4))
def test_any_values_survive_in_manifests_written_together(groups):
    table = entries([row for group in groups for row in group])
    counts = [len(group) for group in groups]
    manifests = [manifest.data for manifest in write_manifests(table, counts)]
    read = [
        read_manifest(data, expected_entries=count) for data, count in zip(manifests, counts, strict=True)
    ]
    assert pa.concat_tables(read).combine_chunks().equals(table.combine_chunks())


def test_one_large_manifest_among_those_written_together(small_blocks):
    table = numbered_entries(700)
    manifests = [manifest.data for manifest in write_manifests(table, [100, 600])]
    assert [len(read_manifest(data)) for data in manifests] == [100, 600]
    assert len(list(parse_container(manifests[1]).blocks)) == 3


@settings(max_examples=60)
@given(rows=st.lists(entry_rows(), max_size=6), codec=st.sampled_from(CODECS))
def test_any_values_survive(rows, codec):
    table = entries(rows)
    data = write_manifest(table, codec)
    assert read_manifest(data, expected_entries=len(rows)).equals(table)
    if codec.compression is not Compression.SNAPPY:
        assert fastavro_rows(data) == written_fields(table, data)


@settings(max_examples=40)
@given(rows=st.lists(entry_rows(), min_size=1, max_size=8), data=st.data())
def test_slices_of_tables_are_written_without_hidden_rows(rows, data):
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows)))
    table = entries(rows)
    sliced = table.slice(start, length)
    assert fastavro_rows(write_manifest(sliced)) == written_fields(sliced, write_manifest(sliced))


def test_extreme_longs_survive():
    longs = [0, -1, 1, 63, 64, -64, -65, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]
    table = entries([{**REQUIRED_VALUES, "size": long, "numRecords": long} for long in longs])
    rows = fastavro_rows(write_manifest(table))
    assert [row["size"] for row in rows] == longs
    assert [row["numRecords"] for row in rows] == longs


def test_null_slots_that_hide_values_are_written_as_null():
    """Arrow allows bytes and elements in null slots; they must not reach the file."""
    hidden_text = pa.Array.from_buffers(
        pa.string(),
        2,
        [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1, 4], np.int32)), pa.py_buffer(b"abcd")],
    )
    full = pa.array([[("k", "v")], [("x", "y"), ("z", "w")]], pa.map_(pa.string(), pa.string()))
    hidden_map = pa.Array.from_buffers(
        full.type, 2, [pa.py_buffer(b"\x01"), full.buffers()[1]], children=[full.values]
    )
    table = entries([REQUIRED_VALUES, REQUIRED_VALUES])
    for name, column in (("stats", hidden_text), ("minValues", hidden_map)):
        table = table.set_column(table.column_names.index(name), FILE_ENTRY_SCHEMA.field(name), column)
    rows = fastavro_rows(write_manifest(table))
    assert [row["stats"] for row in rows] == ["a", None]
    assert [row["minValues"] for row in rows] == [{"k": "v"}, None]


def test_null_elements_of_maps_and_lists_are_left_out():
    table = entries([REQUIRED_VALUES, REQUIRED_VALUES])
    partition_values = pa.array([[("a", None), ("b", "1")], [("c", None)]], pa.map_(pa.string(), pa.string()))
    tags = pa.array([["x", None, "y"], [None]], pa.list_(pa.string()))
    for name, column in (("partitionValues", partition_values), ("splitTags", tags)):
        table = table.set_column(table.column_names.index(name), FILE_ENTRY_SCHEMA.field(name), column)
    rows = fastavro_rows(write_manifest(table))
    assert [row["partitionValues"] for row in rows] == [{"b": "1"}, {}]
    assert [row["splitTags"] for row in rows] == [["x", "y"], []]


def test_field_ids_are_those_of_the_specification():
    schema = avro_schema(write_manifest(entries([REQUIRED_VALUES])))
    assert schema["name"] == "io.indextables.state.FileEntry"
    assert {field["name"]: field["field-id"] for field in schema["fields"]} == SPECIFIED_FIELD_IDS
    assert [field["name"] for field in schema["fields"]] == list(SPECIFIED_FIELD_IDS)


def test_optional_fields_are_written_only_with_a_value():
    with_one = entries([REQUIRED_VALUES, {**REQUIRED_VALUES, "companionDeltaVersion": 3}])
    ids = {field["name"]: field["field-id"] for field in avro_schema(write_manifest(with_one))["fields"]}
    assert ids == {**SPECIFIED_FIELD_IDS, "companionDeltaVersion": 151}


def test_all_field_ids_differ():
    fields = avro_schema(write_manifest(entries([FULL_VALUES])))["fields"]
    ids = [field["field-id"] for field in fields]
    assert len(set(ids)) == len(ids) == len(FILE_ENTRY_SCHEMA)


def test_write_large_manifest():
    table = pa.concat_tables([numbered_entries(1000)] * 110)
    data = write_manifest(table)
    assert read_manifest(data, expected_entries=110_000).equals(table)


def test_same_entries_yield_the_same_bytes(small_blocks):
    table = numbered_entries(1500)
    assert write_manifest(table) == write_manifest(table)


def test_streaming_writer_yields_the_same_entries_as_a_single_write(small_blocks):
    table = numbered_entries(1500)
    sink = io.BytesIO()
    with ManifestWriter(sink, table.schema, num_entries=len(table)) as writer:
        for batch in table.to_batches(max_chunksize=99):
            writer.write(batch)
    data = sink.getvalue()
    assert (writer.num_entries, writer.num_bytes) == (len(table), len(data))
    assert read_manifest(data, expected_entries=len(table)).equals(table)
    assert [row["path"] for row in fastavro_rows(data)] == table["path"].to_pylist()


def test_streaming_writer_emits_blocks_before_it_is_closed(small_blocks):
    table = numbered_entries(256)
    sink = io.BytesIO()
    with ManifestWriter(sink, table.schema) as writer:
        header_bytes = writer.num_bytes
        for _ in range(manifest_writer._MAX_BLOCKS_IN_FLIGHT + 1):
            writer.write(table)
        assert writer.num_bytes > header_bytes


def test_streaming_writer_without_entries_is_an_empty_manifest():
    sink = io.BytesIO()
    with ManifestWriter(sink, FILE_ENTRY_SCHEMA):
        pass
    assert read_manifest(sink.getvalue(), expected_entries=0).equals(empty_entries())


def test_streaming_writer_refuses_other_than_the_announced_number():
    table = numbered_entries(3)
    with (
        pytest.raises(InvalidActionError, match="announced with 4 entries, but got 3"),
        ManifestWriter(io.BytesIO(), table.schema, num_entries=4) as writer,
    ):
        writer.write(table)


def test_streaming_writer_refuses_values_in_an_unannounced_column():
    table = entries([{**REQUIRED_VALUES, "deleteOpstamp": 1}])
    schema = table.drop_columns(["deleteOpstamp"]).schema
    with (
        pytest.raises(InvalidSchemaError, match="deleteOpstamp"),
        ManifestWriter(io.BytesIO(), schema) as writer,
    ):
        writer.write(table)


def test_blocks_with_wide_entries_stay_small(monkeypatch):
    monkeypatch.setattr(manifest_writer, "BLOCK_BYTES", 10_000)
    table = entries([{**REQUIRED_VALUES, "stats": "x" * 3000}] * 20)
    data = write_manifest(table, Codec(Compression.NONE))
    assert read_manifest(data, expected_entries=20).equals(table)
    assert data.count(data[-16:]) > 5


@pytest.mark.parametrize("width", [0, 100, 10_000])
def test_the_estimated_size_of_a_manifest_is_never_too_small_and_at_most_twice_too_large(width):
    plain = numbered_entries(300)
    table = plain.set_column(
        plain.column_names.index("stats"), "stats", pa.array([f"{n:x}" * width for n in range(300)])
    )
    (written,) = write_manifests(table, [300], Codec(Compression.NONE))
    assert written.uncompressed_bytes <= estimated_bytes(table) + HEADER_BYTES
    assert estimated_bytes(table) <= 2 * written.uncompressed_bytes


def test_wide_entries_make_more_manifests_instead_of_one_that_is_too_large(monkeypatch, tmp_path):
    monkeypatch.setattr(manifest_writer, "_MAX_MANIFEST_BYTES", 40_000)
    monkeypatch.setattr(manifest_writer, "_TARGET_MANIFEST_BYTES", 20_000)
    table = IndexTable.create(str(tmp_path / "table"), pa.schema([("id", pa.int64())]))
    adds = [replace(split(n), stats="x" * 3000) for n in range(50)]
    table.commit(adds=adds)
    table.checkpoint()
    found = IndexTable(str(tmp_path / "table"))
    assert found.files()["stats"].to_pylist() == ["x" * 3000] * 50
    sizes = [info.num_entries for info in state_of(found).manifests]
    assert sum(sizes) == 50
    assert max(sizes) <= 7


def test_entry_beyond_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(manifest_writer, "MAX_ENTRY_BYTES", 1000)
    monkeypatch.setattr(manifest_writer, "BLOCK_BYTES", 1000)
    with pytest.raises(InvalidActionError, match=r"'wide\.split' exceeds the limit"):
        write_manifest(entries([{**REQUIRED_VALUES, "path": "wide.split", "stats": "x" * 3000}]))


def test_more_entries_than_a_manifest_holds_are_refused(monkeypatch):
    monkeypatch.setattr(manifest_writer, "MAX_RECORDS", 9)
    with pytest.raises(InvalidOptionError, match="at most 9 entries"):
        write_manifest(numbered_entries(10))


def test_missing_required_column_is_refused():
    with pytest.raises(InvalidSchemaError, match="'size'"):
        write_manifest(numbered_entries(2).drop_columns(["size"]))


def test_missing_required_value_is_refused():
    table = numbered_entries(2)
    paths = pa.array(["a", None])
    with pytest.raises(InvalidActionError, match="1 entries have no 'path'"):
        write_manifest(table.set_column(0, "path", paths))


def test_missing_nullable_columns_are_null():
    table = numbered_entries(2)
    assert read_manifest(write_manifest(table.drop_columns(["stats", "tags"]))).equals(table)


def test_equivalent_arrow_types_are_accepted():
    table = numbered_entries(3)
    other = table.set_column(0, "path", table["path"].dictionary_encode())
    other = other.set_column(2, "size", table["size"].cast(pa.int32()))
    assert read_manifest(write_manifest(other)).equals(table)


def test_concurrent_writers_do_not_disturb_each_other(small_blocks):
    tables = [numbered_entries(count) for count in (1, 100, 1000, 5)]
    with ThreadPoolExecutor(4) as pool:
        manifests = list(pool.map(write_manifest, tables * 2))
    assert manifests == [write_manifest(table) for table in tables * 2]
