"""State manifests, written and read, as Avro and as JSON."""

import io
import json
import pickle
import random
from contextlib import suppress

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indextables.errors import ManifestCorruptedError, UnsupportedProtocolError
from indextables.log.actions import Metadata, ProtocolAction, SkipAction
from indextables.pruning import Bounds
from indextables.state.avro import decode
from indextables.state.avro.container import Codec, Compression, encode_block, encode_header, encode_long
from indextables.state.foreign_fields import NO_FOREIGN_FIELDS
from indextables.state.schemas import UNKNOWN_COUNT
from indextables.state.state_manifest import (
    ManifestInfo,
    StateManifest,
    decode_json_state_manifest,
    decode_state_manifest,
    encode_state_manifest,
)
from support.manifest_samples import LONGS, TEXT_MAPS, TEXTS, avro_schema, fastavro_file, fastavro_rows

METADATA = Metadata(
    id="6bdb81ad", schema_string='{"type":"struct","fields":[]}', unknown={"later": {"a": [1, None]}}
)

MANIFEST = StateManifest(
    state_version=100,
    created_at_ms=1_705_123_456_789,
    num_files=70_500,
    total_bytes=2**50,
    manifests=(
        ManifestInfo(
            "manifests/manifest-a1b2c3d4.avro",
            50_003,
            1,
            50,
            {"date": Bounds("2024-01-01", "é")},
            live_entry_count=50_003,
        ),
        ManifestInfo(
            "state-v00000000000000000042/manifest-b.avro",
            20_000,
            51,
            99,
            {"date": Bounds(None, None)},
            live_entry_count=20_000,
        ),
        ManifestInfo("manifest-c.avro", 500, 100, 100, {}, tombstone_count=3, live_entry_count=497),
        ManifestInfo("manifests/manifest-d.avro", 0, 0, 0, live_entry_count=0),
    ),
    tombstones=pa.array(["a.split", "", "ü.split"]),
    doc_mappings={"z7TwwZ-tDWGD-uX5": "[]"},
    metadata=METADATA,
    protocol=ProtocolAction(min_reader_version=4, min_writer_version=4, reader_features=("avroState",)),
    skips=(SkipAction(path="x.split", skip_timestamp=1, reason="damaged", operation="merge"),),
    transactions={"query-1": 2**40},
    unknown_actions=('{"later":{"n":1}}',),
    timestamp_ms=1_705_123_456_000,
    recent_commits={99: "id-99", 100: "id-100"},
)

# The fields of the specification and of real tables; the fields after these are ours.
SPECIFIED_FIELDS = [
    "formatVersion",
    "stateVersion",
    "createdAt",
    "numFiles",
    "totalBytes",
    "manifests",
    "tombstones",
    "schemaRegistry",
    "protocolVersion",
    "metadata",
]

JSON_MANIFEST = {
    "formatVersion": 1,
    "stateVersion": 42,
    "createdAt": 1_704_067_200_000,
    "numFiles": 15_000,
    "totalBytes": 1_099_511_627_776,
    "protocolVersion": 4,
    "manifests": [
        {
            "path": "manifests/manifest-a1b2c3d4.avro",
            "numEntries": 50_000,
            "minAddedAtVersion": 0,
            "maxAddedAtVersion": 42,
            "partitionBounds": {"date": {"min": "2024-01-01", "max": "2024-01-31"}},
        }
    ],
    "tombstones": ["gone.split"],
    "schemaRegistry": {"ab12cd34ef56gh78": "[]"},
}

CODECS = [Codec(Compression.ZSTD, 3), Codec(Compression.DEFLATE), Codec(Compression.NONE)]


def read_json(**changes):
    return decode_json_state_manifest(json.dumps({**JSON_MANIFEST, **changes}).encode(), "_manifest.json")


def record(fields):
    return {"type": "record", "name": "StateManifest", "namespace": "com.example", "fields": fields}


