"""Writes to a table, and the state of splits between upload and commit.

A write uploads splits, makes them part of the table in one commit, and then does the housekeeping that is due
(`after_commit`). An uploaded split is deleted only if its commit provably did not land; PURGE deletes other leftovers.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, takewhile
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns
from indextables.config import Settings, check_properties
from indextables.config.registry import (
    INDEX_WRITER_HEAP_SIZE,
    INDEXING_TYPEMAP,
    READ_PARALLELISM,
    WRITE_TARGET_SPLIT_SIZE,
)
from indextables.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    IndexTablesError,
    InvalidActionError,
    InvalidOptionError,
    InvalidPredicateError,
    InvalidSchemaError,
    InvalidValueError,
    LogCorruptedError,
    LogGapError,
    ProtocolUpgradeError,
    StorageError,
    TableAlreadyExistsError,
)
from indextables.log.actions import READER_VERSION, WRITER_VERSION, AddAction
from indextables.log.deletion_vectors import vector_ids
from indextables.log.entries import empty_entries
from indextables.log.fields import STRING_MAP
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX
from indextables.log.segment import list_log
from indextables.log.version_file import find_object, read_version_files
from indextables.ops.after_commit import after_commit, after_write
from indextables.ops.runner import parallel_map
from indextables.predicates import BoundPredicate, Predicate, bind, parse_predicate
from indextables.pruning import match_partitions
from indextables.schema.evolution import new_columns
from indextables.schema.spark_json import hash_or_none
from indextables.split.split import SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.storage import ObjectStore, require_put_if_absent
from indextables.table import CommitResult, Operation, Snapshot, TableContext, commit
from indextables.table.changes import actions_since
from indextables.table.commit import LONG_WAIT_MS, purge_fence_ms
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.create import check_index_settings, commit_table
from indextables.table.field_ids import MAINTAINED_PROPERTIES
from indextables.table.intent import (
    Append,
    ChangeMetadata,
    ChangeProperties,
    ChangeSchema,
    DropPartitions,
    Intent,
    Merge,
    MergeGroup,
    Overwrite,
    RemoveFiles,
    UpgradeProtocol,
)
from indextables.table.schema_change import planned_snapshot
from indextables.table.split_protocol import check_accepts_splits

# Errors that prove that the commit did not land: `commit` raises them before it writes a version file, or after it has
# lost every race for a version.
_NOT_LANDED: Final = (
    CommitConflictError,
    CommitRetriesExhaustedError,
    InvalidActionError,
    InvalidPredicateError,
    InvalidValueError,
    LogGapError,
    ProtocolUpgradeError,
    TableAlreadyExistsError,
)

# Listing more files than this to find leftovers costs more than the leftovers do.
_MAX_LISTED_FILES: Final = 100_000

# How many of the newest versions to search for the commit of the job that a late attempt belongs to.
_MAX_SEARCHED_VERSIONS: Final = 64


def append(snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader) -> CommitResult:
    """Write rows as new splits and add them in one commit. Without rows, nothing is committed.

    `data` may be any source of Arrow batches. Before anything is written, raises ProtocolUpgradeError if the table
    holds splits of the JVM and the settings do not allow ours, and InvalidSchemaError for columns that do not fit the
    table; then InvalidValueError for values that do not fit, and the errors of `commit`. Uploaded splits are deleted
    only if the commit provably did not land.
    """
    files = write_splits(snapshot, data)
    with deleting_unless_landed(snapshot.context.store, [file.path for file in files]):
        intent = Append(_adds(files), _mappings(files), has_new_paths=True)
        check = uploads_check(files)
        result = commit(snapshot, intent, Operation("WRITE"), before_each_try=check)
    return _with_housekeeping(result, intent)


def append_with_new_columns(snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader) -> CommitResult:
    """Append rows; columns, and members of structs, that the table does not have are added in the same commit.

    They are null in the rows before. Raises the errors of `append`, and CommitConflictError if concurrent commits
    change the table's columns.
    """
    reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    changes = new_columns(snapshot.schema, reader.schema)
    if not changes:
        return append(snapshot, reader)
    planned = planned_snapshot(snapshot, changes)
    files = write_splits(planned, reader)
    with deleting_unless_landed(snapshot.context.store, [file.path for file in files]):
        rows = Append(_adds(files), _mappings(files), has_new_paths=True)
        intent = ChangeSchema(tuple(changes), rows, planned.metadata.schema_string)
        result = commit(snapshot, intent, Operation("WRITE"), before_each_try=uploads_check(files))
    return _with_housekeeping(result, rows)


def create_with_rows(planned: Snapshot, data: pa.Table | pa.RecordBatchReader) -> CommitResult:
    """Create a table (`table.create.plan_table`) with its first rows, in one commit. A failure leaves no table.

    If another writer creates the same table meanwhile, the rows are appended to it. Without rows, the table is created
    empty. Raises the errors of `append`, UnsupportedStoreError, and TableAlreadyExistsError.
    """
    context = planned.context
    require_put_if_absent(context.store)
    files = write_splits(planned, data)
    with deleting_unless_landed(context.store, [file.path for file in files]):
        intent = Append(_adds(files), _mappings(files), has_new_paths=True)
        snapshot, is_created = commit_table(planned, intent)
        if is_created:
            return CommitResult(snapshot, is_committed=True, tries=1)
        result = commit(snapshot, intent, Operation("WRITE"), before_each_try=uploads_check(files))
    return _with_housekeeping(result, intent)


def overwrite(
    snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader, where: Predicate | None = None
) -> CommitResult:
    """Replace all rows, or the rows of the partitions that `where` selects, in one commit. See `append`.

    Also raises InvalidPredicateError if `where` uses other than partition columns, and InvalidValueError for rows of
    partitions that `where` does not select: an overwrite must not add rows to partitions that it does not replace.
    """
    bound = None if where is None else bind(where, snapshot.schema)
    if bound is not None:
        match_partitions(_partitions(()), bound, snapshot.shape)
    files = write_splits(snapshot, data)
    with deleting_unless_landed(snapshot.context.store, [file.path for file in files]):
        if bound is not None:
            _check_selected(snapshot, files, bound)
        intent = Overwrite(_adds(files), where, _mappings(files))
        check = uploads_check(files)
        result = commit(snapshot, intent, Operation("OVERWRITE"), before_each_try=check)
    return _with_housekeeping(result, intent)


def commit_files(snapshot: Snapshot, adds: Sequence[AddAction], removes: Sequence[str]) -> CommitResult:
    """Commit files that an external writer has uploaded, and remove others. Changes metadata only.

    Adds alone are an append. Removes alone ignore files that are no longer live. Both together replace files: if any of
    `removes` is no longer live, nothing is committed, because another writer may have moved its rows to a new split,
    and the table would contain them twice. The commit registers the files' doc mappings; the files refer to them by
    hash. Raises InvalidActionError if there are neither adds nor removes, and the errors of `commit`.
    """
    if not adds and not removes:
        raise InvalidActionError(f"{snapshot.context.url}: a commit needs at least one add or remove")
    intent: Intent
    removed, (files, mappings) = tuple(dict.fromkeys(removes)), _with_mapping_refs(adds)
    if not removes:
        intent, name = Append(files, mappings), "WRITE"
    elif not adds:
        intent, name = RemoveFiles(removed), "DELETE"
    else:
        group = MergeGroup(removed, files, _vectors(snapshot, removed))
        intent, name = Merge((group,), doc_mappings=mappings), "REPLACE"
    return run(snapshot, intent, Operation(name))


def _vectors(snapshot: Snapshot, paths: Sequence[str]) -> dict[str, str]:
    """The ids of the deletion vectors that splits have in this snapshot."""
    found = snapshot.select_paths(paths, ["path", "deletionVector"])
    ids = vector_ids(found["deletionVector"]).to_pylist()
    return {path: id_ for path, id_ in zip(found["path"].to_pylist(), ids, strict=True) if id_}


def run(
    snapshot: Snapshot, intent: Intent, operation: Operation, uploads: Sequence[SplitFile] = ()
) -> CommitResult:
    """Commit a transaction, then do the housekeeping that is due. Housekeeping never fails the commit.

    `uploads` are the new splits of the transaction. If PURGE has deleted one of them, or may be about to, nothing is
    committed.
    """
    check = uploads_check(uploads)
    return _with_housekeeping(commit(snapshot, intent, operation, before_each_try=check), intent)


class DropPartitionsResult(CommitResult, frozen=True, kw_only=True):
    """The splits that `drop_partitions` removed; counts are None if the version file of the commit is unreadable."""

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: no partition matches"),
        Column("version", pa.int64(), "the version of the commit, or the newest one if there was none"),
        Column("removed_files", pa.int64(), "the splits that were removed from the table"),
        Column("removed_bytes", pa.int64(), "their size"),
        MESSAGE,
    )

    removed_files: int | None
    removed_bytes: int | None

    @property
    def message(self) -> str:
        """A one-line summary."""
        if not self.is_committed:
            return "no partition matches; nothing was committed"
        return f"dropped in version {self.version}; the files stay until a purge"


def drop_partitions(snapshot: Snapshot, where: str | Predicate) -> DropPartitionsResult:
    """Remove the splits of all partitions for which `where` is true. The files stay in storage until a purge.

    Values are compared by the types of their columns. After a concurrent commit, `where` is evaluated again, so splits
    that it added to these partitions are removed, too. If no split matches, nothing is committed.

    Raises InvalidPredicateError if `where` uses other than partition columns, or cannot be evaluated for a file,
    CommitConflictError if the table's metadata changed concurrently, and the other errors of `commit`.
    """
    predicate = parse_predicate(where) if isinstance(where, str) else where
    check_partition_predicate(snapshot, predicate)
    operation = Operation("DROP PARTITIONS", {"predicate": str(where)})
    result = run(snapshot, DropPartitions(predicate), operation)
    removed_files, removed_bytes = _removed(result)
    return DropPartitionsResult(
        result.snapshot,
        result.is_committed,
        result.tries,
        removed_files=removed_files,
        removed_bytes=removed_bytes,
    )


def check_partition_predicate(snapshot: Snapshot, where: Predicate) -> None:
    """Raise InvalidPredicateError unless the table is partitioned and `where` uses only partition columns."""
    if not snapshot.partition_columns:
        raise InvalidPredicateError(
            f"{snapshot.context.url}: the table is not partitioned, so it has no partitions to drop"
        )
    match_partitions(empty_entries(), bind(where, snapshot.schema), snapshot.shape)


def set_properties(snapshot: Snapshot, properties: Mapping[str, str | None]) -> CommitResult:
    """Set table properties. A value of None removes the property.

    Concurrent changes to different properties are both applied; of two changes to the same property, the later one
    raises CommitConflictError. Raises InvalidOptionError for properties that writers maintain, and for invalid values
    of settings.
    """
    reserved = sorted(key for key in properties if key.startswith(DOC_MAPPING_PROPERTY_PREFIX))
    if reserved:
        raise InvalidOptionError(
            f"{snapshot.context.url}: {reserved[0]} is part of the schema registry, which only writers maintain; leave "
            f"it out"
        )
    maintained = next((key for key in MAINTAINED_PROPERTIES if key in properties), None)
    if maintained is not None:
        raise InvalidOptionError(
            f"{snapshot.context.url}: {maintained} records the ids and names of columns, which only writers maintain; "
            f"leave it out"
        )
    for key, value in properties.items():
        if value is not None and not isinstance(value, str):
            raise InvalidOptionError(f"{snapshot.context.url}: the property {key!r} must be a string or None")
    check_properties(properties)
    new = {key: value for key, value in properties.items() if value is not None}
    Settings.resolve(new)
    if any(key.lower().startswith(INDEXING_PREFIX) for key in new):
        settings = snapshot.context.settings.with_table_properties({**snapshot.metadata.configuration, **new})
        check_index_settings(snapshot.metadata, settings)
    return run(snapshot, ChangeProperties(dict(properties)), Operation("SET PROPERTIES"))


def set_metadata(snapshot: Snapshot, name: str | None = None, description: str | None = None) -> CommitResult:
    """Set the table's name and description. None leaves them as they are, and an empty text removes them.

    Concurrent changes of the name and of the description are both applied; of two changes of the same one, the later
    raises CommitConflictError.
    """
    checked = checked_metadata(name, description)
    given = {"name": name, "description": description}
    intent = ChangeMetadata({field: text for field, text in checked.items() if given[field] is not None})
    return run(snapshot, intent, Operation("SET METADATA"))


def checked_metadata(name: str | None, description: str | None) -> dict[str, str | None]:
    """Return the name and the description, None for an empty one. Raises InvalidOptionError for what is not a text."""
    fields: dict[str, str | None] = {"name": name, "description": description}
    for field, text in fields.items():
        if text is not None and not isinstance(text, str):
            raise InvalidOptionError(f"the {field} of a table must be a string, not {type(text).__name__}")
        fields[field] = text or None
    return fields


def upgrade_protocol(snapshot: Snapshot, reader_version: int, writer_version: int) -> CommitResult:
    """Raise the protocol versions of the table in one commit. Versions are never lowered."""
    if reader_version > READER_VERSION or writer_version > WRITER_VERSION:
        raise InvalidOptionError(
            f"{snapshot.context.url}: this release supports protocol version {READER_VERSION} for readers and "
            f"{WRITER_VERSION} for writers at most"
        )
    return run(snapshot, UpgradeProtocol(reader_version, writer_version), Operation("UPGRADE PROTOCOL"))


def indexing_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the indexing options. A table keeps them as properties, so that later splits are indexed the same way."""
    return {key: value for key, value in options.items() if key.lower().startswith(INDEXING_PREFIX)}


