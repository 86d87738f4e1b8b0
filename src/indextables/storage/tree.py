"""Walking a directory tree in the order in which an object store would list it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from indextables.errors import UnsafePathError
from indextables.storage.durable import TEMPORARY_PREFIX
from indextables.storage.paths import validate_key


class FoundFile(msgspec.Struct, frozen=True):
    """A regular file. The key is that of the folder plus the path below it."""

    key: str
    status: os.stat_result


def files_below(directory: Path, prefix: str, start_after: str | None) -> Iterator[FoundFile]:
    """The regular files below a directory, in the string order of their keys.

    `prefix` stands before each key. Links, temporary files and names that cannot be keys are left out, and so
    is what disappears meanwhile. One directory at a time is read, and none in which every key would be
    `start_after` or less. Raises OSError.
    """
    # A stack of its own, because folders can be nested more deeply than calls.
    open_folders = [_Folder(directory, prefix, iter(_sorted_entries(directory)))]
    while open_folders:
        folder = open_folders[-1]
        entry = next(folder.entries, None)
        if entry is None:
            open_folders.pop()
            continue
        key = folder.prefix + entry.name
        if entry.is_folder:
            if start_after is None or start_after < key or start_after.startswith(key):
                path = folder.path / entry.name
                open_folders.append(_Folder(path, key, iter(_sorted_entries(path))))
        elif start_after is None or key > start_after:
            status = _status(folder.path / entry.name)
            if status is not None:
                yield FoundFile(key, status)


class _Entry(msgspec.Struct, frozen=True):
    """A file, or a folder: its name ends in '/', which gives it its place in the order of keys."""

    name: str
    is_folder: bool


class _Folder(msgspec.Struct, frozen=True):
    path: Path
    prefix: str
    entries: Iterator[_Entry]


def _status(path: Path) -> os.stat_result | None:
    """The status of a regular file, or None if it is gone, or something else by now."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _sorted_entries(directory: Path) -> list[_Entry]:
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if not _can_be_key(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.append(_Entry(f"{entry.name}/", is_folder=True))
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(TEMPORARY_PREFIX):
                    found.append(_Entry(entry.name, is_folder=False))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=_name)


def _name(entry: _Entry) -> str:
    return entry.name


def _can_be_key(name: str) -> bool:
    try:
        validate_key(name)
    except UnsafePathError:
        return False
    return True
