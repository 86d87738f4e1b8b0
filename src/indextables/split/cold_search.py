"""Searches indexes in the cache: complete ones, and those of which only what the query needs is fetched.

    fetch what the query needs, round by round -> search -> has the search read anything else?
        no:  the answer is right
        yes: fetch that, open the index again, and repeat; after some failures, fetch the whole index

A hole reads as zeros, and the answer may be wrong without an error, so every search of an incomplete index is checked.
"""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
import tantivy

from indextables._caching import LruCache, lazy_property, shared_cache
from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.metrics import CACHE_HITS, CACHE_MISSES, INDEX_PREDICTION_MISSES
from indextables.split.cold_data import ColdData
from indextables.split.index_cache import IndexCache
from indextables.split.index_chunks import ChunkedIndex
from indextables.split.needs import Needs
from indextables.split.prediction import rounds
from indextables.split.residency import PageCache, page_cache, read_ahead, read_single_pages
from indextables.split.sparse_index import Holes, LostEntryError, SparseIndex

# An index of this size in the split is fetched whole: its requests would take longer than its bytes.
_SMALL_INDEX_BYTES: Final = 1024**2
# After so many wrong predictions, or so many searches during which another one filled the index, all of it is fetched.
_MAX_MISSES: Final = 2
_MAX_SEARCHES: Final = 8
# How often an entry that disappears is created again.
_MAX_LOSSES: Final = 3
# For how many queries a process remembers that everything they need is present.
_REMEMBERED_NEEDS: Final = 64

T = TypeVar("T")


class CachedIndex(msgspec.Struct, frozen=True):
    """An index in the cache, by its key, and how to open it from its directory.

    Searchers of the same index that find other rows, because some are deleted, have another `variant`.
    """

    cache: IndexCache
    key: str
    open: Callable[[Path], tantivy.Searcher]
    table: str
    variant: str = ""

    def kept(self) -> Any:
        """Return what this process keeps open of the index."""
        return self.cache.kept(self.key, self.variant)

    def keep(self, directory: Path, value: object) -> None:
        """Keep what was opened from the leased directory of the index."""
        self.cache.keep(self.key, directory, value, self.variant)

    def forget(self) -> None:
        """Keep nothing of the index open."""
        self.cache.forget(self.key, self.variant)

    def record(self, *, is_hit: bool) -> None:
        """Count the use of the cache."""
        (CACHE_HITS if is_hit else CACHE_MISSES).record(1, self.table, cache="indexes")


class Warmed(NamedTuple):
    """How many bytes of the split were fetched into the cache, and how many did not fit there."""

    fetched_bytes: int
    left_bytes: int


HasRoom: TypeAlias = Callable[[int], bool]
"""Returns whether a cache has room for so many bytes."""


class _CompleteIndex(NamedTuple):
    """A searcher that was opened after all of the index was present."""

    searcher: tantivy.Searcher


# Indexes whose files a process keeps open. An index has up to ten files.
_OPEN_FILES: LruCache[str, SparseIndex] = shared_cache(
    "split.cold_search.files", "open files of incomplete indexes", max_entries=32
)


class _SparseSearcher:
    """A searcher of an incomplete index, which the threads of a process share.

    Tantivy remembers what it has read, so a searcher that has read a hole may give wrong answers later, to any
    thread. Searches that overlap are therefore checked against the holes at the start of the first of them, and a
    searcher that fails a check is not used again.
    """

    def __init__(
        self, searcher: tantivy.Searcher, directory: Path, copy: str, holes: Holes, *, reads_ahead: bool
    ) -> None:
        self.searcher = searcher
        self.directory = directory
        self.copy = copy
        self.satisfied: LruCache[Needs, bool] = LruCache(max_entries=_REMEMBERED_NEEDS)
        self._holes = holes
        self._lock = threading.Lock()
        # The search that opened it is running.
        self._running = 1
        self._is_spoiled = False
        self._reads_ahead = reads_ahead

    def start(self, files: SparseIndex) -> Holes | None:
        """Start another search, and return the holes that it must not have read; None if the searcher is spoiled."""
        with self._lock:
            if self._is_spoiled:
                return None
            if self._reads_ahead:
                self._reads_ahead = False
                read_single_pages(self.directory)
            if not self._running:
                self._holes = files.holes(self._holes)
            self._running += 1
            return self._holes

    def finish(self, *, is_clean: bool) -> None:
        """Finish a search that `start` started, or the first one."""
        with self._lock:
            self._running -= 1
            self._is_spoiled |= not is_clean


