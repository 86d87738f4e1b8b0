"""The object store on obstore: S3, Azure, Google Cloud Storage and memory.

It opens clients lazily, and translates obstore's errors into ours by class, never by message.
"""

import bisect
import contextlib
import datetime
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec
import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    JoinError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from indextables.errors import (
    AccessDeniedError,
    InvalidOptionError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsupportedStoreError,
)
from indextables.storage.credentials import ClientSettings
from indextables.storage.native_runtime import enter_native_runtime
from indextables.storage.redaction import Redactor, fingerprint
from indextables.storage.store import Clock, KeyRange, ObjectMeta, PutOutcome, coalesce, probe_key
from indextables.storage.urls import Location, Scheme, validate_folder, validate_key

if TYPE_CHECKING:
    # obstore has these for type checkers only.
    from obstore import ObjectMeta as ClientMeta
    from obstore import UpdateVersion
    from obstore.store import RetryConfig, S3Credential

Client = AzureStore | GCSStore | MemoryStore | S3Store

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_PAGE = 1000
_DELETE_BATCH = 1000
_DELETE_THREADS = 16
# More ranges than this take a second round trip. The best rows of a search lie in many columns of many row groups.
_RANGE_THREADS = 64


class RemoteStore:
    """A table's root in a store that obstore supports. The client opens on first use."""

    def __init__(self, location: Location, settings: ClientSettings, clock: Clock) -> None:
        self._location = location
        self._url = str(location)
        self._prefix = f"{location.path}/" if location.path else ""
        self._clock = clock
        self._redactor = Redactor(settings.secrets())
        self._identity = fingerprint((self._url, *settings.fingerprint_parts()))
        self._client = LazyClient(location, settings, self._redactor)
        self._lists_by_folder = settings.lists_by_folder

    def __repr__(self) -> str:
        return f"RemoteStore({self._url!r})"

    @property
    def url(self) -> str:
        """The canonical URL of the root."""
        return self._url

    @property
    def identity(self) -> str:
        """A cache key that differs between roots and between credentials, and reveals neither."""
        return self._identity

    @property
    def clock(self) -> Clock:
        """The local clock."""
        return self._clock

    def get(self, key: str) -> bytes:
        """Return all bytes of an object. Raises ObjectNotFoundError."""
        client, path = self._client.get(), self._path(key)
        try:
            result = obstore.get(client, path)
            data = result.bytes().to_bytes()
            size = result.meta["size"]
        except CLIENT_ERRORS as error:
            raise self._translated(error, f"get {key}") from error
        if len(data) != size:
            raise TransientStorageError(
                f"{self._url}: get {key}: received {len(data)} of {size} bytes; the connection was closed"
            )
        return data

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """Return exactly the bytes from `start` to `end`. Raises ObjectNotFoundError and StorageError."""
        what = f"get bytes {start} to {end} of {key}"
        if not 0 <= start <= end:
            raise StorageError(f"{self._url}: {what}: not a valid range")
        client, path = self._client.get(), self._path(key)
        if start == end:
            self.head(key)
            return b""
        try:
            data = obstore.get_range(client, path, start=start, end=end).to_bytes()
        except CLIENT_ERRORS as error:
            translated = self._translated(error, what)
            # obstore reports a range beyond the end of the object as a generic failure.
            if isinstance(translated, TransientStorageError):
                self._require_size(key, end, what)
            raise translated from error
        if len(data) != end - start:
            self._require_size(key, end, what)
            raise TransientStorageError(f"{self._url}: {what}: received only {len(data)} bytes")
        return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return exactly the bytes of several ranges. Raises ObjectNotFoundError and StorageError."""
        for start, end in ranges:
            if not 0 <= start <= end:
                raise StorageError(f"{self._url}: get bytes {start} to {end} of {key}: not a valid range")
        # obstore's own call for several ranges panics if one of them is beyond the end of the object.
        spans = coalesce(ranges)
        if len(spans) <= 1:
            received = [self.get_range(key, start, end) for start, end in spans]
        else:
            with ThreadPoolExecutor(min(len(spans), _RANGE_THREADS)) as threads:
                received = list(threads.map(lambda span: self.get_range(key, *span), spans))
        starts = [start for start, _ in spans]
        return [_cut(received, starts, start, end) for start, end in ranges]

    def open_local(self, key: str) -> None:
        """Return None: remote objects are not local files."""
        validate_key(key)

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        client, path = self._client.get(), self._path(key)
        try:
            obstore.put(client, path, data, mode="overwrite")
        except CLIENT_ERRORS as error:
            raise self._translated_put(error, f"put {key}") from error

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Write an object if the key is free.

        obstore reports two cases as "already exists": there is an object (412), or another request for the key is in
        progress (409, which S3 asks clients to retry). A HEAD tells them apart: if there is no object,
        TransientStorageError makes the caller retry the key.
        """
        what = f"put {key} if absent"
        client, path = self._client.get(), self._path(key)
        try:
            obstore.put(client, path, data, mode="create")
        except AlreadyExistsError as error:
            self._redactor.clean_error(error)
            try:
                self.head(key)
            except ObjectNotFoundError:
                raise TransientStorageError(
                    f"{self._url}: {what}: another request for this key is in progress"
                ) from error
            return PutOutcome.EXISTS
        except CLIENT_ERRORS as error:
            raise self._translated_put(error, what) from error
        return PutOutcome.WRITTEN

    def put_if_unchanged(self, key: str, data: bytes, expected: bytes) -> PutOutcome:
        """Replace an object if it still has the bytes `expected`, by its e-tag or generation.

        A store without conditional updates overwrites; one that ignores the condition does so, too.
        """
        what = f"put {key} if unchanged"
        client, path = self._client.get(), self._path(key)
        try:
            found = obstore.get(client, path)
            if found.bytes().to_bytes() != expected:
                return PutOutcome.CHANGED
            try:
                obstore.put(client, path, data, mode=_version_of(found.meta))
            except (NotSupportedError, NotImplementedError):
                obstore.put(client, path, data, mode="overwrite")
        except (FileNotFoundError, PreconditionError) as error:
            self._redactor.clean_error(error)
            return PutOutcome.CHANGED
        except CLIENT_ERRORS as error:
            raise self._translated_put(error, what) from error
        return PutOutcome.WRITTEN

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object. Raises ObjectNotFoundError."""
        client, path = self._client.get(), self._path(key)
        try:
            meta = obstore.head(client, path)
        except CLIENT_ERRORS as error:
            raise self._translated(error, f"head {key}") from error
        return ObjectMeta(key, meta["size"], _milliseconds(meta["last_modified"]))

    def list(
        self, prefix: str, *, start_after: str | None = None, skip: KeyRange | None = None
    ) -> Iterator[ObjectMeta]:
        """Iterate over the objects in a folder, page by page, in the string order of their keys."""
        folder = validate_folder(prefix)
        if self._lists_in_key_order():
            return self._listed_by_offset(folder, start_after, skip)
        return self._listed_then_sorted(folder, start_after, skip)

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, in batches. Missing keys are ignored."""
        client = self._client.get()
        paths = (self._path(key) for key in keys)
        while batch := list(itertools.islice(paths, _DELETE_BATCH)):
            if self._location.scheme in (Scheme.S3, Scheme.MEMORY):
                self._delete(client, batch)
                continue
            # Azure and Google Cloud Storage stop a batch at the first missing key.
            with ThreadPoolExecutor(_DELETE_THREADS, thread_name_prefix="indextables-delete") as pool:
                for _ in pool.map(lambda path: self._delete(client, path), batch):
                    pass

    def remove_empty_folders(self, prefix: str, *, dry_run: bool = False) -> tuple[str, ...]:  # noqa: ARG002
        """Return nothing: an object store has no folders."""
        validate_key(prefix)
        return ()

    def now_ms(self) -> int:
        """Return the time by the store's clock: the modification time of a temporary object."""
        key = probe_key()
        self.put(key, b"")
        try:
            return self.head(key).last_modified_ms
        finally:
            with contextlib.suppress(StorageError):
                self.delete_many([key])

    def _path(self, key: str) -> str:
        return self._prefix + validate_key(key)

    def _lists_in_key_order(self) -> bool:
        """Whether the store lists keys in string order and can start after a key.

        Azure accounts with a hierarchical namespace list folder by folder ("a/x" before "a-b"), and a client cannot
        tell them from other accounts. So do some servers that speak S3; the setting `list_order` says so. Directory
        buckets of S3 list in any order.
        """
        if self._location.scheme is Scheme.S3:
            return not (self._lists_by_folder or self._location.container.endswith("--x-s3"))
        return self._location.scheme is not Scheme.AZURE

    def _listed_by_offset(
        self, folder: str, start_after: str | None, skip: KeyRange | None
    ) -> Iterator[ObjectMeta]:
        """List page by page. If a page ends among the skipped keys, list again after them."""
        while True:
            is_cut_short = False
            for page in self._pages(folder, start_after, offset=start_after):
                self._require_key_order(page, folder)
                yield from _outside(page, skip)
                if skip is not None and len(page) >= _PAGE and page[-1].key in skip:
                    start_after, is_cut_short = skip.last, True
                    break
            if not is_cut_short:
                return

    def _require_key_order(self, page: Sequence[ObjectMeta], folder: str) -> None:
        for before, after in itertools.pairwise(page):
            if before.key > after.key:
                raise StorageError(
                    f"{self._url}: list {folder or 'the root'}: the store lists {before.key!r} before {after.key!r}, "
                    f"not in the order of keys; set the storage option list_order=folders"
                )

    def _listed_then_sorted(
        self, folder: str, start_after: str | None, skip: KeyRange | None
    ) -> Iterator[ObjectMeta]:
        pages = self._pages(folder, start_after, offset=None)
        found = (meta for page in pages for meta in _outside(page, skip))
        yield from sorted(found, key=lambda meta: meta.key)

    def _pages(
        self, folder: str, start_after: str | None, offset: str | None
    ) -> "Iterator[Sequence[ObjectMeta]]":
        """Iterate over the pages of a listing; only the last one may have fewer than `_PAGE` objects."""
        below = f"{self._prefix}{folder}/" if folder else self._prefix
        try:
            pages = obstore.list(
                self._client.get(),
                below.removesuffix("/") or None,
                offset=self._prefix + offset if offset else None,
                chunk_size=_PAGE,
            )
            for page in pages:
                # obstore strips the '/' from a folder's marker object. Some stores ignore the offset, and others
                # include the offset key itself.
                yield [
                    ObjectMeta(key, entry["size"], _milliseconds(entry["last_modified"]))
                    for entry, key in ((entry, entry["path"][len(self._prefix) :]) for entry in page)
                    if entry["path"].startswith(below) and (start_after is None or key > start_after)
                ]
        except CLIENT_ERRORS as error:
            translated = self._translated(error, f"list {folder or 'the root'}")
            if isinstance(translated, TransientStorageError):
                self._require_access(folder)
            raise translated from error

    def _delete(self, client: Client, paths: str | Sequence[str]) -> None:
        try:
            obstore.delete(client, paths)
        except FileNotFoundError:
            return
        except CLIENT_ERRORS as error:
            raise self._translated(error, "delete") from error

    def _require_size(self, key: str, end: int, what: str) -> None:
        size = self.head(key).size
        if size < end:
            raise StorageError(f"{self._url}: {what}: the object has only {size} bytes")

    def _require_access(self, folder: str) -> None:
        """Raise AccessDeniedError if access is denied: obstore reports that for a HEAD, but not for a listing."""
        with contextlib.suppress(ObjectNotFoundError, TransientStorageError):
            self.head(f"{folder}/.access" if folder else ".access")

    def _translated(self, error: Exception, what: str) -> StorageError:
        return translate(error, f"{self._url}: {what}", self._redactor)

    def _translated_put(self, error: Exception, what: str) -> StorageError:
        translated = self._translated(error, what)
        if isinstance(translated, ObjectNotFoundError):
            return StorageError(
                f"{self._url}: {what}: the bucket or container {self._location.container!r} does not exist; create it"
            )
        return translated


