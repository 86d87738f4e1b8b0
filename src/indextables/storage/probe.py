"""Objects written only to learn something about a store."""

import contextlib
import uuid

from indextables.errors import StorageError, UnsupportedStoreError
from indextables.storage.protocol import ObjectStore, PutOutcome

PROBE_PREFIX = "_transaction_log/.probe-"
"""How the keys of such objects start: where the log's own objects are, under a name that no reader knows."""


def probe_key() -> str:
    """A new key for a probe."""
    return f"{PROBE_PREFIX}{uuid.uuid4().hex}"


def require_put_if_absent(store: ObjectStore) -> None:
    """Return if the store honours put-if-absent; the probe is deleted either way, as far as the store allows.

    Raises UnsupportedStoreError if it overwrites instead.
    """
    key = probe_key()
    try:
        first = store.put_if_absent(key, b"first")
        second = store.put_if_absent(key, b"second")
    finally:
        with contextlib.suppress(StorageError):
            store.delete_many([key])
    if first is not PutOutcome.WRITTEN or second is not PutOutcome.EXISTS:
        raise UnsupportedStoreError(
            f"{store.url}: the store ignores put-if-absent, so that two writers could overwrite each other's "
            f"commits; use one that honours 'If-None-Match: *' (Amazon S3, Azure, Google Cloud, MinIO, R2)"
        )