def search_complete(
    cached: CachedIndex, fill: Callable[[Path], None], function: Callable[[tantivy.Searcher], T]
) -> T:
    """Search an index that `fill` writes whole. Raises what `IndexCache.lease`, `fill` and `function` raise."""

    def search() -> T:
        kept = cached.kept()
        if kept is None:
            is_hit = True

            def create(directory: Path) -> None:
                nonlocal is_hit
                is_hit = False
                fill(directory)

            with cached.cache.lease(cached.key, create) as directory:
                kept = _CompleteIndex(cached.open(directory))
                cached.keep(directory, kept)
            cached.record(is_hit=is_hit)
        else:
            cached.record(is_hit=True)
        searcher: tantivy.Searcher = kept.searcher
        return function(searcher)

    return _with_sound_entry(cached, search)


def search_sparse(
    cached: CachedIndex,
    index: ChunkedIndex,
    cold: Callable[[], ColdData],
    needs: Needs,
    function: Callable[[tantivy.Searcher], T],
) -> T:
    """Search an index of which at least what the query needs is fetched.

    `function` may be called several times; it returns its whole answer. Raises IndexCacheError, storage errors,
    SplitCorruptedError and what `function` raises.
    """

    def search() -> T:
        kept = cached.kept()
        if isinstance(kept, _CompleteIndex):
            cached.record(is_hit=True)
            return function(kept.searcher)
        search = _Search(cached, index, cold, needs, function)
        answer = search.again(kept) if isinstance(kept, _SparseSearcher) else None
        return search.run() if answer is None else answer[0]

    return _with_sound_entry(cached, search)


def warm_complete(
    cached: CachedIndex, fill: Callable[[Path], None], split_bytes: int, has_room: HasRoom
) -> Warmed:
    """Put an index into the cache that `fill` writes whole from a split of this size. Raises as `search_complete` does.

    How large the index becomes is not known before; it has about the size of its split.
    """
    if cached.cache.entry_size(cached.key) is None and not has_room(split_bytes):
        return Warmed(0, split_bytes)

    def warm() -> Warmed:
        fetched_bytes = 0

        def create(directory: Path) -> None:
            nonlocal fetched_bytes
            fill(directory)
            fetched_bytes = split_bytes

        with cached.cache.lease(cached.key, create):
            return Warmed(fetched_bytes, 0)

    return _with_sound_entry(cached, warm)


def warm_sparse(
    cached: CachedIndex, index: ChunkedIndex, cold: Callable[[], ColdData], needs: Needs, has_room: HasRoom
) -> Warmed:
    """Fetch what these needs predict into the cache, without a search. Raises as `search_sparse` does."""
    whole_bytes = int(index.lengths.sum())
    if (
        cached.cache.entry_size(cached.key) is None
        and _is_created_whole(cached, index)
        and not has_room(whole_bytes)
    ):
        return Warmed(0, whole_bytes)

    def warm() -> Warmed:
        fetched_bytes = 0

        def create(directory: Path) -> None:
            nonlocal fetched_bytes
            fetched_bytes = _create_entry(directory, cached, index, cold())

        with (
            cached.cache.lease(cached.key, create) as directory,
            contextlib.closing(SparseIndex.find(directory, index, cached.cache.growth)) as files,
        ):
            for ranges in rounds(files, cold(), needs):
                missing_bytes = files.missing_bytes(ranges)
                if missing_bytes and not has_room(missing_bytes):
                    return Warmed(fetched_bytes, missing_bytes)
                fetched_bytes += files.ensure(ranges)
        return Warmed(fetched_bytes, 0)

    return _with_sound_entry(cached, warm)


