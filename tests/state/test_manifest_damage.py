"""A damaged manifest raises a typed error; it never drops or changes entries."""

import random
import struct
from contextlib import suppress

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.errors import LogCorruptedError, ManifestCorruptedError
from indextables.state.avro import container as avro_container
from indextables.state.avro import decode
from indextables.state.avro.container import (
    Codec,
    Compression,
    encode_block,
    encode_bytes,
    encode_header,
    encode_long,
)
from indextables.state.manifest_reader import read_manifest
from indextables.state.manifest_writer import write_manifest
from indextables.state.schemas import file_entry_schema
from support.manifest_samples import FULL_VALUES, REQUIRED_VALUES, entries, numbered_entries

pytestmark = pytest.mark.usefixtures("each_decoder")

UNCOMPRESSED = Codec(Compression.NONE)
SCHEMA = file_entry_schema((), ())

# The values of an entry after its path: empty map, numbers, nulls, false.
REST_OF_ENTRY = bytes(17)


def container(*blocks: tuple[int, bytes], schema: bytes = SCHEMA, codec: Codec = UNCOMPRESSED) -> bytes:
    """A file whose blocks claim arbitrary counts."""
    header, sync = encode_header(schema, codec, num_records=None)
    return header + b"".join(encode_block(count, codec.compress(payload), sync) for count, payload in blocks)


def entry(path: bytes) -> bytes:
    return encode_bytes(path) + REST_OF_ENTRY


def test_hand_made_container_is_readable():
    assert read_manifest(container((2, entry(b"a") + entry(b"b"))))["path"].to_pylist() == ["a", "b"]


def test_manifest_cut_off_at_every_byte_is_an_error():
    data = write_manifest(entries([FULL_VALUES, REQUIRED_VALUES]))
    for length in range(len(data)):
        with pytest.raises(ManifestCorruptedError, match=r"^m\.avro cannot be read: "):
            read_manifest(data[:length], name="m.avro")


def test_foreign_manifest_cut_off_at_every_byte_is_an_error():
    """Without our checksums, the expected number of entries reveals a truncated file."""
    data = container((1, entry(b"a")), (1, entry(b"b")), (2, entry(b"c") * 2))
    for length in range(len(data)):
        with pytest.raises(ManifestCorruptedError):
            read_manifest(data[:length], expected_entries=4)


def test_a_corrupted_manifest_is_a_corrupted_log():
    with pytest.raises(LogCorruptedError):
        read_manifest(b"")


@pytest.mark.parametrize("codec", [Codec(Compression.ZSTD), Codec(Compression.SNAPPY)], ids=str)
def test_a_changed_byte_is_detected_or_harmless(codec):
    table = entries([FULL_VALUES, REQUIRED_VALUES])
    data = write_manifest(table, codec)
    generator = random.Random(7)
    for position in range(len(data)):
        mutated = bytearray(data)
        mutated[position] ^= generator.randrange(1, 256)
        try:
            assert read_manifest(bytes(mutated)).equals(table), position
        except ManifestCorruptedError:
            continue


@settings(max_examples=150)
@given(
    codec=st.sampled_from([Codec(compression) for compression in Compression]),
    position=st.floats(0, 1, exclude_max=True),
    removed=st.integers(0, 12),
    inserted=st.binary(max_size=12) | st.just(b"\xff" * 9 + b"\x01"),
)
def test_mutilated_manifests_raise_only_manifest_corrupted(codec, position, removed, inserted):
    data = write_manifest(numbered_entries(5), codec)
    at = int(position * len(data))
    with suppress(ManifestCorruptedError):
        assert len(read_manifest(data[:at] + inserted + data[at + removed :], expected_entries=5)) == 5


@settings(max_examples=60)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_manifest_corrupted(data):
    for prefix in (b"", b"Obj\x01", container()):
        if data or not prefix:
            with pytest.raises(ManifestCorruptedError):
                read_manifest(prefix + data)


@pytest.mark.parametrize("claimed", [0, 1, 2, 4, 5, 100])
@pytest.mark.parametrize("compression", list(Compression))
def test_block_that_holds_another_number_of_records_is_an_error(claimed, compression):
    payload = b"".join(entry(path) for path in (b"a", b"b", b"c"))
    with pytest.raises(ManifestCorruptedError):
        read_manifest(container((claimed, payload), codec=Codec(compression)))


def test_wrong_count_in_one_of_several_blocks_is_an_error():
    with pytest.raises(ManifestCorruptedError):
        read_manifest(container((2, entry(b"a")), (1, entry(b"b"))))


