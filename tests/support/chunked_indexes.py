"""Indexes inside a file of a store, as in a split, and ways to search them through the cache."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import tantivy

from indextables.search.compile import SearchScope, compile_query
from indextables.search.hits import count_index, search_index
from indextables.search.parser import parse_query
from indextables.split.cold_data import ColdData
from indextables.split.cold_search import CachedIndex, search_sparse
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.index_builder import IndexBuilder
from indextables.split.index_cache import IndexCache, cache_key
from indextables.split.index_chunks import ChunkedIndex, ChunkTable, pack
from indextables.split.index_opener import open_index
from indextables.split.needs import NOTHING, ByteRange, Needs
from indextables.split.residency import PAGE_BYTES
from indextables.storage import ObjectStore, open_store
from support.search_indexes import text_field

MAPPING = DocMapping((FieldMapping("n", FieldKind.I64), text_field("body")))
KEY = "index"


class StoredIndex(msgspec.Struct, frozen=True):
    """An index in a file of a store, and the same index in a directory."""

    store: ObjectStore
    index: ChunkedIndex
    opening: tuple[tuple[ByteRange, bytes], ...]
    directory: Path

    def on(self, store: ObjectStore) -> ChunkedIndex:
        """The same index, read through another store."""
        return ChunkedIndex(store, KEY, self.index.sizes, 0, self.index.table)


def store_index(path: Path, rows: int) -> StoredIndex:
    """Build an index of rows that have common, rare and unique words, and write it into a file of a store."""
    directory, whole = path / "built", path / "whole"
    directory.mkdir(parents=True)
    builder = IndexBuilder(directory, MAPPING, 50_000_000)
    body = [f"word w{n % 1000} x{n} y{n * 7919 % rows} z{n * 104729 % rows}" for n in range(rows)]
    builder.add(pa.record_batch({"n": range(rows), "body": body}))
    files = builder.finish()
    shutil.copytree(directory, whole)
    (path / "store").mkdir()
    with (path / "store" / KEY).open("wb") as target:
        packed = pack(files, target)
    sizes = {name: place[2] for name, place in packed.places.items()}
    (path / "sizes").write_bytes(msgspec.json.encode(sizes))
    (path / "chunks").write_bytes(packed.chunks.encode())
    return load_index(path)


def load_index(path: Path) -> StoredIndex:
    """Return an index that `store_index` wrote, perhaps in another process."""
    sizes = msgspec.json.decode((path / "sizes").read_bytes(), type=dict[str, int])
    store = open_store(path / "store")
    index = ChunkedIndex(store, KEY, sizes, 0, ChunkTable.decode((path / "chunks").read_bytes()))
    return StoredIndex(store, index, opening_of(path / "whole", list(sizes)), path / "whole")


def opening_of(directory: Path, names: Sequence[str]) -> tuple[tuple[ByteRange, bytes], ...]:
    """All of `meta.json`, and the last two pages of the other files."""
    found = []
    for name in names:
        data = (directory / name).read_bytes()
        start = 0 if name == "meta.json" else max(0, (len(data) - 1) // PAGE_BYTES - 1) * PAGE_BYTES
        found.append((ByteRange(name, start, len(data)), data[start:]))
    return tuple(found)


def cached(cache: IndexCache) -> CachedIndex:
    """The entry of an index in a cache."""
    return CachedIndex(cache, cache_key([KEY]), lambda directory: open_index(directory, MAPPING, KEY), KEY)


def search(
    cache: IndexCache,
    index: ChunkedIndex,
    opening: Sequence[tuple[ByteRange, bytes]],
    text: str,
    needs: Needs = NOTHING,
) -> list[tuple[float, int]]:
    """Search through the cache; see `answer`."""
    cold = ColdData(tuple(opening), ())
    return search_sparse(cached(cache), index, lambda: cold, needs, lambda searcher: answer(searcher, text))


def answer(searcher: tantivy.Searcher, text: str) -> list[tuple[float, int]]:
    """The number of rows that match a query, and the scores and numbers of the best ones."""
    query = compile_query(parse_query(text), SearchScope(MAPPING))
    hits = search_index(searcher, query, 20)
    return [
        (float(count_index(searcher, query)), -1),
        *zip(hits.scores.tolist(), hits.rows.tolist(), strict=True),
    ]
