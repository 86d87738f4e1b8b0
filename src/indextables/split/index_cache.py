"""A bounded cache of index directories on local disk, shared by processes.

    <root>/entries/<key>/   complete entries, renamed into place
    <root>/new/<name>/      entries under construction, and those on their way out; locked by whoever works
                            on them, so that the remains of a crash are told from work in progress
    <root>/locks/<nn>       locks, each for the keys that share its number

An entry is read under a shared lock and removed under an exclusive one, which is tried and not waited for: an
entry in use is not evicted. The time of its last use is the modification time of its directory.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from indextables._caching import LruCache, shared_memo
from indextables.config import Settings
from indextables.config.registry import DISK_CACHE_MAX_SIZE, DISK_CACHE_PATH
from indextables.errors import IndexCacheError
from indextables.split.guarded_directory import PRIVATE, new_guarded_directory, sweep_abandoned

_STRIPES: Final = 256
# How many entries stay open in a process. Each takes a few files in its address space, and little memory.
_OPEN_ENTRIES: Final = 256
# Searches come faster than the file system can be asked about each.
_SEEN_SECONDS: Final = 1.0

T = TypeVar("T")


class CacheEntry(msgspec.Struct, frozen=True):
    """A complete entry: its directory, its size, and when it was last used."""

    path: Path
    size: int
    used_ns: int


class _OpenEntry(msgspec.Struct):
    """What was made of an entry, and when it was last seen in its place."""

    path: str
    value: Any
    seen: float


def cache_key(parts: Iterable[str | bytes]) -> str:
    """A name for an entry. The parts are to say all that its content depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class IndexCache:
    """Directories by key, the least recently used of which go when there are more than `max_bytes` of them.

    Keys come from `cache_key` and contain a checksum of what the entry was made from, which only those know
    who have just read it from the store with their own credentials: no entry is found through another table,
    another version of a file, or by somebody who may not read it. The directory is private to its user.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._is_ready = False
        self._open_entries: LruCache[str, _OpenEntry] = LruCache(max_entries=_OPEN_ENTRIES)

    @property
    def root(self) -> Path:
        """The directory that the cache is in."""
        return self._root

    @property
    def max_bytes(self) -> int:
        """The size that all entries may reach together."""
        return self._max_bytes

    def opened(self, key: str, fill: Callable[[Path], None], open_entry: Callable[[Path], T]) -> T:
        """What `open_entry` makes of the directory of an entry, which is made by `fill` if it is not there.

        The same object is returned for as long as the entry is there: nobody changes an entry. One that another
        process removed is noticed within a second; what is open of it stays usable. Raises what `lease` and
        `open_entry` raise.
        """
        kept = self._open_entries.get(key)
        if kept is not None and self._is_there(kept):
            kept_value: T = kept.value
            return kept_value
        with self.lease(key, fill) as directory:
            value = open_entry(directory)
            # An entry that is larger than the whole cache goes with the lease.
            if directory == self._entry(key):
                self._open_entries.put(key, _OpenEntry(str(directory), value, time.monotonic()))
        return value

    @contextlib.contextmanager
    def lease(self, key: str, fill: Callable[[Path], None]) -> Iterator[Path]:
        """The directory of an entry, made by `fill` if it is not there. It stays for the time of the block.

        `fill` gets an empty directory; if it fails, nothing is kept. Of several processes that need the same
        entry, one makes it. An entry that is larger than the whole cache is made, and removed after the block.
        Files that were opened in the block stay readable after it. Raises IndexCacheError, and what `fill`
        raises.
        """
        with self._translating():
            self._prepare()
            lock = self._lock(key)
        try:
            with self._translating():
                is_there = self._use(key, lock)
            if is_there:
                yield self._entry(key)
                return
            with self._made(key, lock, fill) as path:
                yield path
        finally:
            os.close(lock)

    def entries(self) -> list[CacheEntry]:
        """The complete entries, the least recently used first."""
        with self._translating():
            self._prepare()
            found = [_measured(path) for path in (self._root / "entries").iterdir()]
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.used_ns)

    def size(self) -> int:
        """The bytes of all complete entries."""
        return sum(entry.size for entry in self.entries())

    def discard(self, key: str) -> None:
        """Remove an entry that turned out to be unusable, unless somebody uses it."""
        self._evict(CacheEntry(self._entry(key), 0, 0))

    def flush(self) -> int:
        """Remove every entry that is not in use, and what crashes have left; the bytes that this freed."""
        freed = sum(entry.size for entry in self.entries() if self._evict(entry))
        with self._translating():
            sweep_abandoned(self._root / "new", "")
        return freed

    @contextlib.contextmanager
    def _made(self, key: str, lock: int, fill: Callable[[Path], None]) -> Iterator[Path]:
        """A new entry; the exclusive lock on its key is held."""
        with self._translating():
            sweep_abandoned(self._root / "new", "")
            new = new_guarded_directory(self._root / "new", "")
        try:
            with self._translating():
                fill(new.path)
                size = _flush_files(new.path)
                fits = size <= self._max_bytes
                path = self._place(new.path, key, size) if fits else new.path
                # Others may read it now; nobody may remove it before the block ends.
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield path
        finally:
            new.close()

    def _is_there(self, kept: _OpenEntry) -> bool:
        now = time.monotonic()
        if now - kept.seen < _SEEN_SECONDS:
            return True
        kept.seen = now
        with self._translating():
            return _touch(kept.path)

    def _use(self, key: str, lock: int) -> bool:
        """Wait for the lock: shared if the entry is there, exclusive if it has to be made."""
        path = self._entry(key)
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _touch(path):
                return True
            # Changing a lock lets go of it for a moment, in which the entry may appear or go.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_dir():
                return False

    def _place(self, directory: Path, key: str, size: int) -> Path:
        """Give a complete entry its name, with room for it. One process at a time, so that the bound holds."""
        path = self._entry(key)
        door = os.open(self._root / "locks" / "room", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(door, fcntl.LOCK_EX)
            self._make_room(size)
            directory.rename(path)
            _flush(path.parent)
        finally:
            os.close(door)
        return path

    def _make_room(self, size: int) -> None:
        entries = self.entries()
        surplus = sum(entry.size for entry in entries) + size - self._max_bytes
        for entry in entries:
            if surplus <= 0:
                return
            if self._evict(entry):
                surplus -= entry.size

    def _evict(self, entry: CacheEntry) -> bool:
        """Remove an entry, unless somebody uses it."""
        self._open_entries.discard(entry.path.name)
        with self._translating():
            lock = self._lock(entry.path.name)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                doomed = self._root / "new" / uuid.uuid4().hex
                entry.path.rename(doomed)
            except (BlockingIOError, FileNotFoundError):
                return False
            finally:
                os.close(lock)
            shutil.rmtree(doomed, ignore_errors=True)
        return True

    def _prepare(self) -> None:
        if self._is_ready:
            return
        for name in ("entries", "new", "locks"):
            (self._root / name).mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        self._root.chmod(PRIVATE)
        self._is_ready = True

    def _lock(self, key: str) -> int:
        stripe = int(hashlib.sha256(key.encode()).hexdigest(), 16) % _STRIPES
        path = self._root / "locks" / f"{stripe:02x}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _entry(self, key: str) -> Path:
        return self._root / "entries" / key

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> IndexCacheError:
        return IndexCacheError(
            f"the index cache in {self._root} cannot be used: {error}; free space there, or use another place"
        )


def _touch(path: Path | str) -> bool:
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _measured(path: Path) -> CacheEntry | None:
    try:
        used_ns = path.stat().st_mtime_ns
        return CacheEntry(path, sum(file.stat().st_size for file in path.iterdir()), used_ns)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _flush_files(directory: Path) -> int:
    """Make the files of a directory durable; their size."""
    size = 0
    for path in directory.iterdir():
        _flush(path)
        size += path.stat().st_size
    _flush(directory)
    return size


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The local cache of indexes, shared by all tables and processes of a user.


def index_cache(settings: Settings) -> IndexCache:
    """The cache that the settings name, or the one in the user's cache directory."""
    own = settings[DISK_CACHE_PATH]
    return _cache(own, None if own else os.environ.get("XDG_CACHE_HOME"), settings[DISK_CACHE_MAX_SIZE])


@shared_memo("split.index_cache.caches", "index caches by directory", max_entries=16)
def _cache(own: str | None, user_caches: str | None, max_bytes: int) -> IndexCache:
    if own:
        return IndexCache(Path(own), max_bytes)
    base = Path(user_caches) if user_caches else Path.home() / ".cache"
    return IndexCache(base / "indextables", max_bytes)
