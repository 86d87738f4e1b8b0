"""DESCRIBE STATE: what a table's state looks like, and whether it needs attention."""

from datetime import UTC, datetime

import pyarrow as pa

from indextables.state.compaction import CompactionRules, compaction_trigger
from indextables.state.source import StateSource
from indextables.state.state_manifest import StateManifest
from indextables.table import Snapshot

DESCRIBE_SCHEMA = pa.schema(
    [pa.field("property", pa.string(), nullable=False), pa.field("value", pa.string())]
)


def describe_state(snapshot: Snapshot) -> pa.Table:
    """Properties and values, both texts. Properties that the format does not have are left out."""
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
    ratio = len(state.tombstones) / state.num_files if state.num_files else 0.0
    return {
        "numManifests": len(state.manifests),
        "numTombstones": len(state.tombstones),
        "tombstoneRatio": f"{ratio:.2%}",
        "needs_compaction": str(
            compaction_trigger(state, 0, rules, is_partitioned=is_partitioned) is not None
        ).lower(),
        "createdAt": datetime.fromtimestamp(state.created_at_ms / 1000, UTC).isoformat(timespec="seconds"),
    }
