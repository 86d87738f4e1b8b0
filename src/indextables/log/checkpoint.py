"""Checkpoints: the content that all formats share, and how a checkpoint becomes valid."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import (
    CheckpointValidationError,
    CheckpointWriteError,
    ConcurrentMaintenanceError,
)
from indextables.log.actions import AnyAction, CheckpointInfo, TransactionAction, encode_actions
from indextables.log.decode import VersionSummary
from indextables.log.replay import (
    DOC_MAPPING_PROPERTY_PREFIX,
    EMPTY_HEADER,
    LogHeader,
    check_partition_values,
    registered_doc_mappings,
    replay_header,
)
from indextables.log.version_file import find_object
from indextables.storage import ObjectStore, PutOutcome

# Half of the age below which no garbage collection deletes a file, whatever its settings.
_MAX_WRITE_MS: Final = 30 * 60 * 1000


class Checkpoint(msgspec.Struct, frozen=True):
    """The table at `header.version`: its header and its live file entries."""

    header: LogHeader
    entries: pa.Table


class CheckpointSize(msgspec.Struct, frozen=True):
    """What the files of a new checkpoint take in the store.

    `compression_ratio` is the size of the file entries before compression, divided by their size after it; None if the
    checkpoint wrote none. `parts` is None for a checkpoint that is not divided into parts.
    """

    num_bytes: int
    compression_ratio: float | None
    parts: int | None = None


def header_lines(header: LogHeader, num_adds: int) -> bytes:
    """A header as JSON lines: everything in a checkpoint that is not a file entry."""
    known = header.doc_mappings.keys() - registered_doc_mappings(header.metadata).keys()
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
        properties = {
            f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": header.doc_mappings[hash_] for hash_ in sorted(known)
        }
        actions.append(
            replace(header.metadata, configuration={**header.metadata.configuration, **properties})
        )
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
    """Build the checkpoint of `version` from its decoded header lines and its live file entries.

    `removed` are the paths that its lines remove (see `removed_paths`), if the lines are a whole history. Raises
    CheckpointValidationError if entries are missing, or if the lines belong to another version; and LogCorruptedError
    for an entry without partitionValues in a partitioned table.
    """
    header = replay_header(EMPTY_HEADER, summaries, removed or {})
    info = next((s.actions.checkpoint_info for s in summaries if s.actions.checkpoint_info), None)
    if header.metadata is None:
        raise CheckpointValidationError(f"{name}: the checkpoint has no metaData action")
    check_partition_values(summaries, header.metadata, name)
    if info is None:
        return Checkpoint(header, entries)
    if info.version != version:
        raise CheckpointValidationError(f"{name}: the checkpoint holds version {info.version}, not {version}")
    if info.num_adds != entries.num_rows:
        raise CheckpointValidationError(f"{name}: has {entries.num_rows} of its {info.num_adds} file entries")
    added = {f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}" for hash_ in info.known_schemas}
    configuration = {key: value for key, value in header.metadata.configuration.items() if key not in added}
    restored = replace(
        header,
        timestamp_ms=info.timestamp,
        metadata=replace(header.metadata, configuration=configuration),
        recent_commits=info.recent_commits,
    )
    return Checkpoint(restored, entries)


def publish_checkpoint(
    store: ObjectStore, key: str, data: bytes, version: int, started_ms: int, origin: str | None = None
) -> PutOutcome:
    """Write the file that makes the checkpoint of a version valid, if absent. It is always the last file written.

    PURGE deletes unreferenced files once they are old enough, and cleanup deletes old checkpoints with their files. A
    writer that stalled must not refer to such files. A published checkpoint is never taken back: cleanup may already
    have deleted what it covers.

    Args:
        store: The table's store.
        key: The key of the file.
        data: The content of the file.
        version: The version that the checkpoint is of.
        started_ms: When the write began.
        origin: The key of the state manifest whose manifests the new state shares, if any.

    Raises:
        CheckpointWriteError: The write began too long ago. Nothing is published.
        ConcurrentMaintenanceError: `origin` was deleted. Nothing is published.
    """
    took_ms = store.clock.now_ms() - started_ms
    if took_ms > _MAX_WRITE_MS:
        raise CheckpointWriteError(
            f"{store.url}: the checkpoint of version {version} was not published, because writing it took "
            f"{took_ms // 60_000} minutes and its files may have been garbage-collected; write it again"
        )
    if origin is not None and find_object(store, origin) is None:
        raise ConcurrentMaintenanceError(
            f"{store.url}: the state of version {version} was not published, because {origin}, on which "
            f"it is based, was cleaned up concurrently; open the table again"
        )
    return store.put_if_absent(key, data)
