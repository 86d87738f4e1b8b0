"""Opening obstore's clients: on first use, and in the process that uses them.

A client does not retry by itself. `RetryingStore` does, because it has to know that an attempt failed: a
put-if-absent that is repeated behind its back finds its own object and takes it for somebody else's.
"""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from indextables.errors import InvalidOptionError, StorageError
from indextables.storage.redaction import Redactor
from indextables.storage.settings import ClientSettings
from indextables.storage.urls import Location, Scheme

if TYPE_CHECKING:
    # obstore has these for type checkers only.
    from obstore.store import RetryConfig, S3Credential

Client = AzureStore | GCSStore | MemoryStore | S3Store

_NO_RETRIES: "RetryConfig" = {"max_retries": 0}

# The time for a whole request must be enough for a large object on a slow line, so that a stalled one is
# recognised by the time between two reads.
_DEFAULT_CLIENT_SETTINGS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "10m"}


class LazyClient:
    """A client that opens when it is first needed. Safe for several threads.

    The native threads behind a client do not survive a fork, and a child that used them would wait for ever:
    it gets a StorageError instead.
    """

    def __init__(self, location: Location, settings: ClientSettings, redactor: Redactor) -> None:
        self._location = location
        self._settings = settings
        self._redactor = redactor
        self._lock = threading.Lock()
        self._client: Client | None = None

    def get(self) -> Client:
        """The client. Raises InvalidOptionError if it cannot be built from the settings, and StorageError."""
        _enter_native_runtime(self._location)
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
                f"{self._location}: the storage options cannot be used: {str(error).partition(chr(10))[0]}"
            ) from error


_runtime_pid: int | None = None
_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


def _enter_native_runtime(location: Location) -> None:
    global _runtime_pid
    pid = os.getpid()
    if _runtime_pid is None:
        _runtime_pid = pid
    if _runtime_pid != pid and location.scheme is not Scheme.MEMORY:
        raise StorageError(
            f"{location}: this process was forked from one that had used remote stores, and their threads do "
            f"not survive that; start worker processes with the method 'spawn' or 'forkserver'"
        )


def _open_memory(location: Location, settings: ClientSettings) -> Client:  # noqa: ARG001 - memory takes none
    with _memory_lock:
        return _memory_stores.setdefault(location.container, MemoryStore())


def _open_s3(location: Location, settings: ClientSettings) -> Client:
    endpoint = settings.config.get("endpoint")
    # By this name the environment could overrule an endpoint that was given.
    specific = {} if endpoint is None else {"aws_endpoint_url_s3": endpoint}
    told = msgspec.structs.replace(settings, config=settings.config | specific)
    return S3Store(location.container, credential_provider=_s3_provider(settings), **_arguments(told))


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
    """A provider where the client would complete the keys it was given by a token from the environment."""
    if "session_token" not in settings.outvoted or "session_token" in settings.config:
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