def text_properties(schema: pa.Schema, text: Sequence[str]) -> dict[str, str]:
    """Return the properties that index string columns as text. Raises InvalidSchemaError for columns of other types."""
    for name in text:
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidSchemaError(
                f"the text column {name!r} is not in the schema; the columns are {', '.join(schema.names)}"
            )
        type_ = schema.field(index).type
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_)):
            raise InvalidSchemaError(
                f"the text column {name!r} has the type {type_}; only strings can be tokenized"
            )
    return {f"{INDEXING_TYPEMAP.prefix}{name}": "text" for name in text}


# Splits between upload and commit


@contextlib.contextmanager
def deleting_unless_landed(store: ObjectStore, paths: Sequence[str]) -> Iterator[None]:
    """Delete the splits if the block fails with an error that proves that their commit did not land."""
    with undoing_unless_landed(partial(delete_quietly, store, paths)):
        yield


@contextlib.contextmanager
def undoing_unless_landed(undo: Callable[[], None]) -> Iterator[None]:
    """Call `undo` if the block fails with an error that proves that the commit did not land.

    After any other failure, including an interruption, the commit may have landed, so its files stay.
    """
    try:
        yield
    except _NOT_LANDED:
        undo()
        raise


def add_of(file: SplitFile) -> AddAction:
    """The add action of an uploaded split."""
    return AddAction(
        path=file.path,
        partition_values={name: value for name, value in file.partition_values.items() if value is not None},
        size=file.size,
        modification_time=file.modification_time_ms,
        data_change=True,
        min_values=file.min_values,
        max_values=file.max_values,
        num_records=file.num_records,
        footer_start_offset=file.footer_start_offset,
        footer_end_offset=file.footer_end_offset,
        has_footer_offsets=True,
        split_tags=file.split_tags or None,
        num_merge_ops=0,
        doc_mapping_ref=file.doc_mapping_ref,
        uncompressed_size_bytes=file.uncompressed_size_bytes,
    )