def _create_entry(directory: Path, cached: CachedIndex, index: ChunkedIndex, cold: ColdData) -> int:
    """Create an entry: with what opening needs, or whole if the index is small or holes cannot be watched.

    Returns how many bytes of the split were fetched.
    """
    fetched_bytes = SparseIndex.create(directory, index, cold.opening)
    if _is_created_whole(cached, index):
        # The cache measures a new entry itself.
        new = SparseIndex.find(directory, index, lambda _: contextlib.nullcontext())
        with contextlib.closing(new):
            fetched_bytes += new.complete()
    return fetched_bytes


def is_small(index: ChunkedIndex) -> bool:
    """Whether the cache gets the whole index with its first search."""
    return index.stored_bytes <= _SMALL_INDEX_BYTES


def _is_created_whole(cached: CachedIndex, index: ChunkedIndex) -> bool:
    return is_small(index) or _page_cache(cached) is None


def _page_cache(cached: CachedIndex) -> PageCache | None:
    root = cached.cache.root
    try:
        return page_cache(root)
    except OSError as error:
        raise IndexCacheError(
            f"the index cache in {root} is unusable: {error}; free disk space, or set another directory"
        ) from error


def _with_sound_entry(cached: CachedIndex, search: Callable[[], T]) -> T:
    """Search, and create the entry again if it has disappeared, or was damaged after it was verified."""
    losses = 0
    is_damaged = False
    while True:
        try:
            return search()
        except LostEntryError:
            losses += 1
            if losses > _MAX_LOSSES:
                raise
        except SplitCorruptedError:
            if is_damaged:
                raise
            is_damaged = True
        cached.forget()
        cached.cache.discard(cached.key)


