"""Walks a tree of folders in the key order of an object store, and finds empty folders on disk.

Disks and HDFS have folders; an object store has none, and sorts its keys as whole texts.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from indextables.errors import UnsafePathError
from indextables.storage.store import KeyRange
from indextables.storage.urls import validate_key

TEMPORARY_PREFIX = ".tmp-"
"""The name prefix of temporary files. A crash may leave one behind; listings skip it."""


class FoundFile(msgspec.Struct, frozen=True):
    """A regular file and its key."""

    key: str
    status: os.stat_result


class WantedKeys(msgspec.Struct, frozen=True):
    """The keys of a listing: those after `start_after`, without those in `skip`."""

    start_after: str | None = None
    skip: KeyRange | None = None

    def has(self, key: str) -> bool:
        return (self.start_after is None or key > self.start_after) and (
            self.skip is None or key not in self.skip
        )

    def may_be_in(self, folder: str) -> bool:
        """Whether a folder, which ends in '/', may hold wanted keys."""
        is_after = (
            self.start_after is None or self.start_after < folder or self.start_after.startswith(folder)
        )
        return is_after and (self.skip is None or not self.skip.contains_folder(folder))

    def among(self, entries: Iterable[os.DirEntry[str]], prefix: str) -> Iterable[os.DirEntry[str]]:
        """Leave out entries of the folder `prefix` that are certainly not wanted, whether files or folders.

        In a long log these are almost all entries, so this compares names alone.
        """
        start = _within(self.start_after, prefix)
        first = _within(None if self.skip is None else self.skip.first, prefix)
        last = _within(None if self.skip is None else self.skip.last, prefix)
        if start:
            entries = (entry for entry in entries if entry.name >= start or start.startswith(entry.name))
        if first and last:
            entries = (
                entry for entry in entries if not first <= entry.name < last or last.startswith(entry.name)
            )
        return entries


def _within(key: str | None, prefix: str) -> str:
    """Return a key relative to the folder `prefix`; "" if it is not in it."""
    return key[len(prefix) :] if key is not None and key.startswith(prefix) else ""


class Entry(Protocol):
    """A file or folder. The name of a folder ends in '/', which sorts it by its keys."""

    @property
    def name(self) -> str: ...


_Entry = TypeVar("_Entry", bound=Entry)


def in_key_order(prefix: str, entries_in: Callable[[str], Sequence[_Entry]]) -> Iterator[tuple[str, _Entry]]:
    """Iterate over the files below a folder, each with its key, in the string order of the keys.

    `entries_in` returns the sorted entries of the folder whose keys start with the given prefix.
    """
    # An explicit stack: folders may be nested more deeply than Python's recursion limit.
    open_folders = [(prefix, iter(entries_in(prefix)))]
    while open_folders:
        folder, entries = open_folders[-1]
        entry = next(entries, None)
        if entry is None:
            open_folders.pop()
            continue
        key = folder + entry.name
        if key.endswith("/"):
            open_folders.append((key, iter(entries_in(key))))
        else:
            yield key, entry


def files_below(directory: Path, prefix: str, wanted: WantedKeys) -> Iterator[FoundFile]:
    """Iterate over the wanted regular files below a directory in the string order of their keys.

    The keys start with `prefix`. It skips links, temporary files, names that are not valid keys, and files that
    disappear during the walk. It does not read directories without wanted keys. Raises OSError.
    """
    # Paths as text: a log may have thousands of files, and `Path` costs more than the call that it is for.
    root = f"{directory}/"
    for key, _ in in_key_order(
        prefix, lambda folder: _sorted_entries(root + folder[len(prefix) :], folder, wanted)
    ):
        status = _status(root + key[len(prefix) :])
        if status is not None:
            yield FoundFile(key, status)


class _DiskEntry(msgspec.Struct, frozen=True):
    name: str


def _status(path: str) -> os.stat_result | None:
    """Return the status of a regular file, or None if it is gone or not a regular file."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _sorted_entries(directory: str, prefix: str, wanted: WantedKeys) -> list[_DiskEntry]:
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in wanted.among(entries, prefix):
                is_folder = entry.is_dir(follow_symlinks=False)
                name = f"{entry.name}/" if is_folder else entry.name
                if not (wanted.may_be_in(prefix + name) if is_folder else wanted.has(prefix + name)):
                    continue
                is_object = entry.is_file(follow_symlinks=False) and not name.startswith(TEMPORARY_PREFIX)
                if (is_folder or is_object) and can_be_key(entry.name):
                    found.append(_DiskEntry(name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=by_name)


def folders_in(directory: Path) -> list[str]:
    """Return the names of the folders in a directory; none if it is missing. Links are not folders."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_empty(directory: Path) -> bool:
    """Return whether a directory exists and has nothing in it, not even a temporary file."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except (FileNotFoundError, NotADirectoryError):
        return False


def remove_if_empty(directory: Path) -> bool:
    """Remove a directory and return True, or return False if it is not empty or is gone. Raises OSError."""
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR):
            raise
        return False
    return True


def by_name(entry: Entry) -> str:
    """The sort key of a folder's entries."""
    return entry.name


def can_be_key(name: str) -> bool:
    """Return whether a name in a folder may be part of a key."""
    try:
        validate_key(name)
    except UnsafePathError:
        return False
    return True
