"""Atomic, durable file writes: after a crash, a file is either complete or absent.

A write goes to a temporary file in the target directory, flushes it, gives it its name, and flushes the directory. So
a reader that finds the name finds all the bytes.
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
"""The name prefix of temporary files. A crash may leave one behind; listings skip it."""

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
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
