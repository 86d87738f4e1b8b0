"""Between the header of the log and the state manifest that carries it."""

from indextables.log.replay import LogHeader, registry_of
from indextables.state.state_manifest import UNKNOWN_TIME, StateManifest


def header_of(manifest: StateManifest) -> LogHeader:
    """What a state says about the table apart from its files.

    States of other writers say neither the protocol nor, often, the metadata: those are None then.
    """
    return LogHeader(
        version=manifest.state_version,
        timestamp_ms=manifest.created_at_ms
        if manifest.timestamp_ms == UNKNOWN_TIME
        else manifest.timestamp_ms,
        protocol=manifest.protocol,
        metadata=manifest.metadata,
        schema_registry={**manifest.schema_registry, **registry_of(manifest.metadata)},
        skips={skip.path: skip for skip in manifest.skips},
        transactions=manifest.transactions,
        recent_commits=manifest.recent_commits,
        unknown_actions=manifest.unknown_actions,
    )