def delete_quietly(store: ObjectStore, paths: Sequence[str]) -> None:
    """Delete splits that the log does not refer to. Ignores storage errors: PURGE deletes the rest as orphans."""
    if not paths:
        return
    with contextlib.suppress(StorageError):
        store.delete_many(paths)


def delete_leftovers(
    context: TableContext, name_prefix: str, folders: Collection[str] | None, kept: Collection[str]
) -> None:
    """Delete all splits with this name prefix except those in `kept`, in `folders` or, for None, in every folder.

    The prefix must belong to the caller alone. PURGE deletes the splits that this function cannot find or delete. A
    search of every folder stops after a maximum number of files.
    """
    # Compare names, which are unique, not paths: a file system may spell a folder differently.
    kept_names = {_name(path) for path in kept}
    with contextlib.suppress(StorageError):
        if folders is None:
            metas = islice(context.store.list(""), _MAX_LISTED_FILES)
            found = [[meta.key for meta in metas if _name(meta.key).startswith(name_prefix)]]
        else:
            search = partial(_keys_in_folder, context.store, name_prefix)
            found = parallel_map(search, sorted(folders), context.settings[READ_PARALLELISM])
        delete_quietly(context.store, [key for keys in found for key in keys if _name(key) not in kept_names])


def are_late(context: TableContext, name_prefix: str, paths: Sequence[str], since_version: int) -> bool:
    """Whether splits with this name prefix were committed after `since_version`, but none of `paths` among them.

    A job deletes leftovers after its commit (`delete_leftovers`), which covers splits uploaded before that. An attempt
    that uploads later finds the commit here. An unreadable log proves nothing, so the answer is False.
    """
    store = context.store
    with contextlib.suppress(StorageError, LogCorruptedError):
        listing = list_log(store, from_version=since_version + 1)
        versions = listing.version_files[-_MAX_SEARCHED_VERSIONS:]
        files = read_version_files(store, versions, parallelism=context.settings[READ_PARALLELISM])
        committed = [file.lines for file in files if name_prefix.encode() in file.lines]
        return bool(committed) and not any(
            _name(path).encode() in lines for path in paths for lines in committed
        )
    return False


