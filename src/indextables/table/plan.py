"""From an intent and the newest snapshot to the actions of a commit. Nothing is written here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import assert_never
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import CommitConflictError, InvalidActionError, InvalidSchemaError, UnsafePathError
from indextables.log.actions import (
    DELETION_VECTORS,
    AddAction,
    AnyAction,
    Metadata,
    TransactionAction,
    upgraded,
)
from indextables.log.deletion_vectors import IDENTITY_COLUMNS, file_identities, vector_ids
from indextables.log.paths import LOG_PREFIX
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX
from indextables.storage import validate_key
from indextables.table.field_ids import with_field_ids, with_ids_of_table
from indextables.table.intent import (
    Append,
    ChangeMetadata,
    ChangeProperties,
    ChangeRows,
    ChangeSchema,
    DropPartitions,
    EmptyCommit,
    Intent,
    Merge,
    MergeGroup,
    Overwrite,
    RecordTransaction,
    RemoveFiles,
    Restore,
    UpgradeProtocol,
)
from indextables.table.schema_change import changed_metadata, check_exact, has_same_new_fields, needed_feature
from indextables.table.snapshot import Snapshot, files_of_partitions
from indextables.table.split_protocol import protocol_for_splits

# The fields of a remove action.
_REMOVE_COLUMNS = ("path", "partitionValues", "size")

# msgspec would convert values of these types to strings.
_NOT_CONVERTED = (bytes, bytearray, datetime, date, UUID, Decimal)


class RowsMovedError(CommitConflictError):
    """A concurrent commit replaced a split that loses rows, or deleted other rows of it: find the rows again."""


class Plan(msgspec.Struct, frozen=True):
    """The actions of a commit, without its commitInfo. An empty plan commits nothing.

    `removes` (path, partitionValues, size) and `restored`, the entries that become live again, stay columnar: an
    overwrite removes as many files as the table has. `is_exact` has the meaning of `CommitInfo.is_exact`. `given_up`
    are merge groups whose sources concurrent commits removed. `is_marker` asks for a commit without changes.
    """

    actions: tuple[AnyAction, ...] = ()
    removes: pa.Table | None = None
    removes_data: bool = True
    is_exact: bool = True
    given_up: tuple[MergeGroup, ...] = ()
    is_marker: bool = False
    restored: pa.Table | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.actions or self.num_removes or self.num_restored or self.is_marker)

    @property
    def num_restored(self) -> int:
        return 0 if self.restored is None else int(self.restored.num_rows)

    @property
    def num_removes(self) -> int:
        return 0 if self.removes is None else int(self.removes.num_rows)

    @property
    def num_new_rows(self) -> int:
        """The rows of the splits that are new, as opposed to restored."""
        return sum(action.num_records or 0 for action in self.actions if isinstance(action, AddAction))

    @property
    def metrics(self) -> Mapping[str, int]:
        """The operation metrics of the history."""
        adds = [action for action in self.actions if isinstance(action, AddAction)]
        return {
            "numAddedFiles": len(adds) + self.num_restored,
            "numAddedBytes": sum(add.size for add in adds) + _sum(self.restored, "size"),
            "numAddedRows": self.num_new_rows + _sum(self.restored, "numRecords"),
            "numRemovedFiles": self.num_removes,
        }


def make_plan(intent: Intent, snapshot: Snapshot) -> Plan:
    """The actions that a transaction commits on top of `snapshot`.

    Raises InvalidActionError for an action that contradicts the table or itself, CommitConflictError if no group of a
    merge has all its sources live, RowsMovedError if rows to delete are no longer where they were, and
    ProtocolUpgradeError if the table may not get splits of this implementation.
    """
    match intent:
        case Append(transaction=transaction) | Overwrite(transaction=transaction) if _is_done(
            transaction, snapshot
        ):
            return Plan()
        case Append():
            return _plan_append(intent, snapshot)
        case Overwrite():
            return _plan_overwrite(intent, snapshot)
        case DropPartitions(where):
            return Plan(removes=files_of_partitions(snapshot, where, _REMOVE_COLUMNS))
        case Restore():
            return _plan_restore(intent, snapshot)
        case RemoveFiles(paths):
            return Plan(removes=_live_among(paths, snapshot))
        case Merge():
            return _plan_merge(intent, snapshot)
        case ChangeRows():
            return _plan_rows(intent, snapshot)
        case ChangeProperties(properties):
            return _plan_properties(properties, snapshot)
        case ChangeSchema():
            return _plan_schema(intent, snapshot)
        case ChangeMetadata(fields):
            metadata = msgspec.structs.replace(snapshot.metadata, **fields)
            return Plan(() if metadata == snapshot.metadata else (metadata,))
        case UpgradeProtocol(reader_version, writer_version):
            protocol = upgraded(snapshot.protocol, reader_version, writer_version)
            is_in_log = protocol == snapshot.protocol and not snapshot.header.has_unlogged_protocol
            return Plan(() if is_in_log else (protocol,))
        case RecordTransaction(transaction):
            return Plan() if _is_done(transaction, snapshot) else Plan((transaction,))
        case EmptyCommit():
            return Plan(is_marker=True)
        case _ as unreachable:
            assert_never(unreachable)


def _is_done(transaction: TransactionAction | None, snapshot: Snapshot) -> bool:
    """Whether the table already has this batch of a streaming writer, or a later one."""
    if transaction is None:
        return False
    last = snapshot.header.transactions.get(transaction.app_id)
    return last is not None and last >= transaction.version


def _written(intent: Append | Overwrite, snapshot: Snapshot) -> tuple[AnyAction, ...]:
    transaction = () if intent.transaction is None else (intent.transaction,)
    return (*_added(intent.adds, intent.doc_mappings, snapshot), *transaction)


def _added(
    adds: Sequence[AddAction],
    doc_mappings: Mapping[str, str],
    snapshot: Snapshot,
    *,
    has_vectors: bool = False,
) -> tuple[AnyAction, ...]:
    """The adds, after the actions that they require."""
    if not adds:
        return ()
    has_vectors |= any(add.deletion_vector is not None for add in adds)
    return (
        *protocol_for_splits(snapshot, DELETION_VECTORS if has_vectors else None),
        *_registration(doc_mappings, snapshot),
        *adds,
    )


def _plan_append(intent: Append, snapshot: Snapshot) -> Plan:
    check_adds(intent.adds, snapshot)
    # Paths of the caller may already be live. That is only checked if the entries are in memory, so at no cost.
    is_exact = intent.has_new_paths or (
        snapshot.has_loaded_entries and not _live_among([add.path for add in intent.adds], snapshot).num_rows
    )
    return Plan(_written(intent, snapshot), is_exact=is_exact)


def _plan_overwrite(intent: Overwrite, snapshot: Snapshot) -> Plan:
    check_adds(intent.adds, snapshot)
    actions = _written(intent, snapshot)
    if intent.where is None:
        return Plan(actions, _live(snapshot))
    doomed = files_of_partitions(snapshot, intent.where, _REMOVE_COLUMNS)
    return Plan(actions, doomed, is_exact=_are_replaced(intent.adds, doomed["path"], snapshot))


def _plan_merge(intent: Merge, snapshot: Snapshot) -> Plan:
    _check_disjoint(intent.groups, snapshot)
    named = [path for group in intent.groups for path in group.sources]
    live = _live_among([*named, *(skip.path for skip in intent.skips)], snapshot)
    live_paths = frozenset(live["path"].to_pylist())
    changed = changed_sources(intent.groups, snapshot)
    live_groups = tuple(group for group in intent.groups if changed.isdisjoint(group.sources))
    given_up = tuple(group for group in intent.groups if not changed.isdisjoint(group.sources))
    if given_up and not live_groups:
        raise CommitConflictError(
            f"{snapshot.context.url}: nothing was committed, because files to replace are not live, or lost rows, for "
            f"example {min(changed)}: a concurrent commit may have replaced them; start again from the newest version"
        )
    adds = tuple(add for group in live_groups for add in group.adds)
    check_adds(adds, snapshot)
    sources = pa.array([path for group in live_groups for path in group.sources], pa.string())
    removes = live.filter(pc.is_in(live["path"], value_set=sources))
    # A split that is no longer live needs no skip.
    skips = tuple(skip for skip in intent.skips if skip.path in live_paths)
    return Plan(
        actions=(*_added(adds, intent.doc_mappings, snapshot), *skips),
        removes=removes,
        removes_data=any(add.data_change for add in adds),
        is_exact=_are_replaced(adds, removes["path"], snapshot),
        given_up=given_up,
    )


def changed_sources(groups: Sequence[MergeGroup], snapshot: Snapshot) -> frozenset[str]:
    """The sources that are no longer live, or that have other deleted rows than the group was made from."""
    paths = [path for group in groups for path in group.sources]
    found = snapshot.select_paths(paths, ["path", "deletionVector"])
    vectors = dict(
        zip(found["path"].to_pylist(), vector_ids(found["deletionVector"]).to_pylist(), strict=True)
    )
    return frozenset(
        path for group in groups for path in group.sources if vectors.get(path) != group.vectors.get(path, "")
    )


def _plan_rows(intent: ChangeRows, snapshot: Snapshot) -> Plan:
    before = intent.before
    live = snapshot.select_paths(before["path"].to_pylist(), IDENTITY_COLUMNS)
    if not pc.all(_has_equal(before, live), min_count=0).as_py():
        raise RowsMovedError(
            f"{snapshot.context.url}: nothing was committed, because concurrent commits changed splits that lose rows; "
            f"start again from the newest version"
        )
    check_adds(intent.adds, snapshot)
    has_vectors = bool(intent.after.num_rows)
    protocol = protocol_for_splits(snapshot, DELETION_VECTORS) if has_vectors and not intent.adds else ()
    adds = _added(intent.adds, intent.doc_mappings, snapshot, has_vectors=has_vectors)
    return Plan(
        actions=(*protocol, *adds),
        removes=before.select(list(_REMOVE_COLUMNS)),
        restored=intent.after,
        is_exact=_are_replaced(intent.adds, before["path"], snapshot),
    )


def _check_disjoint(groups: Sequence[MergeGroup], snapshot: Snapshot) -> None:
    """Raise InvalidActionError if two groups replace the same split: its rows would be duplicated."""
    counts = Counter(path for group in groups for path in set(group.sources))
    shared = next((path for path, count in counts.items() if count > 1), None)
    if shared is not None:
        raise InvalidActionError(
            f"{snapshot.context.url}: {shared!r} is replaced by two groups of the same merge"
        )


def _are_replaced(adds: Sequence[AddAction], removed: pa.ChunkedArray, snapshot: Snapshot) -> bool:
    """Whether the same commit removes every path of `adds` that is live."""
    live = _live_among([add.path for add in adds], snapshot)["path"]
    return bool(pc.all(pc.is_in(live, value_set=removed.combine_chunks()), min_count=0).as_py())


def _plan_restore(intent: Restore, snapshot: Snapshot) -> Plan:
    """Remove the files that are not in the older version, and add those that are not live, by file identity."""
    entries = intent.entries
    live = snapshot.select(columns=tuple(dict.fromkeys([*_REMOVE_COLUMNS, *IDENTITY_COLUMNS]))).entries
    restored = entries.filter(pc.invert(_has_equal(entries, live)))
    # Keep doc mappings that were registered since: splits of pending commits may refer to them.
    registered = {
        key: value
        for key, value in snapshot.metadata.configuration.items()
        if key.startswith(DOC_MAPPING_PROPERTY_PREFIX)
    }
    registered |= {
        f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": intent.doc_mappings[hash_]
        for hash_ in pc.unique(restored["docMappingRef"]).to_pylist()
        if hash_ in intent.doc_mappings
    }
    older = msgspec.structs.replace(
        intent.metadata, configuration={**registered, **intent.metadata.configuration}
    )
    metadata = with_ids_of_table(older, snapshot.metadata)
    return Plan(
        actions=() if metadata == snapshot.metadata else (metadata,),
        removes=live.filter(pc.invert(_has_equal(live, entries))).select(list(_REMOVE_COLUMNS)),
        restored=restored,
    )


def _has_equal(entries: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """For each entry, whether `others` contains the same file with the same deleted rows. Paths are unique."""
    entries, others = file_identities(entries), file_identities(others)
    place = pc.index_in(entries["path"], value_set=others["path"].combine_chunks())
    is_equal = place.is_valid()
    for name in entries.column_names:
        is_equal = pc.and_(
            is_equal, pc.fill_null(pc.equal(entries[name], others[name].combine_chunks().take(place)), False)
        )
    return is_equal


def _plan_properties(properties: Mapping[str, str | None], snapshot: Snapshot) -> Plan:
    configuration = {**snapshot.metadata.configuration, **properties}
    kept = {key: value for key, value in configuration.items() if value is not None}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=kept)
    return Plan(() if metadata == snapshot.metadata else (metadata,))


def _plan_schema(intent: ChangeSchema, snapshot: Snapshot) -> Plan:
    append, metadata = intent.append, snapshot.metadata
    if append is not None and _is_done(append.transaction, snapshot):
        return Plan()
    try:
        for change in intent.changes:
            check_exact(change, snapshot)
            metadata = changed_metadata(change, metadata)
        is_other = append is not None and not has_same_new_fields(intent, metadata)
    except InvalidSchemaError:
        if append is None:
            raise
        is_other = True
    if is_other:
        raise CommitConflictError(
            f"{snapshot.context.url}: nothing was committed, because concurrent commits changed the table's columns, "
            f"so the new ones would be others than those of the new splits; write again"
        )
    if append is None and metadata == snapshot.metadata:
        return Plan()
    protocol = protocol_for_splits(snapshot, needed_feature(metadata))
    if append is None:
        return Plan((*protocol, metadata))
    check_adds(append.adds, snapshot)
    transaction = () if append.transaction is None else (append.transaction,)
    registered = with_doc_mappings(append.doc_mappings, metadata)
    return Plan((*protocol, registered, *append.adds, *transaction))


def _registration(doc_mappings: Mapping[str, str], snapshot: Snapshot) -> tuple[Metadata, ...]:
    """The metaData action that registers doc mappings and field ids, if the table's metadata lacks any of them.

    A state may have the mappings already. They are registered all the same: the version files must be complete
    without it.
    """
    metadata = with_doc_mappings(doc_mappings, with_field_ids(snapshot.metadata))
    return () if metadata == snapshot.metadata else (metadata,)


def with_doc_mappings(doc_mappings: Mapping[str, str], metadata: Metadata) -> Metadata:
    """The metadata with doc mappings, which are given by their hashes."""
    registered = {f"{DOC_MAPPING_PROPERTY_PREFIX}{hash_}": mapping for hash_, mapping in doc_mappings.items()}
    return msgspec.structs.replace(metadata, configuration={**registered, **metadata.configuration})


def _live(snapshot: Snapshot) -> pa.Table:
    return snapshot.select(columns=_REMOVE_COLUMNS).entries


def _live_among(paths: Sequence[str], snapshot: Snapshot) -> pa.Table:
    return snapshot.select_paths(paths, _REMOVE_COLUMNS)


def _sum(entries: pa.Table | None, column: str) -> int:
    return 0 if entries is None else pc.sum(entries[column]).as_py() or 0


# --- checking adds ------------------------------------------------------------------------------------


def check_adds(adds: Sequence[AddAction], snapshot: Snapshot) -> None:
    """Raise InvalidActionError, which names the path, for an add that does not fit the table."""
    url, partition_columns = snapshot.context.url, frozenset(snapshot.partition_columns)
    _check_types(adds, url)
    seen: set[str] = set()
    for add in adds:
        problem = _problem(add, partition_columns)
        if problem is None and add.path in seen:
            problem = "the same commit adds it twice"
        if problem is not None:
            raise InvalidActionError(f"{url}: cannot add {add.path!r}: {problem}")
        seen.add(add.path)


def _check_types(adds: Sequence[AddAction], url: str) -> None:
    """Raise InvalidActionError for a field of the wrong type, which would make the log unreadable.

    Actions are not validated when they are created.
    """
    try:
        msgspec.convert(msgspec.to_builtins(adds, builtin_types=_NOT_CONVERTED), list[AddAction])
        msgspec.json.encode(adds)
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidActionError(f"{url}: an add action has a field of the wrong type: {error}") from error


def _problem(add: AddAction, partition_columns: frozenset[str]) -> str | None:
    try:
        validate_key(add.path)
    except UnsafePathError as error:
        return f"{error}; paths are relative to the root of the table"
    if f"{add.path}/".startswith(LOG_PREFIX):
        return f"{LOG_PREFIX} belongs to the log"
    if add.size < 0 or add.modification_time < 0:
        return "its size or its modification time is negative"
    vector = add.deletion_vector
    if vector is not None and add.num_records is not None and vector.cardinality >= add.num_records:
        return f"{vector.cardinality} of its {add.num_records} rows are deleted; remove it instead"
    foreign = sorted(set(add.partition_values) - partition_columns)
    if foreign:
        return (
            f"it has values for {', '.join(foreign)}, but the table is "
            f"{'partitioned by ' + ', '.join(sorted(partition_columns)) if partition_columns else 'not partitioned'}"
        )
    return None
