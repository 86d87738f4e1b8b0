"""The state manifest: which manifests make up a table at one version, and everything else a reader needs."""

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from indextables.log.actions import Metadata, Protocol, SkipAction
from indextables.pruning import Bounds

FORMAT_VERSION = 1
PROTOCOL_VERSION = 4

UNKNOWN_COUNT = -1
UNKNOWN_TIME = -1


def no_tombstones() -> pa.StringArray:
    """The tombstones of a state in which every entry is live."""
    return pa.array([], pa.string())


class ManifestInfo(msgspec.Struct, frozen=True):
    """What a state knows about one of its manifests without opening it.

    `path` is as written: see `manifest_path` for its three forms. `partition_bounds` is None if nobody
    computed them, and such a manifest is never pruned. `has_typed_bounds` says that they were compared by the
    columns' types; other writers compare texts. It is the mark of our own writer, with bounds or without.
    `live_entry_count` may be UNKNOWN_COUNT. `first_path` and `last_path`, in the order of their characters, are None if
    nobody looked.
    """

    path: str
    num_entries: int
    min_added_at_version: int
    max_added_at_version: int
    partition_bounds: Mapping[str, Bounds] | None = None
    tombstone_count: int = 0
    live_entry_count: int = UNKNOWN_COUNT
    has_typed_bounds: bool = False
    first_path: str | None = None
    last_path: str | None = None


class StateManifest(msgspec.Struct, frozen=True):
    """The state of a table at `state_version`.

    `num_files` and `total_bytes` count live files: entries of the manifests whose path is not in
    `tombstones`, an Arrow array because there may be many. `metadata` and the fields after it (which other
    writers do not have) are None or empty if unknown. `timestamp_ms` is the commit time of `state_version`,
    or UNKNOWN_TIME.
    """

    state_version: int
    created_at_ms: int
    num_files: int
    total_bytes: int
    manifests: tuple[ManifestInfo, ...]
    tombstones: pa.StringArray = msgspec.field(default_factory=no_tombstones)
    schema_registry: Mapping[str, str] = msgspec.field(default_factory=dict)
    protocol_version: int = PROTOCOL_VERSION
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    skips: tuple[SkipAction, ...] = ()
    transactions: Mapping[str, int] = msgspec.field(default_factory=dict)
    unknown_actions: tuple[str, ...] = ()
    timestamp_ms: int = UNKNOWN_TIME
    recent_commits: Mapping[int, str] = msgspec.field(default_factory=dict)
    format_version: int = FORMAT_VERSION
