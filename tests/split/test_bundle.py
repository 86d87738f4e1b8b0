"""The layout of a split: a Parquet file with an index, one request for its tail, and every kind of damage."""

import contextlib
import hashlib
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from indextables.split.bundle import METADATA_KEY, decode_tail, read_bundle
from indextables.split.index_cache import IndexCache
from indextables.split.jvm_bundle import MAX_FOOTER_BYTES
from indextables.split.reader import open_split
from indextables.storage import open_store
from support.faults import FaultStore
from support.split_samples import PREFIX, opened, read_all, searcher_of, write_split


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "table")


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
    searcher_of(split, IndexCache(cache_root, 10**8))
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


def test_a_split_is_a_parquet_file_that_describes_itself(real_split, store):
    data, file, table = real_split
    parquet = pq.ParquetFile(pa.BufferReader(data))
    assert parquet.read().equals(table)
    document = json.loads(parquet.metadata.metadata[METADATA_KEY])
    assert (document["formatVersion"], document["numRecords"]) == (2, 300)
    start, end = document["manifest"]
    manifest = json.loads(data[start:end])
    assert document["coldData"] == [file.footer_start_offset, start]
    assert {"meta.json"} < set(manifest["files"])
    assert document["bodyChecksum"] == hashlib.sha256(data[: file.footer_start_offset]).hexdigest()


def test_one_request_reads_the_tail(real_split, store):
    data, file, _ = real_split
    store.put(file.path, data)
    counting = FaultStore(store)
    opened(counting, file)
    assert [call.operation for call in counting.calls] == ["get_range"]


def test_the_tail_is_found_without_offsets(real_split, store):
    data, file, _ = real_split
    store.put(file.path, data)
    bundle = read_bundle(store, file.path)
    assert (bundle.footer_start, bundle.footer_end) == (file.footer_start_offset, len(data))


@pytest.mark.parametrize("first_read", [1, 8, 100, 2000])
def test_a_tail_longer_than_the_first_read_is_read_on(real_split, store, monkeypatch, first_read):
    data, file, _ = real_split
    monkeypatch.setattr("indextables.split.bundle._FIRST_READ_BYTES", max(first_read, 8))
    store.put(file.path, data)
    assert read_bundle(store, file.path).footer_start == file.footer_start_offset


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 50), (0, MAX_FOOTER_BYTES + 1), (3, 2**62)])
def test_impossible_offsets_of_a_tail_are_rejected_without_reading(real_split, store, start, end):
    data, file, _ = real_split
    store.put(file.path, data)
    counting = FaultStore(store)
    with pytest.raises(SplitCorruptedError):
        read_bundle(counting, file.path, None, start, end)
    assert not counting.calls


@pytest.mark.parametrize("shift", [-5, 1, 20])
def test_a_tail_that_starts_elsewhere_is_an_error(real_split, store, shift):
    data, file, _ = real_split
    store.put(file.path, data)
    with pytest.raises(SplitCorruptedError):
        open_split(store, file.path, file.size, file.footer_start_offset + shift, file.footer_end_offset)


def resealed(tail: bytes, old: bytes, new: bytes) -> bytes:
    """Replace bytes of a tail by as many others, and correct its checksum, as a malicious writer would."""
    assert len(old) == len(new)
    assert old in tail
    changed = tail.replace(old, new)
    at = changed.rindex(b'{"checksum":"') + 13
    digest = hashlib.sha256(changed[:at] + b"0" * 64 + changed[at + 64 :]).hexdigest().encode()
    return changed[:at] + digest + changed[at + 64 :]


def test_a_newer_version_of_the_format_is_reported(real_split):
    data, file, _ = real_split
    tail = resealed(data[file.footer_start_offset :], b'"formatVersion":2', b'"formatVersion":9')
    with pytest.raises(UnsupportedSplitError, match="format version 9"):
        decode_tail(tail, file.footer_start_offset, "here")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"meta.json"', b'"../a.json"'),
        (b'"meta.json"', b'"meta/json"'),
        (b'"chunkBytes":16384', b'"chunkBytes":99999'),
        (b'"numRecords":300', b'"numRecords":"x"'),
        (b'"coldData":[', b'"coldDatX":['),
        (b'"files":{', b'"filez":{'),
    ],
)
def test_a_tail_with_a_right_checksum_and_wrong_content_is_an_error(real_split, old, new):
    data, file, _ = real_split
    tail = resealed(data[file.footer_start_offset :], old, new)
    with pytest.raises(SplitCorruptedError):
        decode_tail(tail, file.footer_start_offset, "here")


def test_a_column_name_that_is_no_text_is_an_error(real_split, store):
    data, file, _ = real_split
    start = file.footer_start_offset
    store.put(file.path, data[:start] + data[start:].replace(b"text", b"t\x8fxt"))
    with pytest.raises(SplitCorruptedError, match="the Parquet metadata cannot be read"):
        opened(store, file)


def test_a_parquet_file_without_an_index_is_not_a_split(store):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1]}), sink)
    store.put("x.split", sink.getvalue().to_pybytes())
    with pytest.raises(SplitCorruptedError, match="without an index"):
        open_split(store, "x.split")


def test_a_split_written_again_by_a_parquet_tool_is_not_a_split(real_split, store):
    data, _, _ = real_split
    source = pq.ParquetFile(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    table = source.read().replace_schema_metadata({METADATA_KEY: source.metadata.metadata[METADATA_KEY]})
    pq.write_table(table, sink)
    store.put("x.split", sink.getvalue().to_pybytes())
    with pytest.raises(SplitCorruptedError):
        open_split(store, "x.split")