def uploads_check(files: Iterable[SplitFile]) -> Callable[[Snapshot], None]:
    """Return the check to run before each attempt to commit these splits (`check_uploads`).

    It is needed because PURGE takes splits that wait too long for their commit for leftovers of a crashed writer.
    """
    return partial(check_uploads, {file.path: file.modification_time_ms for file in files})


def check_uploads(uploaded_ms: Mapping[str, int], snapshot: Snapshot) -> None:
    """Check that splits that have waited a long time still exist before they are committed on top of a snapshot.

    `uploaded_ms` maps paths to creation times. Raises CommitConflictError if a split is gone, or if it is older than
    the snapshot's purge fence, because PURGE may be about to delete it. A concurrent purge whose fence is not in the
    snapshot yet commits its marker as the next version, so this commit conflicts with it.
    """
    context, fence_ms = snapshot.context, purge_fence_ms(snapshot)
    # Creation times come from this machine's clock, which may differ from the store's, or stop while it is suspended.
    latest_ms = max(context.store.clock.now_ms() - LONG_WAIT_MS, fence_ms + LONG_WAIT_MS)
    waiting = [path for path, created_ms in uploaded_ms.items() if created_ms < latest_ms]
    found = parallel_map(partial(find_object, context.store), waiting, context.settings[READ_PARALLELISM])
    purged = next(
        (
            path
            for path, meta in zip(waiting, found, strict=True)
            if meta is None or 0 < meta.last_modified_ms <= fence_ms
        ),
        None,
    )
    if purged is not None:
        raise CommitConflictError(
            f"{context.url}: {purged} waited so long for its commit that a purge deletes it as an orphan; write again, "
            f"and purge with a longer retention"
        )


