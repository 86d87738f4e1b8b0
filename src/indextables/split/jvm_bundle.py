"""The layout of the splits that IndexTables on the JVM writes.

    member bytes, back to back
    | AE BE 12 18 | version: u32 | {"files": {name: {"start": a, "end": b}}} | length of these three: u32
    | hot cache: n bytes | n: u32

All numbers are little-endian. The footer starts at the magic bytes and ends with the file; one range request reads
it. The hot cache is of use to the JVM only.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import orjson

from indextables.errors import SplitCorruptedError, UnsupportedSplitError
from indextables.split.byte_ranges import prefetched, read_range
from indextables.storage import ObjectStore, coalesce

MAGIC: Final = bytes.fromhex("AEBE1218")
VERSION: Final = 1
U32_BYTES: Final = 4

# Far above what a real split has, and low enough that a corrupt length allocates little memory.
MAX_FOOTER_BYTES: Final = 256 * 1024**2
MAX_MEMBERS: Final = 10_000

_PIECE_BYTES: Final = 8 * 1024**2
_PIECES_AHEAD: Final = 4

_HEADER_BYTES: Final = len(MAGIC) + U32_BYTES
SHORTEST_FOOTER: Final = _HEADER_BYTES + 2 * U32_BYTES
# A reader writes members to files of a local directory: a name must not leave that directory.
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")


class Member(msgspec.Struct, frozen=True):
    """The byte range of a file in the bundle; `end` is exclusive."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class JvmBundle(msgspec.Struct, frozen=True):
    """A decoded footer. No member ends after `footer_start`."""

    members: Mapping[str, Member]
    manifest: bytes
    hot_cache: bytes
    footer_start: int
    footer_end: int

    @property
    def size(self) -> int:
        return self.footer_end


def decode_footer(footer: bytes, footer_start: int, place: str) -> JvmBundle:
    """Decode a footer that starts at `footer_start` of its file; `place` starts the error messages.

    Raises SplitCorruptedError if this is not a complete footer, and UnsupportedSplitError for a newer layout.
    """
    manifest, hot_cache = _manifest_and_hot_cache(footer, place)
    if len(manifest) + len(hot_cache) + 2 * U32_BYTES != len(footer):
        raise SplitCorruptedError(f"{place}: the footer does not start at offset {footer_start}")
    members = _decode_manifest(manifest, footer_start, place)
    return JvmBundle(members, manifest, hot_cache, footer_start, footer_start + len(footer))


def read_member(store: ObjectStore, key: str, bundle: JvmBundle, name: str) -> bytes:
    """Read a member. Raises SplitCorruptedError if the bundle has no member of that name."""
    member = find_member(bundle, name, f"{store.url}: {key}")
    return read_range(store, key, member.start, member.end)


def find_member(bundle: JvmBundle, name: str, place: str) -> Member:
    """Return the range of a member. Raises SplitCorruptedError if the bundle has no member of that name."""
    if name not in bundle.members:
        raise SplitCorruptedError(f"{place}: the split has no file {name!r}")
    return bundle.members[name]


