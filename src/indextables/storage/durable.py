"""Writing files so that they survive a crash whole or not at all.

A file is written under a temporary name in the directory where it belongs, flushed to the disk, and only then
given its name; the directory is flushed last. Whoever finds the name therefore finds all the bytes.
"""

import contextlib
import ctypes
import errno
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from indextables.errors import UnsupportedStoreError

TEMPORARY_PREFIX = ".tmp-"
"""How temporary files are named. A crash may leave one behind; it is never listed and harmless."""

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


def write_new(path: Path, data: bytes) -> bool:
    """Create a file, and return False if there is one of that name. Raises OSError.

    Of all racing callers exactly one gets True. Raises UnsupportedStoreError if the file system can neither
    make hard links nor rename without replacing.
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
    """Create a file, or replace the one that is there. Raises OSError."""
    with _temporary_file(path, data) as temporary:
        temporary.replace(path)
    flush_directory(path.parent)


def make_directories(path: Path) -> None:
    """Create a directory and its parents, so that they survive a crash. Raises OSError."""
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
        # Some network file systems keep names durable by themselves, and refuse to be asked.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def new_temporary(directory: Path) -> tuple[int, Path]:
    """An open file under a temporary name that nobody else uses. Raises OSError."""
    path = directory / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path


@contextlib.contextmanager
def _temporary_file(path: Path, data: bytes) -> Iterator[Path]:
    """A flushed file with these bytes, next to `path`. It is removed, unless it was renamed."""
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
        # On a network file system the answer to the first attempt may have been lost: is it our own file?
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
    """renameat2 with RENAME_NOREPLACE, which Python does not offer; None where the system does not either."""
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
        f"{path.parent}: the file system can neither make hard links nor rename without replacing, so that a "
        f"commit could be torn or overwritten; keep the table on another file system"
    )
