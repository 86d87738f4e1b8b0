"""The layout of splits written on the JVM, and every kind of damage to it."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indextables.errors import ObjectNotFoundError, SplitCorruptedError, UnsupportedSplitError
from indextables.split.bundle import read_bundle
from indextables.split.jvm_bundle import (
    MAX_FOOTER_BYTES,
    Member,
    decode_footer,
    read_member,
)
from indextables.storage import open_store
from support.faults import FaultStore
from support.jvm_bundles import encode_footer, encode_manifest


def bundle_bytes(members: dict[str, bytes], hot_cache: bytes = b"hot") -> tuple[bytes, int]:
    """Return a bundle with these members, and the offset of its footer."""
    places, data = {}, b""
    for name, content in members.items():
        places[name] = Member(len(data), len(data) + len(content))
        data += content
    return data + encode_footer(encode_manifest(places), hot_cache), len(data)


def with_manifest(text: str, body: bytes = b"12345") -> bytes:
    """A bundle whose list of files is this text."""
    manifest = bytes.fromhex("AEBE1218 01000000") + text.encode()
    return body + encode_footer(manifest, b"")


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


def test_the_layout_is_that_of_existing_splits():
    data, footer_start = bundle_bytes({"a": b"xyz", "b": b""}, b"HOT")
    files = b'{"files":{"a":{"start":0,"end":3},"b":{"start":3,"end":3}}}'
    manifest = b"\xae\xbe\x12\x18\x01\x00\x00\x00" + files
    assert data == b"xyz" + manifest + len(manifest).to_bytes(4, "little") + b"HOT" + b"\x03\x00\x00\x00"
    assert footer_start == 3


def test_the_footer_is_read_with_one_range_request(store):
    data, footer_start = bundle_bytes({"a": b"xyz", "b": b"12"})
    store.put("x.split", data)
    counting = FaultStore(store)
    bundle = read_bundle(counting, "x.split", len(data), footer_start, len(data))
    assert [call.operation for call in counting.calls] == ["get_range"]
    assert bundle.members == {"a": Member(0, 3), "b": Member(3, 5)}
    assert (bundle.hot_cache, bundle.footer_start, bundle.size) == (b"hot", footer_start, len(data))


def test_the_footer_is_found_without_offsets(store):
    data, footer_start = bundle_bytes({"a": b"xyz"})
    store.put("x.split", data)
    assert read_bundle(store, "x.split").footer_start == footer_start
    assert read_member(store, "x.split", read_bundle(store, "x.split", len(data)), "a") == b"xyz"
    with pytest.raises(SplitCorruptedError, match="no file 'zzz'"):
        read_member(store, "x.split", read_bundle(store, "x.split"), "zzz")


def test_a_missing_split_is_not_found(store):
    with pytest.raises(ObjectNotFoundError):
        read_bundle(store, "gone.split", 100, 10, 100)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"files":[]}',
        '{"files":{"a":{"start":0}}}',
        '{"files":{"a":{"start":0,"end":6}}}',
        '{"files":{"a":{"start":-1,"end":3}}}',
        '{"files":{"a":{"start":4,"end":3}}}',
        '{"files":{"a":{"start":0.0,"end":3}}}',
        '{"files":{"a":{"start":true,"end":3}}}',
        '{"files":{"a":{"start":0,"end":3},"b":{"start":2,"end":4}}}',
        '{"files":{"../a":{"start":0,"end":3}}}',
        '{"files":{"..":{"start":0,"end":3}}}',
        '{"files":{"/etc/passwd":{"start":0,"end":3}}}',
        '{"files":{"a\\u0000":{"start":0,"end":3}}}',
        '{"files":{"":{"start":0,"end":3}}}',
        '{"files":' + "[" * 5000,
        '{"files":{"a":{"start":0,"end":4611686018427387904}}}',
    ],
)
def test_an_invalid_file_list_is_rejected(store, text):
    data = with_manifest(text)
    store.put("x.split", data)
    with pytest.raises(SplitCorruptedError, match=r"x\.split"):
        read_bundle(store, "x.split")


def test_a_newer_layout_version_is_reported(store):
    data = bytearray(with_manifest('{"files":{}}'))
    data[5 + 4] = 2
    store.put("x.split", bytes(data))
    with pytest.raises(UnsupportedSplitError, match="version 2"):
        read_bundle(store, "x.split")


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 50), (0, MAX_FOOTER_BYTES + 1), (3, 2**62)])
def test_impossible_offsets_are_rejected_without_reading(store, start, end):
    store.put("x.split", bundle_bytes({"a": b"xyz"})[0])
    counting = FaultStore(store)
    with pytest.raises(SplitCorruptedError):
        read_bundle(counting, "x.split", None, start, end)
    assert not counting.calls


def test_corrupt_lengths_allocate_no_memory(store):
    store.put("x.split", b"\x00" * 50 + b"\xff\xff\xff\xff")
    with pytest.raises(SplitCorruptedError, match=r"allowed|fit"):
        read_bundle(store, "x.split")


@settings(max_examples=200)
@given(data=st.binary(max_size=200))
@example(data=b"")
@example(data=b"\x00" * 16)
def test_arbitrary_bytes_are_not_a_footer(data):
    with pytest.raises((SplitCorruptedError, UnsupportedSplitError)):
        decode_footer(data, 0, "anything")
