"""May a transaction continue after a concurrent commit took its version? Pure functions.

The matrix says what happens to this transaction (row) after a concurrent commit (column):

    REBASE     its actions stay as they are
    RECOMPUTE  its removes are computed again on the new snapshot
    RECHECK    it continues unless the concurrent commit changed what it depends on
    GROUPS     each merge group continues if all its sources are still live, with the same deleted rows
    FITS       it continues if the splits that it adds lose nothing under the changed schema
    SEARCH     it continues if the splits that lose rows are still live as they were, and for an upsert if no new split
               has a key of its source; else its rows are found again
    GIVE_UP    it fails with a CommitConflictError

This module only decides whether the transaction may continue. The planner (`plan`) recomputes removes and finds the
merge groups that are still live: it always works on the newest snapshot. If a split that loses rows has changed, it
raises RowsMovedError, and the operation searches the new snapshot. So does the check of an upsert before each try.

The commit of an upsert is a concurrent append, overwrite or delete, as its actions are: it has no column of its own.
"""

from enum import Enum
from typing import assert_never

import msgspec

from indextables.errors import InvalidSchemaError
from indextables.log.actions import (
    COLUMN_MAPPING,
    DELETION_VECTORS,
    Metadata,
    ProtocolAction,
    without_feature,
)
from indextables.log.decode import LogFile, VersionSummary, decode_tail
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX
from indextables.schema.evolution import field_of_id, find_field
from indextables.schema.spark_json import FIELD_ID_KEY
from indextables.table.field_ids import field_ids_of, with_field_ids
from indextables.table.intent import (
    ChangeMetadata,
    ChangeProperties,
    ChangeSchema,
    EmptyCommit,
    Intent,
    Kind,
    RecordTransaction,
)
from indextables.table.log_reader import summary_of
from indextables.table.schema_change import misfit, names_columns
from indextables.table.snapshot import Snapshot

INDEXING_PREFIX = "spark.indextables.indexing."


class Resolution(Enum):
    """What happens to a transaction after a concurrent commit."""

    REBASE = "rebase"
    RECOMPUTE = "recompute"
    RECHECK = "recheck"
    GROUPS = "groups"
    FITS = "fits"
    SEARCH = "search"
    GIVE_UP = "give up"


_R, _C, _K, _G, _F, _S, _X = (
    Resolution.REBASE,
    Resolution.RECOMPUTE,
    Resolution.RECHECK,
    Resolution.GROUPS,
    Resolution.FITS,
    Resolution.SEARCH,
    Resolution.GIVE_UP,
)

_CONCURRENT = (Kind.APPEND, Kind.OVERWRITE, Kind.MERGE, Kind.DROP, Kind.DELETE, Kind.SCHEMA, Kind.METADATA)

# fmt: off
_ROWS: dict[Kind, tuple[Resolution, ...]] = {
    # this ↓  concurrent → append  overwrite  merge  drop  delete  schema  metadata
    Kind.APPEND:           (_R,     _R,        _R,    _R,   _R,     _F,     _K),
    Kind.OVERWRITE:        (_C,     _C,        _C,    _C,   _C,     _X,     _X),
    Kind.MERGE:            (_R,     _G,        _G,    _G,   _G,     _F,     _K),
    Kind.DROP:             (_C,     _C,        _C,    _C,   _C,     _C,     _X),
    Kind.DELETE:           (_R,     _S,        _S,    _S,   _S,     _F,     _K),
    Kind.UPSERT:           (_S,     _S,        _S,    _S,   _S,     _K,     _K),
    Kind.SCHEMA:           (_C,     _C,        _C,    _C,   _C,     _K,     _K),
    Kind.METADATA:         (_C,     _C,        _C,    _C,   _C,     _K,     _K),
}
# fmt: on
MATRIX: dict[Kind, dict[Kind, Resolution]] = {
    kind: dict(zip(_CONCURRENT, row, strict=True)) for kind, row in _ROWS.items()
}


class ConcurrentCommit(msgspec.Struct, frozen=True):
    """What the commit of another writer did, as far as conflict detection needs it.

    `changes_data` says that an add has new rows, and not only rows that moved; `deletes_rows`, that an add has a
    deletion vector.
    """

    summary: VersionSummary
    has_adds: bool
    has_removes: bool
    changes_data: bool
    deletes_rows: bool = False


