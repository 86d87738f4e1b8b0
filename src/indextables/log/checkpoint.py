"""What every checkpoint holds, whatever its format, and its header as actions."""

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import LogCorruptedError
from indextables.log.actions import AnyAction, CheckpointInfo, TransactionAction, encode_actions
from indextables.log.decode import VersionSummary
from indextables.log.header import (
    EMPTY_HEADER,
    SCHEMA_PROPERTY_PREFIX,
    LogHeader,
    registry_of,
    replay_header,
)


class Checkpoint(msgspec.Struct, frozen=True):
    """The table at `header.version`: its header and its live file entries."""

    header: LogHeader
    entries: pa.Table


def header_lines(header: LogHeader, num_adds: int) -> bytes:
    """A header as JSON lines: everything of a checkpoint that is not a file entry."""
    known = header.schema_registry.keys() - registry_of(header.metadata).keys()
    actions: list[AnyAction] = [
        CheckpointInfo(
            version=header.version,
            timestamp=header.timestamp_ms,
            num_adds=num_adds,
            recent_commits=header.recent_commits,
            known_schemas=tuple(sorted(known)),
        )
    ]
    if header.protocol is not None:
        actions.append(header.protocol)
    if header.metadata is not None:
        schemas = {
            f"{SCHEMA_PROPERTY_PREFIX}{hash_}": header.schema_registry[hash_] for hash_ in sorted(known)
        }
        actions.append(replace(header.metadata, configuration={**header.metadata.configuration, **schemas}))
    actions += header.skips.values()
    actions += [
        TransactionAction(app_id=app, version=version) for app, version in header.transactions.items()
    ]
    unknown = "".join(f"{line}\n" for line in header.unknown_actions)
    return encode_actions(actions) + unknown.encode()


def build_checkpoint(
    summaries: Sequence[VersionSummary],
    entries: pa.Table,
    version: int,
    name: str,
    *,
    removed: Mapping[str, int] | None = None,
) -> Checkpoint:
    """The checkpoint of `version` from its decoded header lines and its live file entries.

    `removed` are the paths that its lines remove, where they tell more than what is live (`removed_paths`).
    Raises LogCorruptedError if entries are missing, or if the lines belong to another version.
    """
    header = replay_header(EMPTY_HEADER, summaries, removed or {})
    info = next((s.actions.checkpoint_info for s in summaries if s.actions.checkpoint_info), None)
    if header.metadata is None:
        raise LogCorruptedError(f"{name}: the checkpoint has no metaData action")
    if info is None:
        return Checkpoint(header, entries)
    if info.version != version:
        raise LogCorruptedError(f"{name}: the checkpoint holds version {info.version}, not {version}")
    if info.num_adds != entries.num_rows:
        raise LogCorruptedError(f"{name}: has {entries.num_rows} of its {info.num_adds} file entries")
    known = {f"{SCHEMA_PROPERTY_PREFIX}{hash_}" for hash_ in info.known_schemas}
    configuration = {key: value for key, value in header.metadata.configuration.items() if key not in known}
    restored = replace(
        header,
        timestamp_ms=info.timestamp,
        metadata=replace(header.metadata, configuration=configuration),
        recent_commits=info.recent_commits,
    )
    return Checkpoint(restored, entries)
