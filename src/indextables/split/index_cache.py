"""A bounded cache of index directories on local disk, shared by all tables and processes of a user.

    <root>/entries/<key>.<boot>/   entries, renamed into place; some of them grow afterwards
    <root>/new/<name>/             entries under construction or being deleted; the process that works on one locks
                                   it, so a sweep recognizes the remains of a crash
    <root>/locks/<nn>              locks, each for the keys that hash to its number
    <root>/locks/room.<boot>       the lock for adding and growing entries; it holds their total size, or more

A process uses an entry under a shared lock and removes one under an exclusive lock, without waiting: entries in use
are not evicted. The modification time of an entry's directory is the time of its last use. Nothing is synced to disk:
a crash of the machine may lose what was written, so entries are used only until it starts again, as the id of its boot
tells. The older ones are the least recently used.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from indextables._caching import LruCache, lazy_property, shared_memo
from indextables.config import Settings
from indextables.config.registry import DISK_CACHE_MAX_SIZE, DISK_CACHE_PATH
from indextables.errors import IndexCacheError

PRIVATE: Final = 0o700

_STRIPES: Final = 1024
# Entries that a process keeps open. Each maps about ten files; Linux allows a process 65,530 mappings.
_OPEN_ENTRIES: Final = 256
# Room is made for more than one entry, because it means measuring them all: the cache is filled up to this part of it.
_FULL: Final = 0.9
# The record of the room: two numbers of this many digits.
_SIZE_DIGITS: Final = 20
_ROOM_BYTES: Final = 2 * _SIZE_DIGITS
# Searches may be too frequent to check the file system for each one.
_RECHECK_SECONDS: Final = 1.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_BOOT_DIGITS: Final = 16
_BLOCK_BYTES: Final = 512


def index_cache(settings: Settings) -> "IndexCache":
    """Return the cache in the configured directory, or in the user's cache directory."""
    configured = settings[DISK_CACHE_PATH]
    user_caches = None if configured else os.environ.get("XDG_CACHE_HOME")
    return _index_cache(configured, user_caches, settings[DISK_CACHE_MAX_SIZE])


@shared_memo("split.index_cache.caches", "index caches by directory", max_entries=16)
def _index_cache(configured: str | None, user_caches: str | None, max_bytes: int) -> "IndexCache":
    if configured:
        return IndexCache(Path(configured), max_bytes)
    base = Path(user_caches) if user_caches else Path.home() / ".cache"
    return IndexCache(base / "indextables", max_bytes)


class CacheEntry(msgspec.Struct, frozen=True):
    """An entry: its directory, its size on disk, and the time of its last use."""

    path: Path
    size: int
    used_ns: int


class _Room(NamedTuple):
    """The total size of all entries, or more, and how often they have been measured."""

    used: int
    measurements: int


class _KeptValue(msgspec.Struct):
    """What a process opened from an entry, and when the entry was last seen on disk."""

    path: str
    value: Any
    seen_seconds: float


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Return the key of an entry; the parts must cover everything that its content depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


