"""The inputs of an ingestion: files, folders, globs, object-store URLs and standard input, opened as bytes.

Inputs may be compressed with gzip, Zstandard, bzip2 or xz; the first bytes tell, not the name.
"""

import bz2
import fnmatch
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, BinaryIO, Final, cast

import msgspec

from indextables.errors import InvalidOptionError, InvalidValueError, ObjectNotFoundError
from indextables.ingest.foreign_tables import check_folders, check_keys
from indextables.storage import ObjectStore, open_store, unescape_partition_value

STDIN: Final = "-"

_GLOB: Final = re.compile(r"[*?\[]")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_PART_BYTES: Final = 8 * 1024**2
_MAGIC_BYTES: Final = 16

_LOG_FOLDER: Final = "_transaction_log"


class Input(msgspec.Struct, frozen=True):
    """One input. `folders` are the `key=value` folders between a named folder and the file, as Hive writes them."""

    name: str
    size: int
    open_raw: Callable[[], BinaryIO]
    folders: tuple[tuple[str, str | None], ...] = ()
    is_named: bool = True

    def open(self, watch: Callable[[BinaryIO], None] | None = None) -> BinaryIO:
        """Open the input, decompressed. `watch` gets the file with the position of the reader in the raw bytes.

        Raises InvalidOptionError for a zip archive, InvalidValueError, and StorageError for objects.
        """
        raw = self.open_raw()
        if watch is not None:
            watch(raw)
        return decompressed(raw, self.name)

    def head(self, size: int) -> bytes:
        """The first bytes, decompressed."""
        with self.open() as file, reading(self.name):
            return file.read(size)


class reading:  # noqa: N801  # used like a function
    """Translates errors of files and codecs into InvalidValueError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (OSError, EOFError, lzma.LZMAError, _zstd_error())):
            raise InvalidValueError(
                f"{self._name} cannot be read to its end: {error}; is it complete? Nothing was committed"
            ) from error


def decompressed(file: BinaryIO, name: str) -> BinaryIO:
    """The content of a file that may be compressed. The file must be at its start, and seekable."""
    with reading(name):
        magic = file.read(_MAGIC_BYTES)
        file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return cast("BinaryIO", _zstd().ZstdFile(file))
    if magic[:3] == b"BZh" and magic[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return cast("BinaryIO", bz2.BZ2File(file))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return cast("BinaryIO", lzma.LZMAFile(file))
    if magic.startswith(b"PK\x03\x04"):
        raise InvalidOptionError(f"{name} is a zip archive; unpack it, and index the files in it")
    return file


def find_inputs(
    places: Sequence[str],
    is_known: Callable[[str], bool],
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[list[Input], list[str]]:
    """The inputs that places name, in order, and the files of folders that were left out: `is_known` is false for them.

    Raises InvalidOptionError for a place where there is nothing.
    """
    inputs: list[Input] = []
    left_out: list[str] = []
    for place in places:
        found = list(_inputs_at(place, storage_options, options))
        known = [each for each in found if each.is_named or is_known(each.name)]
        left_out += [each.name for each in found if not (each.is_named or is_known(each.name))]
        if not known:
            names = ", ".join(each.name for each in found[:3])
            reason = (
                f"has no file whose name shows its format ({names}); pass --format" if found else "is empty"
            )
            raise InvalidOptionError(f"{place} {reason}")
        inputs += known
    return inputs, left_out


def spooled_stdin() -> Input:
    """Standard input, copied to a temporary file that vanishes with the process: it is read more than once."""
    return _spooled(sys.stdin.buffer, "standard input")


def _inputs_at(
    place: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> Iterator[Input]:
    if place == STDIN:
        yield spooled_stdin()
    elif _URL.match(place) and not place.lower().startswith("file:"):
        yield from _remote(place, storage_options, options)
    else:
        yield from _local(place)


def _spooled(source: IO[bytes], name: str) -> Input:
    with reading(name), tempfile.TemporaryFile(prefix="indextables-input-") as spool:
        shutil.copyfileobj(source, spool, _PART_BYTES)
        spool.flush()
        size = spool.tell()
        copy = _Descriptor(os.dup(spool.fileno()))

    def open_again() -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_Reopened(copy.number, size)))

    return Input(name, size, open_again)


class _Descriptor:
    """A file descriptor that is closed when nothing refers to it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _Reopened(io.RawIOBase):
    """The first `size` bytes of a file, read without moving the position of any other reader.

    `owned` is a file that is closed with this one.
    """

    def __init__(self, descriptor: int, size: int, owned: io.IOBase | None = None) -> None:
        self._descriptor, self._size, self._owned, self._position = descriptor, size, owned, 0

    def close(self) -> None:
        if self._owned is not None:
            self._owned.close()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # any writable buffer
        wanted = min(len(view), max(self._size - self._position, 0))
        data = self._read(self._position, self._position + wanted) if wanted else b""
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read(self, start: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - start, start)


# --- local files --------------------------------------------------------------------------------------


