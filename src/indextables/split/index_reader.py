"""Opens indexes: from a split's members on their way into the cache, and from a local directory."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import tantivy

from indextables.errors import SplitCorruptedError
from indextables.split.bundle import Bundle, read_range
from indextables.split.footer import ROWS_MEMBER, SplitInfo
from indextables.split.mapping import DocMapping
from indextables.split.parquet_ranges import coalesce
from indextables.split.prefetch import prefetched
from indextables.split.tantivy_errors import translating
from indextables.storage import ObjectStore

_PIECE_BYTES: Final = 8 * 1024**2
_PIECES_AHEAD: Final = 4


def index_members(bundle: Bundle) -> list[str]:
    """The names of the files that make up the index."""
    return [name for name in bundle.members if name != ROWS_MEMBER]


def fetch_members(
    store: ObjectStore, key: str, bundle: Bundle, names: Iterable[str], directory: Path
) -> dict[str, str]:
    """Copy members into a directory; the checksum of each.

    Members that lie side by side are fetched together, in large pieces and several at a time. Raises storage
    errors, SplitCorruptedError, and OSError for the local side.
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


def fetch_index(store: ObjectStore, key: str, bundle: Bundle, info: SplitInfo, directory: Path) -> None:
    """Copy the index of one of our splits into a directory, and check it. Raises SplitCorruptedError."""
    found = fetch_members(store, key, bundle, index_members(bundle), directory)
    for name, checksum in found.items():
        if info.checksums.get(name) != checksum:
            raise SplitCorruptedError(
                f"{store.url}: {key}: the checksum of {name} is wrong; the file is damaged"
            )


def open_index(directory: Path, mapping: DocMapping, place: str) -> tantivy.Index:
    """An index for queries. All its files are open afterwards, so that their directory may go.

    Raises SplitCorruptedError if it is not an index.
    """
    with translating(f"{place}: the index cannot be opened", SplitCorruptedError):
        index = tantivy.Index.open(str(directory))
        mapping.register_tokenizers(index)
        # Nobody changes the index of a split. Without a watcher, no thread waits for that either.
        index.config_reader("manual")
        index.reload()
        return index