class IndexCache:
    """Directories by key; the least recently used are evicted when all together exceed `max_bytes`.

    What is in use cannot be evicted: the cache is larger than this only by what running searches use or write.

    Keys come from `cache_key` and include a checksum of the source of the entry. A caller knows that only after reading
    the source with its own credentials, so it cannot reach entries of another table, of another version of a file,
    or of a file that it may not read. The directory is private to its user.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._is_ready = False
        self._kept: LruCache[str, _KeptValue] = LruCache(max_entries=_OPEN_ENTRIES)

    @property
    def root(self) -> Path:
        return self._root

    @property
    def max_bytes(self) -> int:
        return self._max_bytes

    @property
    def identity(self) -> str:
        """What tells this cache from those of other machines. Processes that see the same one share entries."""
        with self._translating():
            self._prepare()
            found = self._root.stat()
        return self._name(f"{socket.gethostname()}.{found.st_dev}.{found.st_ino}")

    def kept(self, key: str, variant: str = "") -> Any:
        """Return what `keep` kept for a variant of an entry; None if the entry is gone.

        The removal of an entry by another process is noticed within a second. Raises IndexCacheError.
        """
        name = self._name(key) + variant
        kept = self._kept.get(name)
        if kept is None:
            return None
        now = time.monotonic()
        if now - kept.seen_seconds >= _RECHECK_SECONDS:
            with self._translating():
                if not _touch(kept.path):
                    self._kept.discard(name)
                    return None
            kept.seen_seconds = now
        return kept.value

    def keep(self, key: str, directory: Path, value: object, variant: str = "") -> None:
        """Keep what was opened from the leased directory of an entry, unless that is removed after the lease."""
        if directory == self._entry(key):
            self._kept.put(self._name(key) + variant, _KeptValue(str(directory), value, time.monotonic()))

    def forget(self, key: str, variant: str = "") -> None:
        """Keep nothing for an entry any more."""
        self._kept.discard(self._name(key) + variant)

    @contextlib.contextmanager
    def lease(self, key: str, fill: Callable[[Path], None]) -> Iterator[Path]:
        """Hold the directory of an entry for the duration of the block; `fill` creates it if it is missing.

        `fill` gets an empty directory; if it fails, nothing is kept. If several processes need the same entry, one
        creates it. An entry larger than the whole cache is created, and removed after the block. Files opened
        in the block stay readable after it. Raises IndexCacheError, and what `fill` raises.
        """
        with self._translating():
            self._prepare()
            lock = self._lock(self._name(key))
        try:
            with self._translating():
                exists = self._lock_entry(key, lock)
            if exists:
                yield self._entry(key)
                return
            with self._create(key, lock, fill) as path:
                yield path
        finally:
            os.close(lock)
            self._shrink()

    @contextlib.contextmanager
    def growth(self, size: int) -> Iterator[None]:
        """Make room for bytes by which a leased entry grows in the block.

        If the other entries do not leave enough room, the entry exceeds the bound until its lease ends. Raises
        IndexCacheError.
        """
        reserved = self._reserve(size)
        try:
            yield
        finally:
            with self._translating():
                self._count_again(size, reserved)

    def entries(self) -> list[CacheEntry]:
        """Return the entries, least recently used first."""
        with self._translating():
            self._prepare()
            found = [_entry_of(path) for path in (self._root / "entries").iterdir()]
        return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.used_ns)

    def entry_size(self, key: str) -> int | None:
        """Return the size of an entry; None if there is none."""
        with self._translating():
            self._prepare()
            found = _entry_of(self._entry(key))
        return None if found is None else found.size

    def has_room(self, size: int, since_ns: int) -> bool:
        """Return whether bytes fit without evicting an entry that was used since a moment. Raises IndexCacheError."""
        with self._translating():
            self._prepare()
            with self._locked_room() as descriptor:
                room = _read_room(descriptor)
        if room is not None and room.used + size <= self._max_bytes:
            return True
        entries = self.entries()
        if sum(entry.size for entry in entries) + size <= self._max_bytes:
            return True
        recent = sum(entry.size for entry in entries if entry.used_ns >= since_ns)
        return recent + size <= self._max_bytes * _FULL

    @contextlib.contextmanager
    def claims(self, work: str) -> Iterator[Callable[[int], bool]]:
        """Divide numbered work among processes: the function returns True for the first one that claims a number.

        What was claimed is forgotten once none of them is in the block. Raises IndexCacheError.
        """
        with self._translating():
            self._prepare()
            guarded = _shared_guarded_directory(self._root / "new" / work)
        try:

            def claim(number: int) -> bool:
                with self._translating():
                    return _is_created(guarded.path / str(number))

            yield claim
        finally:
            guarded.close_shared()

    def size(self) -> int:
        """Return the total size of all entries."""
        return sum(entry.size for entry in self.entries())

    def discard(self, key: str) -> None:
        """Remove an unusable entry, unless it is in use."""
        self._evict(CacheEntry(self._entry(key), 0, 0))

    def flush(self) -> int:
        """Remove all entries that are not in use, and the remains of crashes; return the bytes freed."""
        freed = sum(entry.size for entry in self.entries() if self._evict(entry))
        with self._translating():
            sweep_abandoned(self._root / "new", "")
        return freed

    @contextlib.contextmanager
    def _create(self, key: str, lock: int, fill: Callable[[Path], None]) -> Iterator[Path]:
        """Create an entry, while holding the exclusive lock on its key."""
        with self._translating():
            sweep_abandoned(self._root / "new", "")
            new = new_guarded_directory(self._root / "new", "")
        try:
            with self._translating():
                fill(new.path)
                size = _allocated(new.path)
                if self._boot is None:
                    _flush_files(new.path)
                fits = size <= self._max_bytes
                path = self._place(new.path, key, size) if fits else new.path
                # Other processes may read it now, but not remove it before the block ends.
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield path
        finally:
            new.close()

    def _lock_entry(self, key: str, lock: int) -> bool:
        """Wait for the lock: shared if the entry exists, exclusive if it must be created."""
        path = self._entry(key)
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if _touch(path):
                return True
            # Converting a lock releases it for a moment, in which another process may create or remove the entry.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_dir():
                return False

    def _place(self, directory: Path, key: str, size: int) -> Path:
        """Make room for an entry and rename it into place."""
        path = self._entry(key)
        with self.growth(size):
            directory.rename(path)
        if self._boot is None:
            _flush(path.parent)
        return path

    def _reserve(self, size: int) -> _Room:
        """Make room, one process at a time, and count the bytes before they exist: a crash leaves them counted."""
        with self._translating(), self._locked_room() as descriptor:
            room = _read_room(descriptor)
            if room is None or room.used + size > self._max_bytes:
                room = _Room(self._make_room(size), 1 if room is None else room.measurements + 1)
            room = _Room(room.used + size, room.measurements)
            _write_room(descriptor, room)
        return room

    def _shrink(self) -> None:
        """Make room if entries that were in use exceed the bound. The last process that used one does it."""
        with self._translating():
            descriptor = os.open(self._room, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                room = _read_room(descriptor)
            finally:
                os.close(descriptor)
        if room is not None and room.used > self._max_bytes:
            self._reserve(0)

    def _count_again(self, size: int, reserved: _Room) -> None:
        """Add bytes to the total if all entries were measured while these were written, and may not have counted."""
        with self._locked_room() as descriptor:
            room = _read_room(descriptor)
            if room is not None and room.measurements != reserved.measurements:
                _write_room(descriptor, _Room(room.used + size, room.measurements))

    @contextlib.contextmanager
    def _locked_room(self) -> Iterator[int]:
        descriptor = os.open(self._room, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _make_room(self, size: int) -> int:
        """Evict entries until another one fits, and return the size of those that are left."""
        entries = self.entries()
        used = sum(entry.size for entry in entries)
        if used + size <= self._max_bytes:
            return used
        for entry in entries:
            if used + size <= self._max_bytes * _FULL:
                break
            if self._evict(entry):
                used -= entry.size
        return used

    def _evict(self, entry: CacheEntry) -> bool:
        """Remove an entry unless it is in use, and return whether it was removed."""
        self._kept.discard(entry.path.name)
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
        self._root.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        for name in ("entries", "new", "locks"):
            (self._root / name).mkdir(exist_ok=True, mode=PRIVATE)
        self._root.chmod(PRIVATE)
        self._is_ready = True

    def _lock(self, name: str) -> int:
        stripe = int(hashlib.sha256(name.encode()).hexdigest(), 16) % _STRIPES
        path = self._root / "locks" / f"{stripe:03x}"
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _entry(self, key: str) -> Path:
        return self._root / "entries" / self._name(key)

    def _name(self, key: str) -> str:
        return key if self._boot is None else f"{key}.{self._boot}"

    @lazy_property
    def _room(self) -> str:
        return str(self._root / "locks" / self._name("room"))

    @lazy_property
    def _boot(self) -> str | None:
        """The id of the machine's boot, shortened; None where there is none."""
        try:
            return _BOOT_ID.read_text().strip().replace("-", "")[:_BOOT_DIGITS] or None
        except OSError:
            return None

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> IndexCacheError:
        return IndexCacheError(
            f"the index cache in {self._root} is unusable: {error}; free disk space, or set another directory"
        )


