"""From a path and options to a store."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from indextables.errors import IndexTablesError
from indextables.storage.credentials import client_settings
from indextables.storage.local import LocalStore
from indextables.storage.redaction import Secret
from indextables.storage.retrying import RetryingStore
from indextables.storage.store import Clock, ObjectStore, SystemClock
from indextables.storage.urls import Scheme, parse_root


# A dataclass, since a Struct would show all of its fields to whoever prints with rich: these may be secret.
@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """What a store is opened from, ready to be sent to another process. Shows no credentials.

    Stores themselves hold clients and stay in their process; pickle this one, which carries the credentials.
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
        """The location for the arguments of `open_store`."""
        return cls(os.fspath(path), _wrapped(storage_options), _wrapped(options))

    def __repr__(self) -> str:
        try:
            return f"StoreLocation({self.url!r})"
        except IndexTablesError:
            return "StoreLocation(a path that cannot be used)"

    @property
    def url(self) -> str:
        """The canonical URL of the root, as `ObjectStore.url` gives it. Raises InvalidOptionError."""
        return str(parse_root(self.path))

    def open(self, clock: Clock | None = None) -> ObjectStore:
        """Open the store. Raises as `open_store` does."""
        location = parse_root(self.path)
        local_clock = clock or SystemClock()
        if location.scheme is Scheme.LOCAL:
            return RetryingStore(LocalStore(location, local_clock))
        # The library behind it takes longer to import than a local table to open.
        from indextables.storage.remote import RemoteStore

        settings = client_settings(location, dict(self.storage_options), dict(self.options))
        return RetryingStore(RemoteStore(location, settings, local_clock))


def open_store(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> ObjectStore:
    """The store at a local path or at a file:, s3: (s3a:, s3n:), abfss: (abfs:, az:, azure:, wasb:), gs: or
    memory: URL. Transient failures are retried.

    Nothing is created, and no connection opens before the first call. Credentials come from `storage_options`
    (object_store's names), from Spark's and Hadoop's `options`, or from the environment. All memory: URLs of
    one name share their data within the process. Raises InvalidOptionError for a path or an option that
    cannot be used, and UnsafePathError.
    """
    return StoreLocation.of(path, storage_options=storage_options, options=options).open(clock)


def _wrapped(options: Mapping[str, str] | None) -> tuple[tuple[str, Secret], ...]:
    return tuple((name, Secret(str(value))) for name, value in (options or {}).items())