@pytest.mark.parametrize("codec", [*CODECS, Codec(Compression.SNAPPY)], ids=str)
def test_state_manifest_survives(codec):
    assert decode_state_manifest(encode_state_manifest(MANIFEST, codec), "x") == MANIFEST


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"num_files": 70_499}, id="one file less"),
        pytest.param({"tombstones": pa.array(["a", "b", "c", "d"])}, id="one tombstone more"),
        pytest.param(
            {"manifests": (*MANIFEST.manifests[:-1], replace(MANIFEST.manifests[-1], live_entry_count=-1))},
            id="a manifest without counts",
        ),
    ],
)
def test_counts_that_do_not_add_up_are_dropped(wrong):
    """Other writers add tombstones to a state and copy the counts of its manifests unchanged."""
    found = decode_state_manifest(encode_state_manifest(replace(MANIFEST, **wrong)), "x")
    assert {(info.tombstone_count, info.live_entry_count) for info in found.manifests} == {(0, UNKNOWN_COUNT)}
    assert [info.num_entries for info in found.manifests] == [50_003, 20_000, 500, 0]


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_written_state_manifest_is_read_by_fastavro(codec):
    (row,) = fastavro_rows(encode_state_manifest(MANIFEST, codec))
    assert row["stateVersion"] == 100
    assert row["manifests"][0]["partitionBounds"] == {"date": {"min": "2024-01-01", "max": "é"}}
    assert row["manifests"][1]["partitionBounds"] == {"date": {"min": None, "max": None}}
    assert row["manifests"][3]["partitionBounds"] is None
    assert row["tombstones"] == ["a.split", "", "ü.split"]
    assert json.loads(row["metadata"])["metaData"]["id"] == "6bdb81ad"


def test_schema_starts_with_the_specified_fields():
    schema = avro_schema(encode_state_manifest(MANIFEST))
    assert schema["name"] == "io.indextables.state.StateManifest"
    names = [field["name"] for field in schema["fields"]]
    assert names[: len(SPECIFIED_FIELDS)] == SPECIFIED_FIELDS
    assert all("default" in field for field in schema["fields"][len(SPECIFIED_FIELDS) :])


def test_reader_with_the_specified_schema_skips_our_fields():
    data = encode_state_manifest(MANIFEST)
    schema = avro_schema(data)
    specified = {**schema, "fields": schema["fields"][: len(SPECIFIED_FIELDS)]}
    (row,) = fastavro.reader(io.BytesIO(data), reader_schema=specified)
    assert list(row) == SPECIFIED_FIELDS
    assert row["numFiles"] == MANIFEST.num_files


def test_same_state_manifest_yields_the_same_bytes():
    assert encode_state_manifest(MANIFEST) == encode_state_manifest(pickle.loads(pickle.dumps(MANIFEST)))


def test_version_bounds_and_counts_survive():
    decoded = decode_state_manifest(encode_state_manifest(MANIFEST), "x")
    assert [(m.min_added_at_version, m.max_added_at_version) for m in decoded.manifests] == [
        (1, 50), (51, 99), (100, 100), (0, 0),
    ]  # fmt: skip
    assert (decoded.num_files, decoded.total_bytes) == (70_500, 2**50)


def test_empty_tombstones():
    empty = replace(MANIFEST, tombstones=pa.array([], pa.string()))
    decoded = decode_state_manifest(encode_state_manifest(empty), "x")
    assert len(decoded.tombstones) == 0
    assert decoded.tombstones.type == pa.string()


