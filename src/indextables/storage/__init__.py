"""Object stores behind one protocol, and the rules for keys and URLs."""

from indextables.storage.local import LocalStore
from indextables.storage.open import StoreLocation, open_store
from indextables.storage.redaction import Redactor, Secret
from indextables.storage.store import (
    PROBE_PREFIX,
    Clock,
    KeyRange,
    ObjectMeta,
    ObjectStore,
    PutOutcome,
    RetryingStore,
    RetryPolicy,
    SystemClock,
    coalesce,
    is_on_disk,
    require_put_if_absent,
    with_time_limit,
)
from indextables.storage.urls import (
    NULL_PARTITION,
    Location,
    escape_partition_value,
    parse_root,
    partition_path,
    relative_key,
    unescape_partition_value,
    validate_key,
)

__all__ = [
    "NULL_PARTITION",
    "PROBE_PREFIX",
    "Clock",
    "KeyRange",
    "LocalStore",
    "Location",
    "ObjectMeta",
    "ObjectStore",
    "PutOutcome",
    "Redactor",
    "RetryPolicy",
    "RetryingStore",
    "Secret",
    "StoreLocation",
    "SystemClock",
    "coalesce",
    "escape_partition_value",
    "is_on_disk",
    "open_store",
    "parse_root",
    "partition_path",
    "relative_key",
    "require_put_if_absent",
    "unescape_partition_value",
    "validate_key",
    "with_time_limit",
]
