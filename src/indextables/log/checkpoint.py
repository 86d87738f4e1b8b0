"""`_last_checkpoint`: a hint at the newest checkpoint or state.

Never trusted until it is matched: a missing, corrupt or stale hint costs time, never correctness.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.actions import AnyAction, CheckpointInfo, TransactionAction, encode_actions
from indextables.log.decode import VersionSummary
from indextables.log.paths import LAST_CHECKPOINT_KEY, MAX_VERSION
from indextables.log.replay import (
    DOC_MAPPING_PROPERTY_PREFIX,
    EMPTY_HEADER,
    LogHeader,
    registered_doc_mappings,
    replay_header,
)
from indextables.log.segment import BaseFormat
from indextables.storage import ObjectStore

logger = logging.getLogger(__name__)

# More commits than any table has seen: a hint with a larger number is damaged.
_PLAUSIBLE_VERSION: Final = 10**12

_PARTS_OF_JSON: Final = "json-multipart"


class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `_last_checkpoint`; `size` counts actions, `size_in_bytes` the bytes of live files."""

    version: int
    size: int = 0
    size_in_bytes: int = 0
    num_files: int = 0
    created_time: int = 0
    parts: int | None = None
    checkpoint_id: str | None = None
    format: str | None = None
    state_dir: str | None = None
    protocol_version: int | None = None

    @property
    def format_name(self) -> str:
        """The format of the checkpoint that it names: older writers, which knew only one, do not say."""
        return self.format or ("json" if self.checkpoint_id is None else _PARTS_OF_JSON)

    @property
    def base_format(self) -> BaseFormat | None:
        """What kind of checkpoint it names; None for one that we do not know."""
        name = self.format_name.replace(_PARTS_OF_JSON, "json")
        return next((kind for kind in BaseFormat if kind.value == name), None)

    def bears_witness_beyond(self, version: int) -> bool:
        """Whether there must have been a newer version than this one: a hint follows the checkpoint that it names."""
        return version < self.version <= _PLAUSIBLE_VERSION


def read_hint(store: ObjectStore) -> LastCheckpoint | None:
    """The hint, or None if there is none that makes sense."""
    try:
        data = store.get(LAST_CHECKPOINT_KEY)
    except ObjectNotFoundError:
        return None
    try:
        hint = msgspec.json.decode(data, type=LastCheckpoint, strict=False)
    except (ValueError, RecursionError) as error:
        logger.warning("%s/%s is not readable and is ignored (%s)", store.url, LAST_CHECKPOINT_KEY, error)
        return None
    # A number that no version can have would keep the hint from ever moving on.
    return hint if 0 <= hint.version <= MAX_VERSION else None


def advance_hint(store: ObjectStore, hint: LastCheckpoint) -> None:
    """Point the hint at a newer checkpoint. It never moves backwards."""
    current = read_hint(store)
    if current is not None and current.version > hint.version:
        return
    store.put(LAST_CHECKPOINT_KEY, msgspec.json.encode(hint))


# What every checkpoint holds, whatever its format, and its header as actions.


class Checkpoint(msgspec.Struct, frozen=True):
    """The table at `header.version`: its header and its live file entries."""

    header: LogHeader
    entries: pa.Table


def header_lines(header: LogHeader, num_adds: int) -> bytes:
    """A header as JSON lines: everything of a checkpoint that is not a file entry."""
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
        schemas = {
            f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": header.doc_mappings[hash_] for hash_ in sorted(known)
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
    known = {f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}" for hash_ in info.known_schemas}
    configuration = {key: value for key, value in header.metadata.configuration.items() if key not in known}
    restored = replace(
        header,
        timestamp_ms=info.timestamp,
        metadata=replace(header.metadata, configuration=configuration),
        recent_commits=info.recent_commits,
    )
    return Checkpoint(restored, entries)