def concurrent_commit_of(log_file: LogFile) -> ConcurrentCommit:
    """What a version did, judged by its actions, because a commitInfo is optional. Raises LogCorruptedError.

    Reads the lines without decoding the adds and removes: a writer that catches up more slowly than the other writers
    commit would never get its turn.
    """
    try:
        lines = _LINES.decode_lines(log_file.lines)
    except msgspec.MsgspecError:
        tail = decode_tail([log_file])
        changes_data = any(tail.adds["dataChange"].to_pylist())
        return ConcurrentCommit(
            tail.versions[0],
            tail.adds.num_rows > 0,
            tail.removes.num_rows > 0,
            changes_data,
            deletes_rows=tail.adds["deletionVector"].null_count < tail.adds.num_rows,
        )
    adds = [line.add for line in lines if line.add is not None]
    return ConcurrentCommit(
        summary=summary_of(log_file),
        has_adds=bool(adds),
        has_removes=any(line.remove is not None for line in lines),
        changes_data=any(add.data_change for add in adds),
        deletes_rows=any(add.deletion_vector is not None for add in adds),
    )


def reason_to_give_up(
    intent: Intent, before: Metadata, concurrent: ConcurrentCommit, protocol: ProtocolAction | None = None
) -> str | None:
    """Why this transaction must not continue after a concurrent commit, or None if it may.

    `before` and `protocol` are the metadata and the protocol that the transaction was planned on.
    """
    version, metadata = concurrent.summary.version, concurrent.summary.actions.metadata
    match MATRIX[intent.kind][kind_of_commit(before, concurrent, protocol)]:
        case Resolution.REBASE | Resolution.RECOMPUTE | Resolution.GROUPS | Resolution.SEARCH:
            return None
        case Resolution.GIVE_UP:
            return f"version {version} changed the table's schema, metadata or protocol"
        case Resolution.FITS:
            changed = _changed_index(intent, before, metadata or before) or _misfit(
                before, metadata or before
            )
            return f"version {version} changed {changed}" if changed else None
        case Resolution.RECHECK:
            changed = _changed_dependency(intent, before, metadata or before)
            return f"version {version} changed {changed}" if changed else None
        case _ as unreachable:
            assert_never(unreachable)


def reason_after_cleanup(intent: Intent, before: Snapshot, after: Snapshot) -> str | None:
    """Why this transaction must not continue when the versions in between are no longer in the log.

    The planner handles what they did to the files. What they did to the table shows in its metadata.
    """
    if before.metadata.id != after.metadata.id:
        return "the table was dropped and created again"
    has_same_protocol = _is_same_protocol(after.protocol, before.protocol)
    is_changed = not has_same_protocol or _changes_table(before.metadata, after.metadata)
    if is_changed and MATRIX[intent.kind][Kind.METADATA] is Resolution.GIVE_UP:
        return "the table's metadata or protocol changed"
    changed = _changed_dependency(intent, before.metadata, after.metadata)
    return f"concurrent commits changed {changed}" if changed else None


def kind_of_commit(
    before: Metadata, concurrent: ConcurrentCommit, protocol: ProtocolAction | None = None
) -> Kind:
    """The column of the matrix for a concurrent commit.

    Registering a doc mapping is part of an append, not a change of the table. Neither is recording the field ids, which
    the first append does, nor repeating the protocol, which the first commit after an upgrade by a checkpoint does,
    nor the feature of deletion vectors, which the first delete adds: every writer that reads it here supports it.
    """
    actions = concurrent.summary.actions
    if actions.protocol is not None and not _is_same_protocol(actions.protocol, protocol):
        return Kind.METADATA
    if actions.metadata is not None and _changes_table(before, actions.metadata):
        return Kind.SCHEMA if _changes_columns_only(before, actions.metadata) else Kind.METADATA
    if not concurrent.has_removes:
        return Kind.APPEND
    if not concurrent.has_adds:
        return Kind.DROP
    if concurrent.deletes_rows:
        return Kind.DELETE
    return Kind.OVERWRITE if concurrent.changes_data else Kind.MERGE


def _is_same_protocol(found: ProtocolAction, planned: ProtocolAction | None) -> bool:
    """Whether two protocols are the same, apart from the features of changed rows and columns."""
    return planned is not None and _without_changes(found) == _without_changes(planned)


def _without_changes(protocol: ProtocolAction) -> ProtocolAction:
    return without_feature(without_feature(protocol, DELETION_VECTORS), COLUMN_MAPPING)