def _cut(spans: Sequence[bytes], starts: Sequence[int], start: int, end: int) -> bytes:
    """Return the bytes of a range, which lies in one of the spans."""
    span = bisect.bisect_right(starts, start) - 1
    return spans[span][start - starts[span] : end - starts[span]]


def _version_of(meta: "ClientMeta") -> "UpdateVersion":
    """Return what a store compares before it replaces an object: some use the e-tag, others a version."""
    version: UpdateVersion = {}
    if meta["e_tag"] is not None:
        version["e_tag"] = meta["e_tag"]
    if meta["version"] is not None:
        version["version"] = meta["version"]
    return version


def _outside(page: Iterable[ObjectMeta], skip: KeyRange | None) -> Iterator[ObjectMeta]:
    return (meta for meta in page if skip is None or meta.key not in skip)


def _milliseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND


# --- clients ------------------------------------------------------------------------------------------

# Clients never retry; `RetryingStore` does. It must see every failed attempt: a put-if-absent that the client repeats
# finds its own object, and the store would report it as another writer's.
_NO_RETRIES: "RetryConfig" = {"max_retries": 0}

# The timeout of a whole request must allow a large object on a slow connection; read_timeout detects stalled requests.
_DEFAULT_CLIENT_SETTINGS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "10m"}