def fetch_members(
    store: ObjectStore, key: str, bundle: JvmBundle, names: Iterable[str], directory: Path
) -> None:
    """Copy members into a directory.

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
    for name in members:
        (directory / name).touch()
    fetched = prefetched(lambda piece: read_range(store, key, *piece), pieces, depth=_PIECES_AHEAD)
    for (start, end), data in fetched:
        for name, member in members.items():
            part = data[max(member.start - start, 0) : max(min(member.end, end) - start, 0)]
            if part:
                with (directory / name).open("ab") as target:
                    target.write(part)


def read_footer_from_end(store: ObjectStore, key: str, size: int) -> JvmBundle:
    """Read the footer of a split whose offsets the log does not record. Raises as `decode_footer` does."""
    place = f"{store.url}: {key}"
    if size < SHORTEST_FOOTER:
        raise SplitCorruptedError(f"{place}: {size} bytes are too few for a split")
    hot_cache_length = _number(read_range(store, key, size - U32_BYTES, size))
    manifest_end = size - 2 * U32_BYTES - hot_cache_length
    _check_length(hot_cache_length, place)
    if manifest_end < _HEADER_BYTES:
        raise SplitCorruptedError(f"{place}: a hot cache of {hot_cache_length} bytes does not fit the file")
    manifest_length = _number(read_range(store, key, manifest_end, manifest_end + U32_BYTES))
    _check_length(hot_cache_length + manifest_length, place)
    if not _HEADER_BYTES <= manifest_length <= manifest_end:
        raise SplitCorruptedError(f"{place}: a manifest of {manifest_length} bytes does not fit the file")
    start = manifest_end - manifest_length
    return decode_footer(read_range(store, key, start, size), start, place)


def _check_length(length: int, place: str) -> None:
    if length > MAX_FOOTER_BYTES:
        raise SplitCorruptedError(
            f"{place}: the footer has {length} bytes; at most {MAX_FOOTER_BYTES} are allowed"
        )


def _manifest_and_hot_cache(footer: bytes, place: str) -> tuple[bytes, bytes]:
    """Split a footer, from its end, into the manifest and the hot cache."""
    if len(footer) < SHORTEST_FOOTER or footer[: len(MAGIC)] != MAGIC:
        raise SplitCorruptedError(f"{place}: this is not the footer of a split, or it starts elsewhere")
    hot_cache_end = len(footer) - U32_BYTES
    hot_cache_start = hot_cache_end - _number(footer[hot_cache_end:])
    manifest_end = hot_cache_start - U32_BYTES
    if manifest_end < _HEADER_BYTES:
        raise SplitCorruptedError(f"{place}: the hot cache does not fit the footer; the file is damaged")
    manifest_length = _number(footer[manifest_end:hot_cache_start])
    if not _HEADER_BYTES <= manifest_length <= manifest_end:
        raise SplitCorruptedError(f"{place}: the manifest does not fit the footer; the file is damaged")
    manifest = footer[manifest_end - manifest_length : manifest_end]
    return manifest, footer[hot_cache_start:hot_cache_end]


def _decode_manifest(manifest: bytes, footer_start: int, place: str) -> dict[str, Member]:
    version = _number(manifest[len(MAGIC) : _HEADER_BYTES])
    if version != VERSION:
        raise UnsupportedSplitError(
            f"{place}: the bundle has layout version {version}, and this release reads {VERSION}; upgrade"
        )
    try:
        document = orjson.loads(manifest[_HEADER_BYTES:])
        files = {name: (member["start"], member["end"]) for name, member in document["files"].items()}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise SplitCorruptedError(f"{place}: the list of files cannot be read: {error!r}") from error
    if len(files) > MAX_MEMBERS:
        raise SplitCorruptedError(
            f"{place}: the split lists {len(files)} files; at most {MAX_MEMBERS} are allowed"
        )
    members = {name: _member(name, start, end, footer_start, place) for name, (start, end) in files.items()}
    _check_apart(members, place)
    return members


def is_member_name(name: str) -> bool:
    """Whether a file of a split may have this name."""
    return bool(_MEMBER_NAME.fullmatch(name)) and name not in (".", "..")


def _member(name: str, start: object, end: object, footer_start: int, place: str) -> Member:
    if not is_member_name(name):
        raise SplitCorruptedError(f"{place}: {name!r} is not a valid file name in a split")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end <= footer_start:
        raise SplitCorruptedError(f"{place}: {name} spans bytes {start!r} to {end!r}, outside the file")
    return Member(start, end)


def _check_apart(members: Mapping[str, Member], place: str) -> None:
    """Reject overlapping members, which would let a small file expand into a large one."""
    end = 0
    for name, member in sorted(members.items(), key=lambda item: (item[1].start, item[1].end)):
        if member.start < end:
            raise SplitCorruptedError(f"{place}: {name} overlaps another file")
        end = member.end


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")