def _changes_columns_only(before: Metadata, after: Metadata) -> bool:
    """Whether a commit changed columns, with the settings that name them, and nothing else."""
    if before.schema_string == after.schema_string or not _has_valid_ids(after):
        return False
    return _definition(before, without_columns=True) == _definition(after, without_columns=True)


def _has_valid_ids(metadata: Metadata) -> bool:
    try:
        return bool(field_ids_of(metadata))
    except InvalidSchemaError:
        return False


def _changes_table(before: Metadata, after: Metadata) -> bool:
    return _definition(before) != _definition(after)


def _definition(metadata: Metadata, *, without_columns: bool = False) -> Metadata:
    """The metadata without doc mappings, and with the field ids that the next append would record.

    With `without_columns`, it has nothing that a schema change may change.
    """
    properties = {
        key: value
        for key, value in metadata.configuration.items()
        if not key.startswith(DOC_MAPPING_PROPERTY_PREFIX)
    }
    if without_columns:
        kept = {key: value for key, value in properties.items() if not names_columns(key)}
        return msgspec.structs.replace(metadata, schema_string="", configuration=kept)
    return _with_field_ids(msgspec.structs.replace(metadata, configuration=properties))


def _with_field_ids(metadata: Metadata) -> Metadata:
    try:
        return with_field_ids(metadata)
    except InvalidSchemaError:
        return metadata  # equal to itself alone


def _changed_dependency(intent: Intent, before: Metadata, after: Metadata) -> str | None:
    """What this transaction depends on and a metadata change took away, or None."""
    if before.id != after.id:
        return "the table itself: it was created again"
    if isinstance(intent, EmptyCommit | RecordTransaction):
        return None
    if isinstance(intent, ChangeSchema):
        return _changed_column(intent, before, after)
    if _with_field_ids(before).schema_string != _with_field_ids(after).schema_string:
        changed_schema = _misfit(before, after) if intent.kind in _ADDING else "the schema"
        if changed_schema:
            return changed_schema
    if before.partition_columns != after.partition_columns:
        return "the partitioning"
    changed = {
        key
        for key in {*before.configuration, *after.configuration}
        if before.configuration.get(key) != after.configuration.get(key)
    }
    if index := _changed_index(intent, before, after):
        return index
    if isinstance(intent, ChangeProperties) and (both := sorted(changed & set(intent.properties))):
        return f"the same properties ({', '.join(both)})"
    if isinstance(intent, ChangeMetadata):
        both = [name for name in intent.fields if getattr(before, name) != getattr(after, name)]
        return f"the same metadata ({', '.join(both)})" if both else None
    return None


# Intents whose splits are read by ids, so that other columns matter only if they lose values.
_ADDING = (Kind.APPEND, Kind.MERGE, Kind.DELETE)


def _changed_index(intent: Intent, before: Metadata, after: Metadata) -> str | None:
    if intent.kind is not Kind.MERGE:
        return None
    settings = (
        {key: value for key, value in each.configuration.items() if key.startswith(INDEXING_PREFIX)}
        for each in (before, after)
    )
    return "the index settings" if next(settings) != next(settings) else None


def _misfit(before: Metadata, after: Metadata) -> str | None:
    if before.id != after.id:
        return "the table itself: it was created again"
    try:
        return misfit(before, after)
    except InvalidSchemaError as error:
        return f"the schema: {error}"


def _changed_column(intent: ChangeSchema, before: Metadata, after: Metadata) -> str | None:
    """The column that a schema change and another one both change, or None."""
    before, after = _with_field_ids(before), _with_field_ids(after)
    if intent.append is not None and (lost := _misfit(before, after)):
        return lost
    for change in intent.changes:
        name = ".".join(change.path)
        planned = find_field(before.schema_string, change.path)
        if planned is None:
            if find_field(after.schema_string, change.path) is not None:
                return f"the same column: {name!r} was added"
            continue
        if field_of_id(after.schema_string, planned["metadata"][FIELD_ID_KEY]) != planned:
            return f"the same column, {name!r}"
    return None


class _Action(msgspec.Struct, rename="camel"):
    # As in `log.fields`: an action without this field changes data.
    data_change: bool = True
    deletion_vector: msgspec.Raw | None = None


class _Line(msgspec.Struct):
    add: _Action | None = None
    remove: _Action | None = None


_LINES = msgspec.json.Decoder(_Line)