def _local(place: str) -> Iterator[Input]:
    path = Path(place.removeprefix("file://")) if place.lower().startswith("file:") else Path(place)
    if path.is_dir():
        yield from _folder(path)
    elif path.is_file():
        yield _local_file(path)
    elif path.exists():
        # A pipe or a device can be read once only.
        with reading(place), path.open("rb") as pipe:
            yield _spooled(pipe, place)
    elif _GLOB.search(place):
        found = sorted(glob.glob(place, recursive=True))  # noqa: PTH207  # Path.glob takes no absolute patterns
        if not found:
            raise InvalidOptionError(f"no file matches {place}")
        check_folders(_folders_of_matches(place, found))
        for each in found:
            yield from _local(each)
    else:
        raise InvalidOptionError(f"file {place} does not exist")


def _folder(folder: Path) -> Iterator[Input]:
    if (folder / _LOG_FOLDER).is_dir():
        raise InvalidOptionError(f"{folder} is a table, not a folder of files to index")
    for parent, folders, files in os.walk(folder):
        check_folders([Path(parent)])
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        for name in sorted(files):
            if not name.startswith((".", "_")):
                path = Path(parent, name)
                yield _local_file(
                    path, is_named=False, folders=_hive_folders(path.relative_to(folder).parts[:-1])
                )


def _folders_of_matches(pattern: str, matches: Sequence[str]) -> list[Path]:
    """The folders of files that match, up to the last one that the pattern names without wildcards."""
    segments = pattern.split("/")
    first_glob = next(place for place, segment in enumerate(segments) if _GLOB.search(segment))
    folders = {
        parent for match in matches for parent in Path(match).parents if len(parent.parts) >= first_glob
    }
    return sorted(folders)


def _local_file(
    path: Path, *, is_named: bool = True, folders: tuple[tuple[str, str | None], ...] = ()
) -> Input:
    size = path.stat().st_size

    def open_again() -> BinaryIO:
        file = path.open("rb", buffering=0)
        # A log may grow while it is read: both passes read what was there at the start.
        return cast("BinaryIO", io.BufferedReader(_Reopened(file.fileno(), size, file)))

    return Input(str(path), size, open_again, folders, is_named)


def _hive_folders(parts: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    pairs = (part.partition("=") for part in parts if "=" in part[1:])
    return tuple((name, unescape_partition_value(value)) for name, _, value in pairs)


# --- object stores ------------------------------------------------------------------------------------


def _remote(
    url: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> Iterator[Input]:
    segments = url.split("/")
    first_glob = next((i for i, part in enumerate(segments) if i > 2 and _GLOB.search(part)), None)
    if first_glob is not None:
        folder, pattern = "/".join(segments[:first_glob]), "/".join(segments[first_glob:])
        store = open_store(folder, storage_options=storage_options, options=options)
        matches = re.compile(fnmatch.translate(pattern)).match
        listed = list(store.list(""))
        found = [meta for meta in listed if matches(meta.key)]
        if not found:
            raise InvalidOptionError(f"no object matches {url}")
        check_keys(folder, (meta.key for meta in listed), (meta.key for meta in found))
        for meta in found:
            yield _object(store, meta.key, meta.size, f"{folder}/{meta.key}")
        return
    folder, _, name = url.rstrip("/").rpartition("/")
    store = open_store(folder, storage_options=storage_options, options=options)
    try:
        yield _object(store, name, store.head(name).size, url)
    except ObjectNotFoundError:
        yield from _remote_folder(url, storage_options, options)


def _remote_folder(
    url: str, storage_options: Mapping[str, str] | None, options: Mapping[str, str] | None
) -> Iterator[Input]:
    store = open_store(url, storage_options=storage_options, options=options)
    listed = list(store.list(""))
    if not listed:
        raise InvalidOptionError(f"object {url} does not exist, and no object is below it")
    if any(meta.key.startswith(f"{_LOG_FOLDER}/") for meta in listed):
        raise InvalidOptionError(f"{url} is a table, not a folder of files to index")
    found = [meta for meta in listed if not any(part.startswith((".", "_")) for part in meta.key.split("/"))]
    check_keys(url, (meta.key for meta in listed), (meta.key for meta in found))
    for meta in found:
        yield _object(
            store,
            meta.key,
            meta.size,
            f"{url.rstrip('/')}/{meta.key}",
            is_named=False,
            folders=_hive_folders(meta.key.split("/")[:-1]),
        )


def _object(
    store: ObjectStore,
    key: str,
    size: int,
    url: str,
    *,
    is_named: bool = True,
    folders: tuple[tuple[str, str | None], ...] = (),
) -> Input:
    def open_again() -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_ObjectFile(store, key, size), _PART_BYTES))

    return Input(url, size, open_again, folders, is_named)


class _ObjectFile(_Reopened):
    """An object, read in ranges."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        super().__init__(-1, size)
        self._store, self._key = store, key

    def _read(self, start: int, end: int) -> bytes:
        return self._store.get_range(self._key, start, end)


def _zstd() -> ModuleType:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _zstd_error() -> type[Exception]:
    return cast("type[Exception]", _zstd().ZstdError)
