"""Local directories for work in progress, told from the remains of a crash by a lock that ends with its process."""

import contextlib
import fcntl
import os
import shutil
import uuid
from pathlib import Path

import msgspec

PRIVATE = 0o700


class GuardedDirectory(msgspec.Struct, frozen=True):
    """A directory that nobody sweeps away before it is closed. Its files are the owner's to remove."""

    path: Path
    guard: int

    def close(self) -> None:
        """Give up the lock, and remove the directory if it still has its name."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.guard)


def new_guarded_directory(parent: Path, prefix: str) -> GuardedDirectory:
    """A new, empty, private directory with a lock on it. Raises OSError."""
    while True:
        path = parent / f"{prefix}{uuid.uuid4().hex}"
        path.mkdir(mode=PRIVATE)
        with contextlib.suppress(FileNotFoundError):
            guard = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(guard, fcntl.LOCK_EX)
            # Between the two steps, somebody may have swept it away for the remains of a crash.
            if path.is_dir():
                return GuardedDirectory(path, guard)
            os.close(guard)


def sweep_abandoned(parent: Path, prefix: str) -> None:
    """Remove the directories of this prefix that nobody holds a lock on."""
    with contextlib.suppress(FileNotFoundError):
        for path in parent.glob(f"{prefix}*"):
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    # Somebody else's, gone already, a link, or no directory: not ours to remove.
    with contextlib.suppress(PermissionError, FileNotFoundError, NotADirectoryError, OSError):
        guard = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            return
        finally:
            os.close(guard)
