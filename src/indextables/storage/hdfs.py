"""The object store on HDFS, through hdfs-native: no JVM is needed.

HDFS shows a file from its creation on, so every write goes to a temporary file that gets its name when it is complete.
Renaming without replacing is atomic: of all concurrent writers of a name, one wins.
"""

import contextlib
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import hdfs_native
import msgspec
from hdfs_native import FileStatus, WriteOptions

from indextables.errors import (
    AccessDeniedError,
    InvalidOptionError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
)
from indextables.storage.hdfs_settings import HdfsSettings
from indextables.storage.native_runtime import enter_native_runtime
from indextables.storage.redaction import fingerprint
from indextables.storage.store import Clock, KeyRange, ObjectMeta, PutOutcome, coalesce, probe_key
from indextables.storage.urls import Location, validate_folder, validate_key
from indextables.storage.walk import TEMPORARY_PREFIX, WantedKeys, by_name, can_be_key, in_key_order

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")

_RANGE_THREADS: Final = 16
_DELETE_THREADS: Final = 16

# A writer holds the lock of an object for a comparison and a rename. One that is this old was left by a crash.
_STALE_LOCK_MS: Final = 60_000
_LOCK_ATTEMPTS: Final = 1000
_LOCK_PAUSE_SECONDS: Final = 0.02


