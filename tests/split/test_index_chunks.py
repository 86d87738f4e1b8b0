"""The packed files of the index: what goes in comes out, and a damaged chunk is an error."""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indextables.errors import SplitCorruptedError
from indextables.split.index_chunks import CHUNK_BYTES, ChunkedIndex, ChunkTable, pack
from indextables.storage import open_store

contents = st.sampled_from(
    [
        b"",
        b"x",
        bytes(CHUNK_BYTES),
        bytes(CHUNK_BYTES + 1),
        np.random.default_rng(1).bytes(3 * CHUNK_BYTES + 7),
        b"tantivy " * 9000,
    ]
)


def packed(folder, files):
    """Pack files behind some other bytes, and return the store and what `pack` returned."""
    paths = []
    for name, content in files.items():
        (folder / name).write_bytes(content)
        paths.append(folder / name)
    target = io.BytesIO(b"rows")
    target.seek(4)
    result = pack(paths, target)
    assert not any(path.exists() for path in paths)
    store = open_store(folder / "store")
    store.put("x", target.getvalue())
    return store, result


def unpacked(store, files, table):
    """All files, from the chunks behind the other bytes."""
    index = ChunkedIndex(store, "x", {name: len(content) for name, content in files.items()}, 4, table)
    found = dict.fromkeys(files, b"")
    if len(table.sizes):
        for numbers, pieces in index.fetch(np.arange(len(table.sizes))):
            name, start = index.place_of(numbers.start)
            assert start == len(found[name])
            assert sum(map(len, pieces)) == index.lengths[numbers].sum()
            found[name] += b"".join(pieces)
    return found


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(st.sampled_from(["a.term", "a.idx", "a.pos", "meta.json"]), contents, min_size=1)
)
def test_files_come_back_as_they_were(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("chunks")
    store, result = packed(folder, files)
    table = ChunkTable.decode(result.chunks.encode())
    assert unpacked(store, files, table) == files
    assert list(result.places) == list(files)


def test_text_is_stored_compressed_and_noise_as_it_is(tmp_path):
    noise = np.random.default_rng(2).bytes(CHUNK_BYTES)
    _, result = packed(tmp_path, {"a": b"word " * 10_000, "b": noise})
    start, end, length = result.places["a"]
    assert end - start < length / 10
    assert result.chunks.sizes[-1] == CHUNK_BYTES


@pytest.mark.parametrize("order", ["tn", "nt", "ttnnt", "ntttn", "tntnt"])
def test_text_and_noise_next_to_each_other_come_back(tmp_path, order):
    text, noise = b"word " * CHUNK_BYTES, np.random.default_rng(4).bytes(CHUNK_BYTES)
    chunks = [
        noise if kind == "n" else text[number : number + CHUNK_BYTES] for number, kind in enumerate(order)
    ]
    files = {"a": b"".join(chunks) + b"the end"}
    store, result = packed(tmp_path, files)
    assert unpacked(store, files, result.chunks) == files


def test_a_changed_byte_of_any_chunk_is_an_error(tmp_path):
    files = {"a": b"word " * 10_000, "b": np.random.default_rng(3).bytes(20_000)}
    store, result = packed(tmp_path, files)
    data = store.get("x")
    for place in [4, 4 + int(result.chunks.ends[2]), len(data) - 1]:
        changed = bytearray(data)
        changed[place] ^= 1
        store.put("x", bytes(changed))
        with pytest.raises(SplitCorruptedError, match=r"chunk of [ab]"):
            unpacked(store, files, result.chunks)


def test_a_chunk_table_of_an_impossible_length_is_an_error():
    with pytest.raises(ValueError, match="7 bytes"):
        ChunkTable.decode(bytes(7))