def _touch(path: Path | str) -> bool:
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _entry_of(path: Path) -> CacheEntry | None:
    try:
        return CacheEntry(path, _allocated(path), path.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_room(descriptor: int) -> _Room | None:
    """Return the record of the room; None if no process has written it completely."""
    text = os.pread(descriptor, _ROOM_BYTES + 1, 0)
    if len(text) != _ROOM_BYTES or not text.isdigit():
        return None
    return _Room(int(text[:_SIZE_DIGITS]), int(text[_SIZE_DIGITS:]))


def _write_room(descriptor: int, room: _Room) -> None:
    os.pwrite(descriptor, b"%0*d%0*d" % (_SIZE_DIGITS, room.used, _SIZE_DIGITS, room.measurements), 0)


def _allocated(directory: Path) -> int:
    """Return the size on disk of the files in a directory: holes do not count."""
    with os.scandir(directory) as files:
        return sum(file.stat().st_blocks for file in files) * _BLOCK_BYTES


def _flush_files(directory: Path) -> None:
    """Sync the files of a directory to disk."""
    for path in directory.iterdir():
        _flush(path)
    _flush(directory)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Local directories for work in progress. A lock, which ends with its process, tells them from the remains of a crash.


class GuardedDirectory(msgspec.Struct, frozen=True):
    """A directory that no sweep removes until it is closed."""

    path: Path
    guard: int
    process: int = msgspec.field(default_factory=os.getpid)

    def close(self) -> None:
        """Remove the directory, unless it was renamed, and release the lock.

        A forked process that leaves a block of its parent does not remove the directory of that block.
        """
        if self.process == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.guard)

    def close_shared(self) -> None:
        """Release a shared lock, and remove the directory if no other process has one."""
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self.guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.guard)