@pytest.mark.parametrize("number", [-1, -(2**63), 2**31, 2**40, 2**62, 2**63 - 1])
@pytest.mark.parametrize("part", ["count", "size"])
def test_impossible_counts_and_sizes_of_blocks_are_refused(number, part):
    header, sync = encode_header(SCHEMA, UNCOMPRESSED, num_records=None)
    payload = entry(b"a")
    count, size = (number, len(payload)) if part == "count" else (1, number)
    with pytest.raises(ManifestCorruptedError, match="block 1 claims"):
        read_manifest(header + encode_long(count) + encode_long(size) + payload + sync)


@pytest.mark.parametrize("number", [-1, -(2**62), -(2**63), 2**33, 2**62, 2**63 - 1])
@pytest.mark.parametrize("part", ["length of a text", "count of a map", "count of a map with its size"])
def test_impossible_lengths_inside_records_are_refused(number, part):
    if part == "length of a text":
        payload = encode_long(number) + b"abc" + REST_OF_ENTRY
    elif part == "count of a map":
        payload = encode_bytes(b"a") + encode_long(number) + encode_bytes(b"k") * 2 + REST_OF_ENTRY
    else:
        payload = encode_bytes(b"a") + encode_long(-1) + encode_long(number) + b"\x02k" + REST_OF_ENTRY[:3]
    with pytest.raises(ManifestCorruptedError):
        read_manifest(container((1, payload)))


def test_trailing_bytes_are_refused():
    with pytest.raises(ManifestCorruptedError):
        read_manifest(write_manifest(numbered_entries(3)) + b"\x00")


def test_damaged_sync_marker_is_refused():
    data = bytearray(container((1, entry(b"a"))))
    data[-1] ^= 1
    with pytest.raises(ManifestCorruptedError, match="block 1 is cut off, or its end is damaged"):
        read_manifest(bytes(data))


def test_text_that_is_not_unicode_is_refused():
    with pytest.raises(ManifestCorruptedError):
        read_manifest(container((1, entry(b"\xff\xfe"))))


def test_unknown_codec_is_named():
    data = container((1, entry(b"a"))).replace(b"avro.codec\x08null", b"avro.codec\x08lzma")
    data = data.replace(b"header-digest", b"header-unsure")
    with pytest.raises(ManifestCorruptedError, match="its codec is 'lzma'"):
        read_manifest(data)


@pytest.mark.parametrize("compression", list(Compression))
def test_decompression_bomb_is_refused_at_the_cap(compression, monkeypatch):
    for module in (decode, decode):
        monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 1 << 20)
    bomb = container((1, encode_bytes(bytes(3 << 20)) + REST_OF_ENTRY), codec=Codec(compression))
    with pytest.raises(ManifestCorruptedError, match="allowed"):
        read_manifest(bomb)


def test_many_blocks_are_refused_at_the_cap_of_a_file(monkeypatch):
    for module in (decode, decode):
        monkeypatch.setattr(module, "MAX_FILE_BYTES", 1 << 16)
    blocks = [(1, entry(bytes(1 << 12)))] * 32
    with pytest.raises(ManifestCorruptedError, match="it holds more than"):
        read_manifest(container(*blocks, codec=Codec(Compression.ZSTD)))


def test_more_records_than_a_file_may_hold_are_refused(monkeypatch):
    monkeypatch.setattr(avro_container, "MAX_RECORDS", 3)
    with pytest.raises(ManifestCorruptedError, match="a file may hold 3"):
        read_manifest(container((2, entry(b"a") * 2), (2, entry(b"b") * 2)))


@pytest.mark.parametrize(
    "schema",
    [
        b"",
        b"null",
        b'"string"',
        b"{}",
        b"[" * 5000,
        b"[" * 500 + b"]" * 500,
        b'{"type":"record","name":"R","fields":[{"name":"path","type":"string"}]}',
        b"\xff" * 100,
        orjson.dumps({"type": "record", "name": "R", "fields": [{"name": "path", "type": "R"}]}),
    ],
    ids=range(9),
)
def test_hostile_schemas_are_refused(schema):
    with pytest.raises(ManifestCorruptedError):
        read_manifest(container((1, entry(b"a")), schema=schema))


def test_metadata_of_a_header_that_never_ends_is_refused():
    with pytest.raises(ManifestCorruptedError):
        read_manifest(b"Obj\x01" + encode_long(2**62) + struct.pack("<Q", 0) * 10)
