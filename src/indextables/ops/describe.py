"""DESCRIBE STATE: what a table's state looks like, and whether it needs attention."""

from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from indextables.state.compaction import CompactionRules, compaction_trigger
from indextables.state.source import StateSource
from indextables.state.state_manifest import StateManifest
from indextables.table import Snapshot

DESCRIBE_SCHEMA = pa.schema(
    [pa.field("property", pa.string(), nullable=False), pa.field("value", pa.string())]
)


_PROPERTIES_OF_STATES: Final = (
    "numManifests",
    "numTombstones",
    "tombstoneRatio",
    "needs_compaction",
    "createdAt",
)


def describe_state(snapshot: Snapshot) -> pa.Table:
    """Properties and values, both texts. Properties that the format does not have are null."""
    segment = snapshot.segment
    properties: dict[str, object] = {
        "format": segment.base.format.value if segment.base is not None else "none",
        "version": snapshot.version,
        "numFiles": snapshot.num_files,
        "totalBytes": snapshot.total_bytes,
    }
    source = snapshot.source
    if isinstance(source, StateSource):
        properties |= _of_state(snapshot, source.manifest)
    else:
        properties |= dict.fromkeys(_PROPERTIES_OF_STATES)
    properties |= {
        "checkpointVersion": segment.base.version if segment.base is not None else None,
        "versionsSinceCheckpoint": len(segment.tail),
        "protocolVersion": snapshot.protocol.min_reader_version,
        "openSkips": len(snapshot.header.skips),
        "gap": None
        if snapshot.gap is None
        else f"version {snapshot.gap.first_missing} is missing or unreadable, version {snapshot.gap.newest} exists",
    }
    return pa.table(
        {
            "property": list(properties),
            "value": [None if value is None else str(value) for value in properties.values()],
        },
        schema=DESCRIBE_SCHEMA,
    )


def _of_state(snapshot: Snapshot, state: StateManifest) -> dict[str, object]:
    rules = CompactionRules.from_settings(snapshot.context.settings)
    is_partitioned = bool(snapshot.partition_columns)
    ratio = len(state.tombstones) / max(state.num_files, 1)
    needs_compaction = compaction_trigger(state, 0, rules, is_partitioned=is_partitioned) is not None
    values = (
        len(state.manifests),
        len(state.tombstones),
        f"{ratio:.2%}",
        str(needs_compaction).lower(),
        datetime.fromtimestamp(state.created_at_ms / 1000, UTC).isoformat(timespec="seconds"),
    )
    return dict(zip(_PROPERTIES_OF_STATES, values, strict=True))
