"""The bytes of a log file: JSON lines, plain or compressed.

Layout of a compressed file: magic (01) · codec (01 = gzip) · gzip stream.
Older writers left the two bytes out, or did not compress; all three forms are read.
"""

import gzip
import io
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from indextables.errors import (
    CommitOutcomeUnknownError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    VersionNotFoundError,
)
from indextables.log.decode import LogFile
from indextables.log.paths import version_key
from indextables.log.segment import VersionEntry
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome

COMPRESSION_MAGIC = 0x01
CODEC_GZIP = 0x01
_PREFIX = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC = b"\x1f\x8b"

# No honest log file comes near this; a compressed bomb is refused here, before it fills the memory.
MAX_LOG_FILE_BYTES = 2 * 1024**3
_READ_BYTES = 4 * 1024**2


def compress(lines: bytes) -> bytes:
    """JSON lines as a compressed log file. The same lines give the same bytes."""
    return _PREFIX + gzip.compress(lines, compresslevel=6, mtime=0)


def decompress(data: bytes, name: str, *, max_bytes: int = MAX_LOG_FILE_BYTES) -> bytes:
    """The JSON lines of a log file in any of the three encodings.

    Raises LogCorruptedError, with the file's name, if the stream is damaged, cut off, or gives more than
    `max_bytes`; not much more than that is ever decompressed.
    """
    if data.startswith(_PREFIX):
        return _gunzip(data[len(_PREFIX) :], name, max_bytes)
    if data.startswith(_GZIP_MAGIC):
        return _gunzip(data, name, max_bytes)
    if data.startswith(_PREFIX[:1]):
        raise LogCorruptedError(
            f"{name}: compressed with codec {data[1:2].hex() or '?'}, which this release does not know; "
            f"it reads gzip (01) and plain JSON lines"
        )
    return data


def _gunzip(stream: bytes, name: str, max_bytes: int) -> bytes:
    if not stream:
        raise LogCorruptedError(f"{name}: the gzip stream is cut off before it begins")
    try:
        lines = _inflate(stream, max_bytes)
    except EOFError as error:
        raise LogCorruptedError(f"{name}: the gzip stream is cut off ({error})") from error
    except (OSError, zlib.error) as error:
        raise LogCorruptedError(f"{name}: the gzip stream is damaged ({error})") from error
    if len(lines) > max_bytes:
        raise LogCorruptedError(f"{name}: the gzip stream is larger than {max_bytes} bytes when decompressed")
    return lines


def _inflate(stream: bytes, enough_bytes: int) -> bytes:
    """The whole content of a gzip stream, or as soon as there is more than `enough_bytes`, its beginning."""
    pieces: list[bytes] = []
    size_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(stream)) as file:
        while size_bytes <= enough_bytes and (piece := file.read(_READ_BYTES)):
            pieces.append(piece)
            size_bytes += len(piece)
    return b"".join(pieces)


# Writing and reading version files: the commits of the log.


class Written(msgspec.Struct, frozen=True):
    """The version is ours."""

    version: int


class Conflict(msgspec.Struct, frozen=True):
    """Somebody else's commit stands under this version."""

    version: int


def write_version_file(store: ObjectStore, version: int, data: bytes) -> Written | Conflict:
    """Commit `data` as `version`, if that version does not exist yet.

    `data` must be unique to this commit (it carries a commit id, or a new table's id), because a write whose
    answer was lost is recognised by reading it back. Raises CommitOutcomeUnknownError if the store stops
    answering before that is known; the caller must then not delete anything that the commit refers to.
    """
    try:
        outcome = store.put_if_absent(version_key(version), data)
    except TransientStorageError as error:
        return _resolve_by_reading(store, version, data, error)
    if outcome is PutOutcome.WRITTEN:
        return Written(version)
    # A client that repeats a write of its own, because the answer was lost, finds its own file there.
    return _resolve_by_reading(store, version, data, None)


def _resolve_by_reading(
    store: ObjectStore, version: int, data: bytes, cause: TransientStorageError | None
) -> Written | Conflict:
    try:
        found = store.get(version_key(version))
    except StorageError as error:
        # Absent is not final either: a delayed request may still arrive.
        raise CommitOutcomeUnknownError(
            f"{store.url}: the store stopped answering while version {version} was being committed, so it may "
            f"or may not have landed ({cause or error}); read the history again before you retry"
        ) from error
    return Written(version) if found == data else Conflict(version)


def read_version_file(store: ObjectStore, file: VersionEntry) -> LogFile:
    """The lines of one version file. Raises LogCorruptedError or a StorageError."""
    name = f"{store.url}/{file.meta.key}"
    lines = decompress(store.get(file.meta.key), name)
    if not lines.strip():
        raise LogCorruptedError(
            f"{name}: the version file is empty; restore it from a backup, or rebuild the "
            f"log with REPAIR INDEXFILES TRANSACTION LOG"
        )
    return LogFile(file.version, name, lines, file.meta.last_modified_ms)


def read_version_files(
    store: ObjectStore, files: Iterable[VersionEntry], *, parallelism: int
) -> list[LogFile]:
    """Several version files, in the order given, fetched by up to `parallelism` threads."""
    wanted = list(files)
    if len(wanted) <= 1 or parallelism <= 1:
        return [read_version_file(store, file) for file in wanted]
    with ThreadPoolExecutor(min(parallelism, len(wanted)), thread_name_prefix="indextables-log") as pool:
        return list(pool.map(partial(read_version_file, store), wanted))


def find_version_file(store: ObjectStore, version: int) -> ObjectMeta | None:
    """Where a version file stands, or None if there is none."""
    return find_object(store, version_key(version))


def find_object(store: ObjectStore, key: str) -> ObjectMeta | None:
    """What stands under a key, or None if there is nothing."""
    try:
        return store.head(key)
    except ObjectNotFoundError:
        return None


# Making a checkpoint valid, which is the last thing that its writer does.
#
# Files that nothing refers to are collected as soon as they are old enough, and so are those of an older
# checkpoint that was cleaned up. A writer that was suspended for long must not refer to them any more. What
# it has published is never taken back: others may have cleaned up what came before, because they rely on it.


# Half of the age below which no garbage collection takes anything, whatever its settings.
_LONGEST_MS: Final = 30 * 60 * 1000


def publish(
    store: ObjectStore, key: str, data: bytes, version: int, started_ms: int, origin: str | None = None
) -> PutOutcome:
    """Write the file that makes the checkpoint of a version valid, if there is none.

    Raises StorageError if the checkpoint was begun too long ago, at `started_ms`, and VersionNotFoundError if `origin`
    is gone, the key of the one whose files it goes on to use. Nothing is published then.
    """
    took_ms = store.clock.now_ms() - started_ms
    if took_ms > _LONGEST_MS:
        raise StorageError(
            f"{store.url}: the checkpoint of version {version} was not published, because {took_ms // 60_000} minutes "
            f"went by since it was begun: its files may have been collected as garbage meanwhile; write it again"
        )
    if origin is not None and find_object(store, origin) is None:
        raise VersionNotFoundError(
            f"{store.url}: the state of version {version} was not published, because others went on and cleaned up "
            f"{origin}, which it goes on from; open the table again"
        )
    return store.put_if_absent(key, data)