class LazyClient:
    """A client that opens on first use. Thread-safe.

    The native threads of a client do not survive a fork: a forked child would wait forever, so it gets a StorageError.
    """

    def __init__(self, location: Location, settings: ClientSettings, redactor: Redactor) -> None:
        self._location = location
        self._settings = settings
        self._redactor = redactor
        self._lock = threading.Lock()
        self._client: Client | None = None

    def get(self) -> Client:
        """Return the client. Raises InvalidOptionError if the settings are invalid, and StorageError after a fork."""
        enter_native_runtime(str(self._location), needs_threads=self._location.scheme is not Scheme.MEMORY)
        with self._lock:
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> Client:
        try:
            return _OPENERS[self._location.scheme](self._location, self._settings)
        except (BaseError, ValueError) as error:
            self._redactor.clean_error(error)
            raise InvalidOptionError(
                f"{self._location}: the storage options are invalid: {str(error).partition(chr(10))[0]}"
            ) from error


_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def _open_memory(location: Location, settings: ClientSettings) -> Client:  # noqa: ARG001 - memory takes none
    with _memory_lock:
        return _memory_stores.setdefault(location.container, MemoryStore())


def _open_s3(location: Location, settings: ClientSettings) -> Client:
    endpoint = settings.config.get("endpoint")
    # AWS_ENDPOINT_URL_S3 in the environment would override an explicit endpoint.
    specific = {} if endpoint is None else {"aws_endpoint_url_s3": endpoint}
    explicit = msgspec.structs.replace(settings, config=settings.config | specific)
    return S3Store(location.container, credential_provider=_s3_provider(settings), **_arguments(explicit))


