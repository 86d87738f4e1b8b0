"""The bundle: its exact layout, and every kind of damage."""

import contextlib
import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from indextables.errors import (
    ObjectNotFoundError,
    SplitCorruptedError,
    UnsupportedSplitError,
)
from indextables.schema import TableShape
from indextables.split import bundle as bundle_module
from indextables.split.bundle import (
    MAX_FOOTER_BYTES,
    Member,
    decode_footer,
    encode_footer,
    encode_manifest,
    is_ours,
    read_bundle,
    read_member,
)
from indextables.split.index_cache import IndexCache
from indextables.split.reader import open_split
from indextables.storage import open_store
from support.faults import FaultStore
from support.split_samples import PREFIX, opened, read_all, write_split


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


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 50), (0, 10), (0, MAX_FOOTER_BYTES + 1), (3, 2**62)])
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


@pytest.fixture(scope="module")
def real_split(tmp_path_factory):
    """The bytes of one of our splits, its offsets, and its table."""
    store = open_store(tmp_path_factory.mktemp("real"))
    table = pa.table(
        {"id": range(300), "text": [f"word{i} common" for i in range(300)], "x": [i / 7 for i in range(300)]}
    )
    file = write_split(store, table, {PREFIX + "typemap.text": "text"})
    return store.get(file.path), file, table


def read_everything(store, file, cache_root) -> pa.Table:
    """Open a split, read its rows by scan and by number, and search it."""
    split = opened(store, file)
    rows = read_all(split)
    split.take([0, split.num_records - 1])
    split.searcher(IndexCache(cache_root, 10**8))
    return rows


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_any_changed_byte_is_an_error_or_changes_nothing(real_split, tmp_path_factory, choice):
    data, file, table = real_split
    place = choice.draw(st.integers(0, len(data) - 1))
    mask = choice.draw(st.integers(1, 255))
    changed = bytearray(data)
    changed[place] ^= mask
    folder = tmp_path_factory.mktemp("changed")
    store = open_store(folder / "table")
    store.put(file.path, bytes(changed))
    with contextlib.suppress(SplitCorruptedError, UnsupportedSplitError):
        assert read_everything(store, file, folder / "cache").equals(table)
    with pytest.raises((SplitCorruptedError, UnsupportedSplitError)):
        opened(store, file).verify()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data())
def test_a_truncated_split_is_an_error(real_split, tmp_path_factory, choice):
    data, file, _ = real_split
    store = open_store(tmp_path_factory.mktemp("cut"))
    store.put(file.path, data[: choice.draw(st.integers(0, len(data) - 1))])
    with pytest.raises(SplitCorruptedError):
        opened(store, file)
    with pytest.raises(SplitCorruptedError):
        open_split(store, file.path)


def test_a_short_read_of_the_store_is_detected(real_split, store):
    data, file, _ = real_split
    store.put(file.path, data)
    with pytest.raises(SplitCorruptedError):
        opened(FaultStore(store, short_reads=[file.path], seed=1), file)


def test_our_footer_is_readable_json(real_split, store):
    data, file, _ = real_split
    store.put(file.path, data)
    bundle = read_bundle(store, file.path)
    assert is_ours(bundle)
    document = json.loads(bundle.hot_cache)
    assert document["numRecords"] == 300
    assert set(document["checksums"]) == set(bundle.members)


def test_a_newer_version_of_our_format_is_reported(real_split, store):
    data, file, _ = real_split
    store.put(file.path, data)
    bundle = read_bundle(store, file.path)
    body = bundle.hot_cache[bundle_module._BODY_START :].replace(b'"formatVersion":1', b'"formatVersion":9')
    hot_cache = bundle_module._CHECKSUM_START + bundle_module._checksum(bundle.manifest, body) + body
    newer = data[: bundle.footer_start] + encode_footer(bundle.manifest, hot_cache)
    store.put("newer.split", newer)
    with pytest.raises(UnsupportedSplitError, match="format version 9"):
        open_split(store, "newer.split")


def test_our_rows_without_our_footer_are_damage_not_a_jvm_split(real_split, store):
    data, file, table = real_split
    store.put(file.path, data)
    bundle = read_bundle(store, file.path)
    foreign = data[: bundle.footer_start] + encode_footer(bundle.manifest, b"another hot cache")
    store.put("odd.split", foreign)
    with pytest.raises(SplitCorruptedError, match="checksum"):
        open_split(store, "odd.split", shape=TableShape(table.schema))