def _with_housekeeping(result: CommitResult, intent: Intent) -> CommitResult:
    if not result.is_committed:
        return result
    housekeeping = after_write if isinstance(intent, Append | Overwrite) else after_commit
    return replace(result, snapshot=housekeeping(result.snapshot))


def _removed(result: CommitResult) -> tuple[int | None, int | None]:
    """Return the number and the size of the splits that a commit removed; None if its version file is unreadable."""
    if not result.is_committed:
        return 0, 0
    try:
        tail = actions_since(result.snapshot, result.version - 1)
    except IndexTablesError:
        # The commit stands, so the operation must not fail because its version file is unreadable.
        return None, None
    if tail is None:
        return None, None  # a concurrent cleanup deleted the version file
    removes = tail.removes
    return removes.num_rows, pc.sum(removes["size"]).as_py() or 0


def write_splits(snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader) -> tuple[SplitFile, ...]:
    """Upload rows as splits that are not committed yet. A failure leaves none of them behind."""
    context = snapshot.context
    check_accepts_splits(snapshot)
    options = WriterOptions(
        target_bytes=context.settings[WRITE_TARGET_SPLIT_SIZE],
        heap_bytes=context.settings[INDEX_WRITER_HEAP_SIZE],
    )
    reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    with SplitWriter(context.store, snapshot.shape, context.settings, options) as writer:
        # Reject columns that do not fit even if there are no rows.
        writer.write(reader.schema.empty_table())
        for batch in reader:
            writer.write(batch)
        return writer.commit()