def test_large_tombstone_list():
    tombstones = pa.array([f"date=2024-01-01/part-{number}.split" for number in range(100_000)])
    decoded = decode_state_manifest(encode_state_manifest(replace(MANIFEST, tombstones=tombstones)), "x")
    assert decoded.tombstones.equals(tombstones)


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 2**63 - 1), min_size=3, max_size=3),
    created=LONGS,
    tombstones=st.lists(TEXTS, max_size=5),
    registry=TEXT_MAPS,
    transactions=st.dictionaries(TEXTS, LONGS, max_size=3),
    bounds=st.none()
    | st.dictionaries(TEXTS, st.builds(Bounds, st.none() | TEXTS, st.none() | TEXTS), max_size=3),
)
def test_any_values_survive(counts, created, tombstones, registry, transactions, bounds):
    manifest = StateManifest(
        state_version=counts[0],
        created_at_ms=created,
        num_files=counts[1],
        total_bytes=counts[2],
        manifests=(ManifestInfo("manifests/manifest-1.avro", counts[1], 0, counts[0], bounds),),
        tombstones=pa.array(tombstones, pa.string()),
        doc_mappings=registry,
        transactions=transactions,
    )
    assert decode_state_manifest(encode_state_manifest(manifest), "x") == manifest


def test_missing_fields_take_defaults():
    fields = [
        {"name": name, "type": "long"}
        for name in ("formatVersion", "stateVersion", "createdAt", "numFiles", "totalBytes")
    ]
    fields.append({"name": "manifests", "type": {"type": "array", "items": "string"}})
    row = {
        "formatVersion": 1,
        "stateVersion": 7,
        "createdAt": 8,
        "numFiles": 0,
        "totalBytes": 0,
        "manifests": [],
    }
    decoded = decode_state_manifest(fastavro_file(record(fields), [row]), "x")
    assert decoded == StateManifest(7, 8, 0, 0, ())


def test_unknown_fields_do_not_disturb_the_known_ones():
    schema = avro_schema(encode_state_manifest(MANIFEST))
    fields = [
        *schema["fields"],
        {"name": "later", "type": {"type": "array", "items": ["null", "long", "string"]}},
    ]
    (row,) = fastavro_rows(encode_state_manifest(MANIFEST))
    data = fastavro_file(record(fields), [{**row, "later": [None, 1, "x"]}])
    assert replace(decode_state_manifest(data, "x"), foreign=NO_FOREIGN_FIELDS) == MANIFEST


@pytest.mark.parametrize("missing", SPECIFIED_FIELDS[:6])
def test_missing_field_without_default_is_an_error(missing):
    fields = [{"name": name, "type": "long"} for name in SPECIFIED_FIELDS[:5] if name != missing]
    data = fastavro_file(record(fields), [{field["name"]: 1 for field in fields}])
    with pytest.raises(ManifestCorruptedError, match="x cannot be read"):
        decode_state_manifest(data, "x")


@pytest.mark.parametrize("field", ["numFiles", "totalBytes", "stateVersion"])
def test_negative_counts_are_refused(field):
    with pytest.raises(ManifestCorruptedError, match=field):
        read_json(**{field: -1})


def test_newer_format_is_refused_with_a_remedy():
    data = encode_state_manifest(replace(MANIFEST, format_version=2))
    with pytest.raises(UnsupportedProtocolError, match=r"x has the state format 2; .* upgrade indextables"):
        decode_state_manifest(data, "x")


def test_json_state_manifest():
    manifest = read_json()
    assert (manifest.state_version, manifest.num_files) == (42, 15_000)
    assert manifest.manifests == (
        ManifestInfo(
            "manifests/manifest-a1b2c3d4.avro", 50_000, 0, 42, {"date": Bounds("2024-01-01", "2024-01-31")}
        ),
    )
    assert manifest.tombstones.to_pylist() == ["gone.split"]
    assert manifest.metadata is None


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize("is_wrapped", [True, False])
def test_metadata_in_every_form(is_text, is_wrapped):
    bare = {"id": "1", "schemaString": "{}", "partitionColumns": ["date"], "configuration": {}, "later": 5}
    value = {"metaData": bare} if is_wrapped else bare
    manifest = read_json(metadata=json.dumps(value) if is_text else value)
    assert manifest.metadata == Metadata(
        id="1", schema_string="{}", partition_columns=("date",), unknown={"later": 5}
    )