def new_guarded_directory(parent: Path, prefix: str) -> GuardedDirectory:
    """Create an empty, private, locked directory. Raises OSError."""
    while True:
        path = parent / f"{prefix}{uuid.uuid4().hex}"
        path.mkdir(mode=PRIVATE)
        with contextlib.suppress(FileNotFoundError):
            guard = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(guard, fcntl.LOCK_EX)
            # Before the lock was taken, another process may have swept the directory away.
            if path.is_dir():
                return GuardedDirectory(path, guard)
            os.close(guard)


def _shared_guarded_directory(path: Path) -> GuardedDirectory:
    """Create a directory, or open the one that another process has created, and lock it with it. Raises OSError."""
    while True:
        path.mkdir(mode=PRIVATE, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            guard = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(guard, fcntl.LOCK_SH)
            # Before the lock was taken, another process may have removed the directory, and a third one created it.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(guard), path.stat()):
                    return GuardedDirectory(path, guard)
            os.close(guard)


def _is_created(path: Path) -> bool:
    """Create a file, and return whether it did not exist. Raises OSError."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def sweep_abandoned(parent: Path, prefix: str) -> None:
    """Remove the unlocked directories with this prefix."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(parent):  # noqa: PTH208  # a Path for each of many files takes long
            if name.startswith(prefix):
                _remove_if_abandoned(parent / name)


def _remove_if_abandoned(path: Path) -> None:
    # Another user's, already removed, a link, or not a directory: leave it alone.
    with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError, OSError):
        guard = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Before the lock was taken, the directory may have been removed, and another one created by this name.
            if os.path.samestat(os.fstat(guard), path.lstat()):
                shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            return
        finally:
            os.close(guard)
