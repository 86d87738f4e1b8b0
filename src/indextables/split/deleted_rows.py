"""The deleted rows of an open split: which rows of a scan are left, and an index without them.

Tantivy leaves documents out of every search, count and aggregate that a `.del` file of their segment names. A split is
immutable, and so is its index in the cache. So a searcher is opened from a directory of links to that index, with a
`.del` file and a `meta.json` that names it.
"""

import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from indextables.errors import SplitCorruptedError
from indextables.split.index_files import META_FILE

# Every file of Tantivy ends with JSON that holds the version and the CRC-32 of the bytes before, its length, and a
# magic number. The body of a `.del` file is the number of documents, and one bit for each document that is left.
_FILE_END: Final = struct.Struct("<II")
_FILE_MAGIC: Final = 1337
_WORD_BYTES: Final = 8
_MAX_END_BYTES: Final = 4096


class DeletedRows(msgspec.Struct, frozen=True, eq=False):
    """The numbers of deleted rows, ascending and at least one, and an id that no other rows of the split have."""

    rows: npt.NDArray[np.int64]
    id: str

    def __len__(self) -> int:
        return len(self.rows)

    def left_of(self, first: int, last: int) -> npt.NDArray[np.bool_] | None:
        """Return which of the rows from `first` to `last` (exclusive) are left; None if all of them are."""
        start, end = np.searchsorted(self.rows, [first, last])
        if start == end:
            return None
        mask = np.ones(last - first, np.bool_)
        mask[self.rows[start:end] - first] = False
        return mask

    def are_left(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the rows with these numbers, ascending, are left."""
        return ~np.isin(numbers, self.rows, assume_unique=True)

    def counts(self, first_rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many rows are deleted between each of these rows and the next one."""
        return np.diff(np.searchsorted(self.rows, first_rows))


def link_index(directory: Path, into: Path, deleted: DeletedRows) -> None:
    """Fill an empty directory with the index of `directory` without the deleted rows. Its files are links.

    Raises SplitCorruptedError if the index is not one segment that has these rows, and OSError.
    """
    meta = orjson.loads((directory / META_FILE).read_bytes())
    segment = _only_segment(meta, deleted)
    name = segment["segment_id"].replace("-", "")
    # Tantivy keeps the mapping of a file by its name, so files of other deleted rows have other names.
    stamp = int.from_bytes(hashlib.sha256(deleted.id.encode()).digest()[:7], "big")
    for path in directory.iterdir():
        if path.name.startswith(f"{name}."):
            (into / path.name).symlink_to(path)
    alive = np.ones(segment["max_doc"], np.bool_)
    alive[deleted.rows] = False
    bits = np.packbits(alive, bitorder="little").tobytes()
    body = struct.pack("<I", len(alive)) + bits.ljust(-(-len(bits) // _WORD_BYTES) * _WORD_BYTES, b"\0")
    end = orjson.dumps({"version": _file_version(directory / f"{name}.fast"), "crc": zlib.crc32(body)})
    (into / f"{name}.{stamp}.del").write_bytes(body + end + _FILE_END.pack(len(end), _FILE_MAGIC))
    segment["deletes"] = {"num_deleted_docs": len(deleted), "opstamp": stamp}
    (into / META_FILE).write_bytes(orjson.dumps(meta))


def _only_segment(meta: dict[str, Any], deleted: DeletedRows) -> dict[str, Any]:
    segments: list[dict[str, Any]] = meta["segments"]
    if len(segments) != 1 or segments[0].get("deletes") or segments[0]["max_doc"] <= int(deleted.rows[-1]):
        raise SplitCorruptedError(
            f"the index has {[segment['max_doc'] for segment in segments]} rows, which does not fit the deleted rows"
        )
    return segments[0]


def _file_version(path: Path) -> Any:
    with path.open("rb") as file:
        file.seek(-min(_MAX_END_BYTES, path.stat().st_size), 2)
        data = file.read()
    length, magic = _FILE_END.unpack(data[-_FILE_END.size :])
    if magic != _FILE_MAGIC:
        raise SplitCorruptedError(f"{path.name} does not end like a file of Tantivy")
    return orjson.loads(data[-_FILE_END.size - length : -_FILE_END.size])["version"]
