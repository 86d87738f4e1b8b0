"""The object store on local disk, with the durability that commits need.

docs/decisions/0002-durable-local-commits.md explains why it does not use obstore.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from indextables.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
    UnsupportedStoreError,
)
from indextables.storage.redaction import fingerprint
from indextables.storage.store import Clock, KeyRange, ObjectMeta, PutOutcome
from indextables.storage.urls import Location, validate_folder, validate_key
from indextables.storage.walk import (
    TEMPORARY_PREFIX,
    WantedKeys,
    files_below,
    folders_in,
    is_empty,
    remove_if_empty,
)

_Result = TypeVar("_Result")

# How often a write creates its folder: another process may remove it, as long as it is empty.
_FOLDER_ATTEMPTS = 4


class LocalStore:
    """A table's root on local disk. A written object survives a crash of the machine, and no reader sees part of it.

    Symbolic links are not listed, and links that leave the root are rejected.
    """

    def __init__(self, location: Location, clock: Clock) -> None:
        self._url = str(location)
        self._root = Path("/", location.path)
        self._clock = clock
        self._identity = fingerprint((self._url,))
        self._durable_directories: set[Path] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"LocalStore({self._url!r})"

    @property
    def url(self) -> str:
        """The canonical URL of the root."""
        return self._url

    @property
    def identity(self) -> str:
        """A cache key that differs between roots."""
        return self._identity

    @property
    def clock(self) -> Clock:
        """The local clock."""
        return self._clock

    def get(self, key: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError."""
        what = f"{self._url}: get {key}"
        with translating(what), self._open(key, what) as (descriptor, size):
            return _read(descriptor, 0, size)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`. Raises ObjectNotFoundError and StorageError."""
        return self.get_ranges(key, ((start, end),))[0]

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return exactly the bytes of several ranges. Raises ObjectNotFoundError and StorageError."""
        what = f"{self._url}: get bytes of {key}"
        with translating(what), self._open(key, what) as (descriptor, size):
            return [_read_exactly(descriptor, start, end, size, what) for start, end in ranges]

    def open_local(self, key: str) -> pa.NativeFile:
        """Open the file of an object. Raises ObjectNotFoundError."""
        what = f"{self._url}: open {key}"
        with translating(what):
            path = self._path(key)
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe could block forever
                raise ObjectNotFoundError(f"{what}: no such object")
            return pa.OSFile(str(path))

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        with translating_writes(f"{self._url}: put {key}"):
            self._in_durable_directory(key, lambda path: replace(path, data))

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free."""
        with translating_writes(f"{self._url}: put {key} if absent"):
            written = self._in_durable_directory(key, lambda path: write_new(path, data))
        return PutOutcome.WRITTEN if written else PutOutcome.EXISTS

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the bytes `expected`, under the lock of its folder.

        On a file system without locks, nothing guards the moment between the comparison and the replacement.
        """
        with translating_writes(f"{self._url}: put {key} if unchanged"):
            written = self._in_durable_directory(key, lambda path: replace_if_unchanged(path, data, expected))
        return PutOutcome.WRITTEN if written else PutOutcome.CHANGED

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        what = f"{self._url}: head {key}"
        with translating(what):
            status = self._path(key).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError(f"{what}: no such object")
        return _meta(key, status)

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder in the string order of their keys, reading one directory at a time."""
        folder, wanted = validate_folder(prefix), WantedKeys(start_after, skip)
        if not folder:
            return self._listed(self._root, "", wanted)
        directory = self._path(folder)
        if self._passes_link(folder):
            return iter(())
        return self._listed(directory, f"{folder}/", wanted)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, durably. Missing keys are ignored."""
        touched: set[Path] = set()
        with translating(f"{self._url}: delete"):
            for key in keys:
                path = self._path(key)
                # Only files are objects, so a folder counts as missing.
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    path.unlink()
                    touched.add(path.parent)
            for directory in touched:
                with contextlib.suppress(FileNotFoundError):
                    flush_directory(directory)

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the empty folders whose names start with `prefix`. A folder with any file in it stays."""
        parent, _, start = validate_key(prefix).rpartition("/")
        directory = self._path(parent) if parent else self._root
        with translating(f"{self._url}: remove the empty folders {prefix}*"):
            is_gone = is_empty if dry_run else remove_if_empty
            removed = [
                name for name in folders_in(directory) if name.startswith(start) and is_gone(directory / name)
            ]
            if removed and not dry_run:
                flush_directory(directory)
        return tuple(f"{parent}/{name}" if parent else name for name in sorted(removed))

    def now_ms(self) -> int:
        """Return the time by the file system's clock, which on a network file system is the server's."""
        directory = self._root
        while not directory.is_dir() and directory != directory.parent:
            directory = directory.parent
        with translating(f"{self._url}: read the file system's clock"):
            descriptor, probe = new_temporary(directory)
            try:
                return os.fstat(descriptor).st_mtime_ns // 1_000_000
            finally:
                os.close(descriptor)
                probe.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        """Return the path of a key. Raises UnsafePathError if a symbolic link on the path leaves the root."""
        return Path(self._path_text(key))

    def _passes_link(self, folder: str) -> bool:
        """Return whether a part of a folder's path below the root is a symbolic link."""
        path = str(self._root)
        for segment in folder.split("/"):
            path = os.path.join(path, segment)  # noqa: PTH118  # see _path_text
            if os.path.islink(path):  # noqa: PTH114
                return True
        return False

    def _path_text(self, key: str) -> str:
        segments = validate_key(key).split("/")
        if segments[-1].startswith(TEMPORARY_PREFIX):
            raise UnsafePathError(f"{self._url}: {key!r} has a name reserved for temporary files")
        path = str(self._root)
        for segment in segments:
            path = f"{path}/{segment}"  # a Path for each segment costs more than the check
            if os.path.islink(path) and not _real(path).is_relative_to(_real(self._root)):  # noqa: PTH114
                raise UnsafePathError(f"{self._url}: {key!r} leaves the table through a symbolic link")
        return path

    @contextlib.contextmanager
    def _open(self, key: str, what: str) -> Iterator[tuple[int, int]]:
        """Open an object; yields its descriptor and its size."""
        # Without O_NONBLOCK, opening a pipe blocks until its other end opens.
        descriptor = os.open(self._path_text(key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ObjectNotFoundError(f"{what}: no such object")
            yield descriptor, status.st_size
        finally:
            os.close(descriptor)

    def _in_durable_directory(self, key: str, write: Callable[[Path], _Result]) -> _Result:
        path = self._path(key)
        for _ in range(_FOLDER_ATTEMPTS - 1):
            # The directory may have been removed since its last use: the table was dropped and created again, or
            # another process removes empty folders.
            with contextlib.suppress(FileNotFoundError):
                self._ensure_durable(path.parent)
                return write(path)
            with self._lock:
                self._durable_directories.clear()
        self._ensure_durable(path.parent)
        return write(path)

    def _ensure_durable(self, directory: Path) -> None:
        """Create a directory, and flush its parents up to the root once.

        Existing parents are flushed, too: the process that created them may not have flushed them yet.
        """
        if directory in self._durable_directories:
            return
        make_directories(directory)
        current = directory
        while current != self._root:
            current = current.parent
            flush_directory(current)
        with self._lock:
            self._durable_directories.add(directory)

    def _listed(self, directory: Path, prefix: str, wanted: WantedKeys) -> Iterator[ObjectMeta]:
        with translating(f"{self._url}: list {prefix or 'the root'}"):
            for found in files_below(directory, prefix, wanted):
                yield _meta(found.key, found.status)


def _real(path: str | Path) -> Path:
    """Resolve symbolic links. Unlike `Path.resolve`, this raises nothing for a cycle: opening the path does."""
    return Path(os.path.realpath(path))


def _meta(key: str, status: os.stat_result) -> ObjectMeta:
    return ObjectMeta(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _read_exactly(descriptor: int, start: int, end: int, size: int, what: str) -> bytes:
    if not 0 <= start <= end:
        raise StorageError(f"{what}: {start} to {end} is not a valid range")
    if size < end:
        raise StorageError(f"{what}: the range {start} to {end} is beyond its {size} bytes")
    return _read(descriptor, start, end - start)


def _read(descriptor: int, start: int, length: int) -> bytes:
    """Read `length` bytes, or fewer at the end of the file. One system call reads at most two gigabytes."""
    chunks = []
    while length > 0 and (chunk := os.pread(descriptor, length, start)):
        chunks.append(chunk)
        start += len(chunk)
        length -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


# Atomic, durable file writes: after a crash, a file is either complete or absent.
#
# A write goes to a temporary file in the target directory, flushes it, gives it its name, and flushes the directory. So
# a reader that finds the name finds all the bytes.

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_NO_LOCKS = frozenset(
    {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
)
_LOCK_ATTEMPTS = 2000
_LOCK_PAUSE_SECONDS = 0.005
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def write_new(path: Path, data: bytes) -> bool:
    """Create a file and return True, or return False if the name is taken. Raises OSError.

    Of all concurrent callers exactly one gets True. Raises UnsupportedStoreError if the file system supports neither
    hard links nor renaming without replacing.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if os.path.lexists(path):
        return False
    with _temporary_file(path, data) as temporary:
        if not _link(temporary, path):
            return False
    flush_directory(path.parent)
    return True


def replace(path: Path, data: bytes) -> None:
    """Create or replace a file. Raises OSError."""
    with _temporary_file(path, data) as temporary:
        temporary.replace(path)
    flush_directory(path.parent)


def replace_if_unchanged(path: Path, data: bytes, expected: bytes) -> bool:
    """Replace a file and return True, or return False if it does not have the bytes `expected`. Raises OSError.

    The data is on disk before the lock is taken, so it is held for the moment of a comparison and a rename only.
    """
    with _temporary_file(path, data) as temporary, _locked(path.parent):
        if not path.is_file() or path.read_bytes() != expected:
            return False
        temporary.replace(path)
    flush_directory(path.parent)
    return True


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory. A process that ends releases it. Raises OSError if another holds it for seconds.

    Does nothing on a file system without locks.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if attempt == _LOCK_ATTEMPTS - 1:
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(directory)) from error
                time.sleep(_LOCK_PAUSE_SECONDS)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                break
            else:
                break
        yield
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Create a directory and its parents, durably. Raises OSError."""
    missing = []
    while not path.is_dir() and path != path.parent:
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        flush_directory(directory.parent)


def flush_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not support fsync on a directory, because their names are always durable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def new_temporary(directory: Path) -> tuple[int, Path]:
    """Create a file with a unique temporary name and return its descriptor and path. Raises OSError."""
    path = directory / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path


@contextlib.contextmanager
def _temporary_file(path: Path, data: bytes) -> Iterator[Path]:
    """Write the bytes to a flushed temporary file next to `path`, and remove it afterwards unless it was renamed."""
    descriptor, temporary = new_temporary(path.parent)
    try:
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> bool:
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        # A network file system may lose the response to a successful link: check whether it is our own file.
        return os.path.samestat(temporary.lstat(), path.lstat())
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_without_replacing(temporary, path)
    return True


def _rename_without_replacing(temporary: Path, path: Path) -> bool:
    rename = _renameat2()
    if rename is None:
        raise _unsupported(path)
    try:
        rename(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise _unsupported(path) from error
        raise
    return True


def _renameat2() -> Callable[[Path, Path], None] | None:
    """Return renameat2 with RENAME_NOREPLACE, which Python lacks; None if the system lacks it, too."""
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None

    def rename(source: Path, target: Path) -> None:
        if function(_AT_FDCWD, bytes(source), _AT_FDCWD, bytes(target), _RENAME_NOREPLACE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(target))

    return rename


def _unsupported(path: Path) -> UnsupportedStoreError:
    return UnsupportedStoreError(
        f"{path.parent}: the file system supports neither hard links nor renaming without replacing, so a commit "
        f"could be torn or overwritten; move the table to another file system"
    )


# Errors

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_TRANSIENT = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT})


@contextlib.contextmanager
def translating(what: str) -> Iterator[None]:
    """Translate OSError into our errors. `what` names the failed call and its place."""
    try:
        yield
    except OSError as error:
        raise _translated(error, what) from error


@contextlib.contextmanager
def translating_writes(what: str) -> Iterator[None]:
    """Translate the errors of a write. Writes create missing folders, so a missing path means a name conflict."""
    try:
        with translating(what):
            yield
    except ObjectNotFoundError as error:
        raise StorageError(
            f"{what}: a file is where a folder should be, or a folder where a file should be"
        ) from error


def _translated(error: OSError, what: str) -> StorageError:
    reason = error.strerror or type(error).__name__
    if error.errno in _ABSENT:
        return ObjectNotFoundError(f"{what}: no such object")
    if error.errno in _DENIED:
        return AccessDeniedError(f"{what}: {reason}; check the owner and the permissions of the folder")
    if error.errno in _FULL:
        return StorageError(f"{what}: {reason}; nothing was written; free some space or raise the quota")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UnsafePathError(f"{what}: {reason}; this path is not a valid key")
    if error.errno in _TRANSIENT:
        return TransientStorageError(f"{what}: {reason}")
    return StorageError(f"{what}: {reason}")
