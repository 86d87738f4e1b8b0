"""Translating the errors of the operating system into ours."""

import contextlib
import errno
from collections.abc import Iterator

from indextables.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
)

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PASSING = frozenset({errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT})


@contextlib.contextmanager
def translating(what: str) -> Iterator[None]:
    """Raise our errors for those of the system. `what` says what failed and where."""
    try:
        yield
    except OSError as error:
        raise _translated(error, what) from error


@contextlib.contextmanager
def translating_writes(what: str) -> Iterator[None]:
    """The same for writes, which create what is absent: if they cannot, something is in the way."""
    try:
        with translating(what):
            yield
    except ObjectNotFoundError as error:
        raise StorageError(f"{what}: a file is where a folder should be, or the other way round") from error


def _translated(error: OSError, what: str) -> StorageError:
    reason = error.strerror or type(error).__name__
    if error.errno in _ABSENT:
        return ObjectNotFoundError(f"{what}: there is no such object")
    if error.errno in _DENIED:
        return AccessDeniedError(f"{what}: {reason}; check the owner and the permissions of the folder")
    if error.errno in _FULL:
        return StorageError(f"{what}: {reason}; nothing was written. Free some space, or raise the quota")
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UnsafePathError(f"{what}: {reason}; this path cannot be used as a key")
    if error.errno in _PASSING:
        return TransientStorageError(f"{what}: {reason}")
    return StorageError(f"{what}: {reason}")
