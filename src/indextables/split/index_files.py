"""The files of a Tantivy index, fetched from a split into a local directory.

`translating` turns Tantivy's errors, and the panics of its Rust code, into ours.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final

from indextables.errors import IndexTablesError, SplitCorruptedError
from indextables.split.bundle import ROWS_MEMBER, Bundle, SplitInfo, coalesce, prefetched, read_range
from indextables.storage import ObjectStore

META_FILE: Final = "meta.json"
MANAGED_FILE: Final = ".managed.json"

_PIECE_BYTES: Final = 8 * 1024**2
_PIECES_AHEAD: Final = 4

# Rust panics arrive as this class, which derives from BaseException and cannot be imported.
_PANIC: Final = "PanicException"


def fetch_index(store: ObjectStore, key: str, bundle: Bundle, info: SplitInfo, directory: Path) -> None:
    """Copy the index of one of our splits into a directory and verify it. Raises SplitCorruptedError."""
    index_members = [name for name in bundle.members if name != ROWS_MEMBER]
    checksums = fetch_members(store, key, bundle, index_members, directory)
    for name, checksum in checksums.items():
        if info.checksums.get(name) != checksum:
            raise SplitCorruptedError(
                f"{store.url}: {key}: the checksum of {name} is wrong; the file is damaged"
            )


def fetch_members(
    store: ObjectStore, key: str, bundle: Bundle, names: Iterable[str], directory: Path
) -> dict[str, str]:
    """Copy members into a directory, and return the checksum of each.

    Adjacent members are fetched together, in large pieces and several at a time. Raises storage errors,
    SplitCorruptedError, and OSError for the local directory.
    """
    members = {name: bundle.members[name] for name in names}
    spans = coalesce([(member.start, member.end) for member in members.values()])
    pieces = [
        (start, min(start + _PIECE_BYTES, end))
        for first, end in spans
        for start in range(first, end, _PIECE_BYTES)
    ]
    digests = {name: hashlib.sha256() for name in members}
    for name in members:
        (directory / name).touch()
    fetched = prefetched(lambda piece: read_range(store, key, *piece), pieces, depth=_PIECES_AHEAD)
    for (start, end), data in fetched:
        for name, member in members.items():
            part = data[max(member.start - start, 0) : max(min(member.end, end) - start, 0)]
            if part:
                digests[name].update(part)
                with (directory / name).open("ab") as target:
                    target.write(part)
    return {name: digest.hexdigest() for name, digest in digests.items()}


class translating:  # noqa: N801  # read as a statement
    """Raise `error_type` for anything that Tantivy raises in the block; `what` starts the message.

    Interrupts and our own errors pass unchanged. A class instead of a generator, because every search enters it.
    """

    __slots__ = ("_error_type", "_what")

    def __init__(self, what: str, error_type: type[IndexTablesError]) -> None:
        self._what = what
        self._error_type = error_type

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, IndexTablesError):
            return
        if isinstance(error, Exception):
            raise self._error_type(f"{self._what}: {error}") from error
        if type(error).__name__ == _PANIC:
            raise self._error_type(f"{self._what}: Tantivy panicked: {error}") from error