class _Search(Generic[T]):
    """One search of an index that may be incomplete."""

    def __init__(
        self,
        cached: CachedIndex,
        index: ChunkedIndex,
        cold: Callable[[], ColdData],
        needs: Needs,
        function: Callable[[tantivy.Searcher], T],
    ) -> None:
        self._cached = cached
        self._index = index
        self._read_cold = cold
        self._needs = needs
        self._function = function
        self._is_hit = True
        self._is_new = False
        self._misses = 0

    @lazy_property
    def _cold(self) -> ColdData:
        return self._read_cold()

    def again(self, kept: _SparseSearcher) -> tuple[T] | None:
        """Search with an open searcher if it has what the query needs; None if that fails.

        An entry that another process removes meanwhile stays usable.
        """
        pages = _page_cache(self._cached)
        if pages is None or kept.satisfied.get(self._needs) is None:
            return None
        files = _OPEN_FILES.get(kept.copy)
        if files is None:
            files = SparseIndex(kept.directory, self._index, kept.copy, self._cached.cache.growth)
            files = _OPEN_FILES.setdefault(kept.copy, files)
        holes = kept.start(files)
        answer = None if holes is None else self._checked(files, pages, holes, kept)
        if answer is not None:
            self._cached.record(is_hit=True)
        return answer

    def run(self) -> T:
        """Search until an answer passes the check."""
        cache = self._cached.cache
        with cache.lease(self._cached.key, self._create) as directory:
            files = SparseIndex.find(directory, self._index, cache.growth)
            files = _OPEN_FILES.get(files.copy) or files
            pages = _page_cache(self._cached)
            searches = 0
            while True:
                if pages is None or self._misses > _MAX_MISSES or searches >= _MAX_SEARCHES:
                    self._is_hit &= not files.complete()
                answer = self._search_once(files, directory, pages)
                if answer is not None:
                    self._cached.record(is_hit=self._is_hit)
                    return answer[0]
                searches += 1

    def _create(self, directory: Path) -> None:
        self._is_hit = False
        self._is_new = True
        _create_entry(directory, self._cached, self._index, self._cold)

    def _search_once(self, files: SparseIndex, directory: Path, pages: PageCache | None) -> tuple[T] | None:
        """Fetch what is predicted, search, and return the answer if the search read nothing else."""
        kept = self._kept(files)
        is_satisfied = kept is not None and kept.satisfied.get(self._needs) is not None
        if not is_satisfied and not files.is_complete():
            for ranges in rounds(files, self._cold, self._needs):
                self._is_hit &= not files.ensure(ranges)
        holes = files.holes()
        if not holes.ranges or pages is None:
            _OPEN_FILES.discard(files.copy)
            return (self._function(self._open_complete(directory)),)
        started = None if kept is None else kept.start(files)
        if kept is not None and started is not None:
            return self._checked(files, pages, started, kept)
        return self._open_and_search(files, directory, pages, holes)

    def _open_and_search(
        self, files: SparseIndex, directory: Path, pages: PageCache, holes: Holes
    ) -> tuple[T] | None:
        """Open the index and search it; what opening reads is checked, too.

        Pages that have left memory must not bring those of holes with them when they are read again. What this search
        has just written is in memory.
        """
        is_in_memory = self._is_new and not self._misses
        if not is_in_memory:
            files.load(part for part, _ in self._cold.opening)
        try:
            searcher = self._cached.open(directory)
        except SplitCorruptedError:
            if self._is_clean(files, pages, holes):
                raise
            return None
        if not is_in_memory:
            read_single_pages(directory)
        opened = _SparseSearcher(searcher, directory, files.copy, holes, reads_ahead=is_in_memory)
        answer = self._checked(files, pages, holes, opened)
        if answer is not None:
            self._cached.keep(directory, opened)
            _OPEN_FILES.put(files.copy, files)
        return answer

    def _checked(
        self, files: SparseIndex, pages: PageCache, holes: Holes, opened: _SparseSearcher
    ) -> tuple[T] | None:
        """Search, and return the answer if no hole was read."""
        is_clean = False
        evictions = pages.evictions_unseen()

        def check() -> bool:
            return self._is_clean(files, pages, holes) and pages.evictions_unseen() == evictions

        try:
            try:
                answer = self._function(opened.searcher)
            except Exception:
                # A hole may look like a damaged index.
                is_clean = check()
                if is_clean:
                    raise
                return None
            is_clean = check()
            if not is_clean:
                return None
            opened.satisfied.put(self._needs, True)
            return (answer,)
        finally:
            opened.finish(is_clean=is_clean)
            if not is_clean:
                self._cached.forget()

    def _is_clean(self, files: SparseIndex, pages: PageCache, holes: Holes) -> bool:
        """Return whether no hole was read; fetch those that were.

        A hole that another search has filled meanwhile may have been read before, but was predicted there.
        """
        touched = files.read_holes(holes, pages)
        if not touched:
            return True
        if files.still_absent(touched):
            self._misses += 1
            INDEX_PREDICTION_MISSES.record(1, self._cached.table)
        files.ensure(touched)
        return False

    def _kept(self, files: SparseIndex) -> _SparseSearcher | None:
        """Return the searcher that this process has of this copy of the index."""
        kept = self._cached.kept()
        return kept if isinstance(kept, _SparseSearcher) and kept.copy == files.copy else None

    def _open_complete(self, directory: Path) -> tantivy.Searcher:
        kept = self._cached.kept()
        if isinstance(kept, _CompleteIndex):
            return kept.searcher
        opened = _CompleteIndex(self._cached.open(directory))
        if kept is not None:
            # Tantivy may share mappings with the searcher that was opened before.
            read_ahead(directory)
        self._cached.keep(directory, opened)
        return opened.searcher