@pytest.mark.parametrize("absent", ["tombstones", "schemaRegistry", "metadata", "protocolVersion"])
def test_json_fields_may_be_missing(absent):
    fields = {name: value for name, value in JSON_MANIFEST.items() if name != absent}
    manifest = decode_json_state_manifest(json.dumps(fields).encode(), "x")
    assert manifest.protocol_version == 4
    assert absent != "tombstones" or len(manifest.tombstones) == 0


@pytest.mark.parametrize("null", ["tombstones", "schemaRegistry", "metadata"])
def test_json_fields_may_be_null(null):
    assert read_json(**{null: None}).num_files == 15_000


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"formatVersion": 1}',
        json.dumps({**JSON_MANIFEST, "manifests": {}}).encode(),
        json.dumps({**JSON_MANIFEST, "tombstones": [1, None]}).encode(),
        json.dumps({**JSON_MANIFEST, "totalBytes": 2**64}).encode(),
        json.dumps({**JSON_MANIFEST, "metadata": "{"}).encode(),
        json.dumps({**JSON_MANIFEST, "metadata": "[1]"}).encode(),
        json.dumps({**JSON_MANIFEST, "metadata": {"metaData": 5}}).encode(),
    ],
    ids=range(13),
)
def test_damaged_json_is_an_error(text):
    with pytest.raises(ManifestCorruptedError, match=r"^_manifest\.json cannot be read: "):
        decode_json_state_manifest(text, "_manifest.json")


def test_state_manifest_cut_off_at_every_byte_is_an_error():
    data = encode_state_manifest(MANIFEST)
    for length in range(len(data)):
        with pytest.raises(ManifestCorruptedError):
            decode_state_manifest(data[:length], "x")


def test_a_changed_byte_is_detected_or_harmless():
    data = encode_state_manifest(MANIFEST)
    generator = random.Random(3)
    for position in range(len(data)):
        mutated = bytearray(data)
        mutated[position] ^= generator.randrange(1, 256)
        try:
            assert decode_state_manifest(bytes(mutated), "x") == MANIFEST, position
        except ManifestCorruptedError:
            continue


@settings(max_examples=300)
@given(
    position=st.floats(0, 1, exclude_max=True),
    removed=st.integers(0, 10),
    inserted=st.binary(max_size=10) | st.just(b"\xff" * 9 + b"\x01"),
)
def test_mutilated_state_manifests_raise_only_typed_errors(position, removed, inserted):
    data = encode_state_manifest(MANIFEST, Codec(Compression.NONE))
    at = int(position * len(data))
    with suppress(ManifestCorruptedError, UnsupportedProtocolError):
        assert decode_state_manifest(data[:at] + inserted + data[at + removed :], "x").format_version == 1


def tombstones_only(payload, codec, count=1):
    schema = record([{"name": "tombstones", "type": {"type": "array", "items": "string"}}])
    header, sync = encode_header(json.dumps(schema).encode(), codec, num_records=None)
    return header + encode_block(count, codec.compress(payload), sync)


@pytest.mark.parametrize("count", [2**31, 2**62, 2**63 - 1, -(2**62), -(2**63)])
def test_hostile_counts_are_refused(count):
    payload = encode_long(count) + (encode_long(5) if count < 0 else b"") + b"\x02a\x02b"
    with pytest.raises(ManifestCorruptedError):
        decode_state_manifest(tombstones_only(payload, Codec(Compression.NONE)), "x")


def test_decompression_bomb_is_refused_at_the_cap(monkeypatch):
    monkeypatch.setattr(decode, "MAX_BLOCK_BYTES", 1 << 20)
    with pytest.raises(ManifestCorruptedError, match="allowed"):
        decode_state_manifest(tombstones_only(bytes(3 << 20), Codec(Compression.ZSTD)), "x")


@pytest.mark.parametrize("count", [0, 2])
def test_other_than_one_record_is_an_error(count):
    data = tombstones_only(b"\x00" * count, Codec(Compression.NONE), count)
    with pytest.raises(ManifestCorruptedError, match=f"it has {count} records, and should have one"):
        decode_state_manifest(data, "x")
