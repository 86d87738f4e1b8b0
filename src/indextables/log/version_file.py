"""Version files: their bytes, and writing and reading them.

Layout of a compressed log file: magic (01) · codec (01 = gzip) · gzip stream.
Older writers left the two bytes out, or did not compress; readers accept all three forms.
"""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec

from indextables.errors import (
    CommitOutcomeUnknownError,
    LogCorruptedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
)
from indextables.log.decode import LogFile
from indextables.log.paths import version_key
from indextables.log.segment import VersionEntry
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome, is_on_disk

T = TypeVar("T")
R = TypeVar("R")

COMPRESSION_MAGIC = 0x01
CODEC_GZIP = 0x01
_PREFIX = bytes([COMPRESSION_MAGIC, CODEC_GZIP])
_GZIP_MAGIC = b"\x1f\x8b"
_ONE_GZIP_MEMBER = 16 + zlib.MAX_WBITS

# No valid log file comes near this. The limit stops decompression bombs before they fill the memory.
MAX_LOG_FILE_BYTES = 2 * 1024**3
_READ_BYTES = 4 * 1024**2

# Files of a local disk that are together no larger are read one after the other.
_MAX_UNTHREADED_BYTES = 64 * 1024


def compress(lines: bytes) -> bytes:
    """JSON lines as a compressed log file. The same lines give the same bytes."""
    return _PREFIX + gzip.compress(lines, compresslevel=6, mtime=0)


def decompress(data: bytes, name: str, *, max_bytes: int = MAX_LOG_FILE_BYTES) -> bytes:
    """The JSON lines of a log file in any of the three encodings.

    Raises LogCorruptedError, with the file's name, if the stream is damaged, cut off, or gives more than
    `max_bytes`. At most one buffer beyond `max_bytes` is decompressed.
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


def _inflate(stream: bytes, limit_bytes: int) -> bytes:
    """The content of a gzip stream; only its beginning if it exceeds `limit_bytes`."""
    with contextlib.suppress(zlib.error):
        # Most streams are one member, which this decompresses in a fraction of the time.
        member = zlib.decompressobj(_ONE_GZIP_MEMBER)
        content = member.decompress(stream, limit_bytes + 1)
        if member.eof and not member.unused_data:
            return content
    pieces: list[bytes] = []
    size_bytes = 0
    with gzip.GzipFile(fileobj=io.BytesIO(stream)) as file:
        while size_bytes <= limit_bytes and (piece := file.read(_READ_BYTES)):
            pieces.append(piece)
            size_bytes += len(piece)
    return b"".join(pieces)


# Writing and reading


class Written(msgspec.Struct, frozen=True):
    """The commit landed under this version."""

    version: int


class Conflict(msgspec.Struct, frozen=True):
    """Another writer's commit has this version."""

    version: int


def write_version_file(store: ObjectStore, version: int, data: bytes) -> Written | Conflict:
    """Commit `data` as `version`, if that version does not exist yet.

    `data` must be unique to this commit (it carries a commit id, or a new table's id), because a write whose
    response was lost is recognized by reading it back. Raises CommitOutcomeUnknownError if the store becomes
    unavailable before the outcome is known; the caller must then not delete any file that the commit refers to.
    """
    try:
        outcome = store.put_if_absent(version_key(version), data)
    except TransientStorageError as error:
        return _resolve_by_reading(store, version, data, error)
    if outcome is PutOutcome.WRITTEN:
        return Written(version)
    # A store client that retries a write after a lost response finds its own file.
    return _resolve_by_reading(store, version, data, None)


def _resolve_by_reading(
    store: ObjectStore, version: int, data: bytes, cause: TransientStorageError | None
) -> Written | Conflict:
    try:
        found = store.get(version_key(version))
    except StorageError as error:
        # A missing file proves nothing either: a delayed request may still arrive.
        raise CommitOutcomeUnknownError(
            f"{store.url}: the store became unavailable while version {version} was being committed, so the commit "
            f"may or may not have landed ({cause or error}); read the history again before you retry"
        ) from error
    return Written(version) if found == data else Conflict(version)


def read_version_file(store: ObjectStore, file: VersionEntry) -> LogFile:
    """Read and decompress one version file. Raises LogCorruptedError or a StorageError."""
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
    """Read version files with up to `parallelism` threads, and return them in the order given."""
    wanted = list(files)
    if is_on_disk(store) and sum(file.meta.size for file in wanted) <= _MAX_UNTHREADED_BYTES:
        # Starting a thread takes longer than reading a small file.
        parallelism = 1
    return read_each(partial(read_version_file, store), wanted, parallelism=parallelism)


def read_each(read: Callable[[T], R], files: Iterable[T], *, parallelism: int) -> list[R]:
    """Call `read` for each file with up to `parallelism` threads; results are in the order of the files.

    Raises the error of the first file that fails.
    """
    wanted = list(files)
    if len(wanted) <= 1 or parallelism <= 1:
        return [read(file) for file in wanted]
    with ThreadPoolExecutor(min(parallelism, len(wanted)), thread_name_prefix="indextables-log") as pool:
        return list(pool.map(read, wanted))


def find_version_file(store: ObjectStore, version: int) -> ObjectMeta | None:
    """The metadata of a version file, or None if it does not exist."""
    return find_object(store, version_key(version))


def find_object(store: ObjectStore, key: str) -> ObjectMeta | None:
    """The metadata of an object, or None if it does not exist."""
    try:
        return store.head(key)
    except ObjectNotFoundError:
        return None
