"""Files that appear under their name only when they are complete."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_unfinished: list[Path] = []


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` when the context ends without an exception, and is deleted otherwise.

    A link is followed. What is no regular file, such as a named pipe or /dev/stdout, is written to directly.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as stream:
            yield stream
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    _unfinished.append(temporary)
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.remove(temporary)


def delete_unfinished_files() -> None:
    """Delete the files that are being written, for a process that ends in the middle of an operation."""
    for path in _unfinished:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