def _open_azure(location: Location, settings: ClientSettings) -> Client:
    return AzureStore(location.container, **_arguments(settings))


def _open_gcs(location: Location, settings: ClientSettings) -> Client:
    return GCSStore(location.container, **_arguments(settings))


_OPENERS: dict[Scheme, Callable[[Location, ClientSettings], Client]] = {
    Scheme.MEMORY: _open_memory,
    Scheme.S3: _open_s3,
    Scheme.AZURE: _open_azure,
    Scheme.GCS: _open_gcs,
}


def _arguments(settings: ClientSettings) -> dict[str, Any]:
    revealed = {name: value.reveal() for name, value in settings.client.items()}
    return {
        "config": {name: value.reveal() for name, value in settings.config.items()},
        "client_options": _DEFAULT_CLIENT_SETTINGS | revealed,
        "retry_config": _NO_RETRIES,
    }


def _s3_provider(settings: ClientSettings) -> "Callable[[], S3Credential] | None":
    """Return a provider of exactly the given keys if the client would add a session token from the environment."""
    if "session_token" not in settings.overridden or "session_token" in settings.config:
        return None
    key_id, key = settings.config.get("access_key_id"), settings.config.get("secret_access_key")
    if key_id is None or key is None:
        return None
    return lambda: {
        "access_key_id": key_id.reveal(),
        "secret_access_key": key.reveal(),
        "token": None,
        "expires_at": None,
    }


# --- errors -------------------------------------------------------------------------------------------

CLIENT_ERRORS = (BaseError, OSError, ValueError, NotImplementedError)
"""Every error that obstore raises."""

# obstore reports timeouts, resets, server errors and malformed requests alike as GenericError. Retrying a malformed
# request wastes time; not retrying the others would fail operations that could succeed.
_TRANSIENT = (GenericError, JoinError, AlreadyExistsError, PreconditionError)

_MAX_DETAIL = 300


def translate(error: Exception, what: str, redactor: Redactor) -> StorageError:
    """Return our error for one of obstore's. `what` names the failed call and its place.

    The original is redacted in place, so the caller can chain it.
    """
    redactor.clean_error(error)
    detail = _first_line(error)
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{what}: no such object")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return AccessDeniedError(
            f"{what}: access denied; check the credentials and their permissions ({detail})"
        )
    if isinstance(error, NotSupportedError | NotImplementedError):
        return UnsupportedStoreError(f"{what}: the store does not support this ({detail})")
    if isinstance(error, InvalidPathError):
        return StorageError(
            f"{what}: the store contains an object whose name is not a valid path; rename or remove it ({detail})"
        )
    if isinstance(error, _TRANSIENT):
        return TransientStorageError(
            f"{what}: the request failed and may succeed later; if it keeps failing, check the endpoint, the region "
            f"and the credentials ({detail})"
        )
    return StorageError(f"{what}: {detail}")


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].strip() or type(error).__name__
    return line if len(line) <= _MAX_DETAIL else f"{line[:_MAX_DETAIL]}…"
