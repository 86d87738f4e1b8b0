"""Opens the store at a path or URL, with its credentials and retries."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from indextables.errors import IndexTablesError, MissingExtraError
from indextables.storage.credentials import client_settings
from indextables.storage.local import LocalStore
from indextables.storage.redaction import Secret
from indextables.storage.store import Clock, ObjectStore, RetryingStore, SystemClock
from indextables.storage.urls import Location, Scheme, parse_root


# A dataclass: rich prints every field of a msgspec.Struct, and these may hold secrets.
@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """The arguments to open a store, for sending to another process. `repr` shows no credentials.

    A store holds a client and stays in its process. Pickle its location instead, which includes the credentials.
    """

    path: str
    storage_options: tuple[tuple[str, Secret], ...] = ()
    options: tuple[tuple[str, Secret], ...] = ()

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> "StoreLocation":
        """Return the location for the arguments of `open_store`."""
        return cls(os.fspath(path), _wrapped(storage_options), _wrapped(options))

    def __repr__(self) -> str:
        try:
            return f"StoreLocation({self.url!r})"
        except IndexTablesError:
            return "StoreLocation(invalid path)"

    @property
    def url(self) -> str:
        """The canonical URL of the root, equal to `ObjectStore.url`. Raises InvalidOptionError."""
        return str(parse_root(self.path))

    def open(self, clock: Clock | None = None) -> ObjectStore:
        """Open the store. Raises the errors of `open_store`."""
        location = parse_root(self.path)
        local_clock = clock or SystemClock()
        if location.scheme is Scheme.LOCAL:
            return RetryingStore(LocalStore(location, local_clock))
        if location.scheme is Scheme.HDFS:
            return RetryingStore(self._hdfs(location, local_clock))
        # Importing obstore takes longer than opening a local table.
        from indextables.storage.remote import RemoteStore

        settings = client_settings(location, dict(self.storage_options), dict(self.options))
        return RetryingStore(RemoteStore(location, settings, local_clock))

    def _hdfs(self, location: Location, clock: Clock) -> ObjectStore:
        try:
            from indextables.storage.hdfs import HdfsStore
            from indextables.storage.hdfs_settings import hdfs_settings
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"{location}: HDFS needs the package hdfs-native; install it with: pip install 'indextables[hdfs]'"
            ) from error
        return HdfsStore(location, hdfs_settings(dict(self.storage_options), dict(self.options)), clock)


def open_store(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ObjectStore:
    """Open the store at a local path or a file:, s3: (s3a:, s3n:), abfss: (abfs:, az:, azure:, wasb:), gs:,
    hdfs: or memory: URL. The store retries transient failures.

    Opening creates nothing and does not connect. Credentials come from `storage_options` (object_store's names), from
    Spark's and Hadoop's `options`, or from the environment. Within a process, memory: URLs of the same name share their
    data. Raises InvalidOptionError for an invalid path or option, and UnsafePathError.
    """
    return StoreLocation.of(path, storage_options=storage_options, options=options).open(clock)


def _wrapped(options: Mapping[str, str] | None) -> tuple[tuple[str, Secret], ...]:
    return tuple((name, Secret(str(value))) for name, value in (options or {}).items())