class HdfsStore:
    """A table's root in HDFS. The client connects on first use."""

    def __init__(self, location: Location, settings: HdfsSettings, clock: Clock) -> None:
        self._url = str(location)
        self._root = f"/{location.path}" if location.path else ""
        self._authority = location.container
        self._settings = settings
        self._clock = clock
        self._identity = fingerprint((self._url, *settings.fingerprint_parts()))
        self._lock = threading.Lock()
        self._client: hdfs_native.Client | None = None

    def __repr__(self) -> str:
        return f"HdfsStore({self._url!r})"

    @property
    def url(self) -> str:
        """The canonical URL of the root."""
        return self._url

    @property
    def identity(self) -> str:
        """A cache key that differs between roots and between settings."""
        return self._identity

    @property
    def clock(self) -> Clock:
        """The local clock."""
        return self._clock

    def get(self, key: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError."""
        what, path = f"get {key}", self._path(key)
        with self._translating(what):
            reader = self._open().read(path)
            size = len(reader)
            data = reader.read_range(0, size) if size else b""
        return self._whole(data, size, what)

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`. Raises ObjectNotFoundError and StorageError."""
        what, path = f"get bytes {start} to {end} of {key}", self._path(key)
        if not 0 <= start <= end:
            raise StorageError(f"{self._url}: {what}: not a valid range")
        with self._translating(what):
            reader = self._open().read(path)
            size = len(reader)
            # Reading past the end of a file makes the client panic.
            data = reader.read_range(start, end - start) if start < end <= size else b""
        if end > size:
            raise StorageError(f"{self._url}: {what}: the object has only {size} bytes")
        return self._whole(data, end - start, what)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return exactly the bytes of several ranges. Raises ObjectNotFoundError and StorageError."""
        for start, end in ranges:
            if not 0 <= start <= end:
                raise StorageError(f"{self._url}: get bytes {start} to {end} of {key}: not a valid range")
        spans = coalesce(ranges)
        received = dict(zip(spans, self._each(lambda span: self.get_range(key, *span), spans), strict=True))
        return [_cut(received, start, end) for start, end in ranges]

    def open_local(self, key: str) -> None:
        """Return None: the blocks of HDFS are not local files."""
        validate_key(key)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        path = self._path(key)
        with self._translating_writes(f"put {key}"), self._temporary(path, data) as temporary:
            self._open().rename(temporary, path, overwrite=True)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free."""
        path = self._path(key)
        with self._translating_writes(f"put {key} if absent"):
            if self._status(path) is not None:
                return PutOutcome.EXISTS
            with self._temporary(path, data) as temporary:
                written = self._rename_new(temporary, path)
        return PutOutcome.WRITTEN if written else PutOutcome.EXISTS

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the bytes `expected`, under a lock file beside it.

        A lock that a crashed process left is removed after a minute.
        """
        path = self._path(key)
        with self._translating_writes(f"put {key} if unchanged"):
            if self._status(path) is None:
                return PutOutcome.CHANGED
            with self._temporary(path, data) as temporary, self._locked(path, temporary):
                try:
                    is_unchanged = self.get(key) == expected
                except ObjectNotFoundError:
                    is_unchanged = False
                if is_unchanged:
                    self._open().rename(temporary, path, overwrite=True)
        return PutOutcome.WRITTEN if is_unchanged else PutOutcome.CHANGED

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        what, path = f"head {key}", self._path(key)
        with self._translating(what):
            status = self._status(path)
        if status is None or status.isdir:
            raise ObjectNotFoundError(f"{self._url}: {what}: no such object")
        return ObjectMeta(key, status.length, status.modification_time)

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder in the string order of their keys, reading one folder at a time."""
        folder, wanted = validate_folder(prefix), WantedKeys(start_after, skip)
        return self._listed(f"{folder}/" if folder else "", wanted)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing keys and folders are ignored."""
        self._each(self._delete, [(key, self._path(key)) for key in keys], _DELETE_THREADS)

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the empty folders whose names start with `prefix`. A folder with any file in it stays."""
        parent, _, start = validate_key(prefix).rpartition("/")
        with self._translating(f"remove the empty folders {prefix}*"):
            folders = [
                status.path
                for status in self._statuses(self._path(parent) if parent else self._root)
                if status.isdir and _name(status).startswith(start)
            ]
            is_gone = self._is_empty if dry_run else self._remove_if_empty
            removed = [path for path in folders if is_gone(path)]
        return tuple(sorted(path[len(self._root) + 1 :] for path in removed))

    def now_ms(self) -> int:
        """Return the time by the NameNode's clock: the modification time of a temporary object."""
        key = probe_key()
        self.put(key, b"")
        try:
            return self.head(key).last_modified_ms
        finally:
            with contextlib.suppress(StorageError):
                self.delete_many([key])

    def _open(self) -> hdfs_native.Client:
        enter_native_runtime(self._url)
        with self._lock:
            if self._client is None:
                self._client = self._settings.open(self._authority)
            return self._client

    def _path(self, key: str) -> str:
        segments = validate_key(key).split("/")
        if segments[-1].startswith(TEMPORARY_PREFIX):
            raise UnsafePathError(f"{self._url}: {key!r} has a name reserved for temporary files")
        if ":" in key:
            raise UnsafePathError(f"{self._url}: {key!r} has a colon, which HDFS does not allow in a name")
        return f"{self._root}/{key}"

    def _each(
        self, call: Callable[[_Item], _Result], items: Sequence[_Item], threads: int = _RANGE_THREADS
    ) -> Sequence[_Result]:
        if len(items) <= 1:
            return [call(item) for item in items]
        with ThreadPoolExecutor(min(len(items), threads), thread_name_prefix="indextables-hdfs") as pool:
            return list(pool.map(call, items))

    def _status(self, path: str) -> FileStatus | None:
        try:
            return self._open().get_file_info(path)
        except FileNotFoundError:
            return None

    def _statuses(self, folder: str) -> Sequence[FileStatus]:
        """The entries of a folder; none if it is missing, or a file."""
        try:
            found = list(self._open().list_status(folder or "/"))
        except FileNotFoundError:
            return []
        return [status for status in found if status.path != folder]

    def _listed(self, prefix: str, wanted: WantedKeys) -> Iterator[ObjectMeta]:
        with self._translating(f"list {prefix or 'the root'}"):
            for key, entry in in_key_order(prefix, lambda folder: self._entries(folder, wanted)):
                yield ObjectMeta(key, entry.status.length, entry.status.modification_time)

    def _entries(self, folder: str, wanted: WantedKeys) -> Sequence["_Entry"]:
        found = []
        for status in self._statuses(f"{self._root}/{folder}".removesuffix("/")):
            name = f"{_name(status)}/" if status.isdir else _name(status)
            is_wanted = wanted.may_be_in(folder + name) if status.isdir else wanted.has(folder + name)
            if is_wanted and not name.startswith(TEMPORARY_PREFIX) and can_be_key(_name(status)):
                found.append(_Entry(name, status))
        return sorted(found, key=by_name)

    @contextlib.contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[str]:
        """Write the bytes to a new file beside `path`, flushed to disk; remove it unless it was renamed."""
        client, temporary = self._open(), _temporary_beside(path)
        try:
            with client.create(temporary, WriteOptions(create_parent=True)) as writer:
                if data:
                    writer.write(data)
                    writer.hsync()
            yield temporary
        finally:
            # A failure leaves a file that no reader lists; it must not hide the first error.
            with contextlib.suppress(OSError, RuntimeError):
                client.delete(temporary)

    def _rename_new(self, temporary: str, path: str) -> bool:
        """Give a file its name and return True, or return False if the name is taken.

        The client repeats a call whose answer is lost, and then finds its own file under the name. Only this call moves
        the temporary file: if that is gone, the rename took effect.
        """
        try:
            self._open().rename(temporary, path)
        except (FileExistsError, FileNotFoundError):
            return self._status(temporary) is None
        except RuntimeError:
            # A folder has the name: HDFS reports that by a general exception.
            status = self._status(path)
            if status is None or not status.isdir:
                raise
            raise NotADirectoryError(path) from None
        return True

    @contextlib.contextmanager
    def _locked(self, path: str, written_now: str) -> Iterator[None]:
        """Hold the lock of an object. `written_now` is a file that was just written, for the NameNode's time."""
        folder, _, name = path.rpartition("/")
        lock = f"{folder}/{TEMPORARY_PREFIX}lock-{name}"
        for _ in range(_LOCK_ATTEMPTS):
            if self._is_created(lock):
                break
            self._remove_if_stale(lock, written_now)
            self._clock.sleep(_LOCK_PAUSE_SECONDS)
        else:
            raise TransientStorageError(f"{self._url}: other writers keep replacing {name}")
        try:
            yield
        finally:
            self._open().delete(lock)

    def _is_created(self, lock: str) -> bool:
        try:
            self._open().create(lock, WriteOptions(overwrite=False)).close()
        except FileExistsError:
            return False
        return True

    def _remove_if_stale(self, lock: str, written_now: str) -> None:
        held, now = self._status(lock), self._status(written_now)
        if held and now and now.modification_time - held.modification_time > _STALE_LOCK_MS:
            self._open().delete(lock)

    def _delete(self, item: tuple[str, str]) -> None:
        key, path = item
        with self._translating(f"delete {key}"):
            status = self._status(path)
            if status is not None and not status.isdir:
                self._open().delete(path)

    def _is_empty(self, folder: str) -> bool:
        return not self._statuses(folder)

    def _remove_if_empty(self, folder: str) -> bool:
        try:
            return self._open().delete(folder, recursive=False)
        except RuntimeError as error:
            if _java_class(error) == "PathIsNotEmptyDirectoryException":
                return False
            raise

    def _whole(self, data: bytes, size: int, what: str) -> bytes:
        if len(data) != size:
            raise TransientStorageError(f"{self._url}: {what}: received {len(data)} of {size} bytes")
        return data

    @contextlib.contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise _translated(error, f"{self._url}: {what}") from error

    @contextlib.contextmanager
    def _translating_writes(self, what: str) -> Iterator[None]:
        """Translate the errors of a write. Writes create missing folders, so a missing path means a name conflict."""
        try:
            with self._translating(what):
                yield
        except ObjectNotFoundError as error:
            raise StorageError(
                f"{self._url}: {what}: a file is where a folder should be, or a folder where a file should be"
            ) from error


class _Entry(msgspec.Struct, frozen=True):
    """An entry of a folder. The name of a folder ends in '/'."""

    name: str
    status: FileStatus


def _name(status: FileStatus) -> str:
    return status.path.rpartition("/")[2]


def _temporary_beside(path: str) -> str:
    return f"{path.rpartition('/')[0]}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"


def _cut(spans: Mapping[tuple[int, int], bytes], start: int, end: int) -> bytes:
    first, last = next(span for span in spans if span[0] <= start and end <= span[1])
    return spans[first, last][start - first : end - first]


# --- errors -------------------------------------------------------------------------------------------

# The client has one class for all failures of the NameNode. Its text names the exception of the NameNode.
_REMOTE_FAILURE = re.compile(r'RPCError\("(?:[\w$]+\.)*(?P<name>[\w$]+)"')
_CLIENT_FAILURE = re.compile(r"(?P<name>\w+)\(")
_DENIED = frozenset(
    {"AccessControlException", "SaslException", "SASLError", "GSSAPIError", "NoSASLMechanism"}
)
_TRANSIENT = frozenset(
    {
        *(
            "StandbyException",
            "RetriableException",
            "SafeModeException",
            "ConnectException",
            "LeaseExpiredException",
        ),
        *("NotReplicatedYetException", "AlreadyBeingCreatedException", "ObserverRetryOnActiveException"),
        *("DataTransferError", "BlocksNotFound", "ChecksumError", "InternalError"),
    }
)
_NO_NAME = frozenset(
    {"InvalidPathException", "FSLimitException$PathComponentTooLongException", "FSLimitException"}
)
_QUOTA = frozenset({"DSQuotaExceededException", "NSQuotaExceededException", "QuotaExceededException"})
_NAME_CONFLICT = frozenset({"ParentNotDirectoryException", "IllegalStateException"})


def _java_class(error: RuntimeError) -> str:
    text = str(error)
    match = _REMOTE_FAILURE.match(text) or _CLIENT_FAILURE.match(text)
    return match["name"] if match else ""


def _translated(error: OSError | RuntimeError, what: str) -> StorageError | InvalidOptionError:
    # The text of a remote exception ends in the stack of the NameNode.
    reason = str(error).replace("\\n", "\n").partition("\n")[0]
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return ObjectNotFoundError(f"{what}: no such object")
    if isinstance(error, OSError):
        return TransientStorageError(f"{what}: {reason}")
    name = _java_class(error)
    if name in _DENIED:
        return AccessDeniedError(
            f"{what}: {reason}; check the user (HADOOP_USER_NAME, Kerberos) and the permissions"
        )
    if name in _TRANSIENT:
        return TransientStorageError(f"{what}: {reason}")
    if name in _NO_NAME:
        return UnsafePathError(f"{what}: {reason}; this path is not a valid key")
    if name in _NAME_CONFLICT:
        return ObjectNotFoundError(f"{what}: {reason}")
    if name in _QUOTA:
        return StorageError(f"{what}: {reason}; nothing was written; raise the quota")
    if name == "InvalidArgument":
        return InvalidOptionError(
            f"{what}: {reason}; name the NameNode in the URL, or set HADOOP_CONF_DIR or the storage option config_dir"
        )
    return StorageError(f"{what}: {reason}")