def _check_selected(snapshot: Snapshot, files: Sequence[SplitFile], where: BoundPredicate) -> None:
    matches = match_partitions(_partitions(files), where, snapshot.shape)
    outside = next((file for file, match in zip(files, matches.to_pylist(), strict=True) if not match), None)
    if outside is not None:
        values = ", ".join(f"{name} = {value!r}" for name, value in outside.partition_values.items())
        raise InvalidValueError(
            f"{snapshot.context.url}: the data has rows with {values}, but `where` does not select that partition; "
            f"leave them out, or extend `where`"
        )


def _partitions(files: Sequence[SplitFile]) -> pa.Table:
    values = [list(file.partition_values.items()) for file in files]
    return pa.table({"partitionValues": pa.array(values, STRING_MAP)})


def _adds(files: Sequence[SplitFile]) -> tuple[AddAction, ...]:
    return tuple(add_of(file) for file in files)


def _mappings(files: Sequence[SplitFile]) -> dict[str, str]:
    return {file.doc_mapping_ref: file.doc_mapping_json for file in files}


def _with_mapping_refs(adds: Sequence[AddAction]) -> tuple[tuple[AddAction, ...], dict[str, str]]:
    """Replace the doc mappings of files by references, and return the files and the mappings by hash."""
    mappings: dict[str, str] = {}
    files = []
    for add in adds:
        mapping = add.doc_mapping_json
        hash_ = None if mapping is None or add.doc_mapping_ref is not None else hash_or_none(mapping)
        if mapping is not None and hash_ is not None:
            mappings[hash_] = mapping
            add = replace(add, doc_mapping_json=None, doc_mapping_ref=hash_)
        files.append(add)
    return tuple(files), mappings


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _keys_in_folder(store: ObjectStore, name_prefix: str, folder: str) -> list[str]:
    parent = f"{folder}/" if folder else ""
    keys = (meta.key for meta in store.list(parent, start_after=parent + name_prefix))
    return list(takewhile(lambda key: key.startswith(parent + name_prefix), keys))
