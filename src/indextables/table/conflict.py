"""Mine against a winner: may a transaction go on after another one was faster? Pure.

The matrix says what happens to a transaction (row) when another one (column) took its version:

    REBASE     its actions stay as they are
    RECOMPUTE  its removes are computed again at the new head
    RECHECK    it goes on unless the winner changed what it builds on
    GROUPS     each merge group goes on if all its sources are still live
    GIVE_UP    it fails with a CommitConflictError

Recomputing, and finding out which groups are still live, is the planner's job (`plan`): it always works on the
newest snapshot. What is decided here is whether it may.
"""

from enum import Enum
from typing import assert_never

import msgspec

from indextables.log.actions import Metadata
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX
from indextables.table.intent import (
    ChangeProperties,
    ConcurrentCommit,
    EmptyCommit,
    Intent,
    Kind,
    RecordTransaction,
)
from indextables.table.snapshot import Snapshot

INDEXING_PREFIX = "spark.indextables.indexing."


class Resolution(Enum):
    """What happens to a transaction that lost a race."""

    REBASE = "rebase"
    RECOMPUTE = "recompute"
    RECHECK = "recheck"
    GROUPS = "groups"
    GIVE_UP = "give up"


_R, _C, _K, _G, _X = (
    Resolution.REBASE,
    Resolution.RECOMPUTE,
    Resolution.RECHECK,
    Resolution.GROUPS,
    Resolution.GIVE_UP,
)

# fmt: off
MATRIX: dict[Kind, dict[Kind, Resolution]] = {
    # loser ↓  winner →   append            overwrite           merge            drop            metadata
    Kind.APPEND:    {Kind.APPEND: _R, Kind.OVERWRITE: _R, Kind.MERGE: _R, Kind.DROP: _R, Kind.METADATA: _K},
    Kind.OVERWRITE: {Kind.APPEND: _C, Kind.OVERWRITE: _C, Kind.MERGE: _C, Kind.DROP: _C, Kind.METADATA: _X},
    Kind.MERGE:     {Kind.APPEND: _R, Kind.OVERWRITE: _G, Kind.MERGE: _G, Kind.DROP: _G, Kind.METADATA: _K},
    Kind.DROP:      {Kind.APPEND: _C, Kind.OVERWRITE: _C, Kind.MERGE: _C, Kind.DROP: _C, Kind.METADATA: _X},
    Kind.METADATA:  {Kind.APPEND: _C, Kind.OVERWRITE: _C, Kind.MERGE: _C, Kind.DROP: _C, Kind.METADATA: _K},
}
# fmt: on


def reason_to_give_up(intent: Intent, before: Metadata, winner: ConcurrentCommit) -> str | None:
    """Why a transaction must not go on after `winner`, or None if it may.

    `before` is the metadata that the transaction was planned on.
    """
    version, metadata = winner.summary.version, winner.summary.actions.metadata
    match MATRIX[intent.kind][kind_of_winner(before, winner)]:
        case Resolution.REBASE | Resolution.RECOMPUTE | Resolution.GROUPS:
            return None
        case Resolution.GIVE_UP:
            return f"version {version} changed the table's metadata or protocol"
        case Resolution.RECHECK:
            changed = _changed_ground(intent, before, metadata or before)
            return f"version {version} changed {changed}" if changed else None
        case _ as unreachable:
            assert_never(unreachable)


def reason_after_cleanup(intent: Intent, before: Snapshot, after: Snapshot) -> str | None:
    """Why a transaction must not go on when the versions in between cannot be read any more.

    What they did to the files is the planner's business; what they did to the table shows in its metadata.
    """
    if before.metadata.id != after.metadata.id:
        return "the table was dropped and created again"
    is_changed = before.protocol != after.protocol or _changes_table(before.metadata, after.metadata)
    if is_changed and MATRIX[intent.kind][Kind.METADATA] is Resolution.GIVE_UP:
        return "the table's metadata or protocol changed"
    changed = _changed_ground(intent, before.metadata, after.metadata)
    return f"other writers changed {changed}" if changed else None


def kind_of_winner(before: Metadata, winner: ConcurrentCommit) -> Kind:
    """Where a version stands in the matrix.

    Registering a doc mapping is part of an append, not a change of the table.
    """
    actions = winner.summary.actions
    if actions.protocol is not None:
        return Kind.METADATA
    if actions.metadata is not None and _changes_table(before, actions.metadata):
        return Kind.METADATA
    if not winner.has_removes:
        return Kind.APPEND
    if not winner.has_adds:
        return Kind.DROP
    return Kind.OVERWRITE if winner.changes_data else Kind.MERGE


def _changes_table(before: Metadata, after: Metadata) -> bool:
    return _without_registry(before) != _without_registry(after)


def _without_registry(metadata: Metadata) -> Metadata:
    return msgspec.structs.replace(metadata, configuration=_own_properties(metadata))


def _own_properties(metadata: Metadata) -> dict[str, str]:
    return {
        key: value
        for key, value in metadata.configuration.items()
        if not key.startswith(DOC_MAPPING_PROPERTY_PREFIX)
    }


def _changed_ground(intent: Intent, before: Metadata, after: Metadata) -> str | None:
    """What a metadata change took away that the transaction stands on."""
    if before.id != after.id:
        return "the table itself: it was created again"
    if isinstance(intent, EmptyCommit | RecordTransaction):
        return None
    if before.schema_string != after.schema_string:
        return "the schema"
    if before.partition_columns != after.partition_columns:
        return "the partitioning"
    changed = {
        key
        for key in {*before.configuration, *after.configuration}
        if before.configuration.get(key) != after.configuration.get(key)
    }
    if intent.kind is Kind.MERGE and any(key.startswith(INDEXING_PREFIX) for key in changed):
        return "the index settings"
    if isinstance(intent, ChangeProperties) and (both := sorted(changed & set(intent.properties))):
        return f"the same properties ({', '.join(both)})"
    return None
