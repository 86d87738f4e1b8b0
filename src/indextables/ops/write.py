"""Writing to a table: a transaction, and what is due after it."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables._results import MESSAGE, TABLE_PATH, Column, Columns
from indextables.config import Settings
from indextables.config.registry import INDEX_WRITER_HEAP_SIZE, INDEXING_TYPEMAP, WRITE_TARGET_SPLIT_SIZE
from indextables.errors import (
    IndexTablesError,
    InvalidActionError,
    InvalidOptionError,
    InvalidPredicateError,
    InvalidSchemaError,
    InvalidValueError,
)
from indextables.log.actions import AddAction
from indextables.log.entries import STRING_MAP, empty_entries
from indextables.log.protocol import READER_VERSION, WRITER_VERSION, check_writable
from indextables.log.replay import SCHEMA_PROPERTY_PREFIX
from indextables.ops.after_commit import after_commit
from indextables.ops.merge import merge_on_write
from indextables.ops.read import add_of
from indextables.ops.uploads import deleting_unless_landed, uploads_check
from indextables.predicates import Predicate, parse_predicate
from indextables.pruning import match_partitions
from indextables.schema.mapping_hash import hash_or_none
from indextables.split.split import SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.table import CommitResult, Operation, Snapshot, changes_since, commit
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.intent import (
    Append,
    ChangeProperties,
    DropPartitions,
    Intent,
    Merge,
    MergeGroup,
    Overwrite,
    RemoveFiles,
    UpgradeProtocol,
)


def commit_files(snapshot: Snapshot, adds: Sequence[AddAction], removes: Sequence[str]) -> CommitResult:
    """Commit files that somebody else wrote, and remove others: metadata only.

    Adds alone are an append. Removes alone pass over what is not live any more. Both together replace files:
    if any of `removes` is gone by the time of the commit, nothing is committed, because its rows may be in a split that
    somebody else put in its place, and would be there twice. Doc mappings that come with the files are registered, and
    referred to by their hash. Raises what `commit` raises.
    """
    if not adds and not removes:
        raise InvalidActionError(f"{snapshot.context.url}: a commit needs at least one add or remove")
    intent: Intent
    gone, (files, schemas) = tuple(dict.fromkeys(removes)), _deduplicated(adds)
    if not removes:
        intent, name = Append(files, schemas), "WRITE"
    elif not adds:
        intent, name = RemoveFiles(gone), "DELETE"
    else:
        intent, name = Merge((MergeGroup(gone, files),), schemas=schemas), "REPLACE"
    return run(snapshot, intent, Operation(name))


def _deduplicated(adds: Sequence[AddAction]) -> tuple[tuple[AddAction, ...], dict[str, str]]:
    """The same files, with references in the place of doc mappings; and the mappings by their hash."""
    schemas: dict[str, str] = {}
    files = []
    for add in adds:
        mapping = add.doc_mapping_json
        hash_ = None if mapping is None or add.doc_mapping_ref is not None else hash_or_none(mapping)
        if mapping is not None and hash_ is not None:
            schemas[hash_] = mapping
            add = replace(add, doc_mapping_json=None, doc_mapping_ref=hash_)
        files.append(add)
    return tuple(files), schemas


def append(snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader) -> CommitResult:
    """Write rows as new splits and add them in one commit; without any rows there is nothing to commit.

    `data` may be anything that gives Arrow batches. Raises InvalidSchemaError for columns that do not fit the
    table, before anything is written, InvalidValueError for values that do not, and what `commit` raises. Splits
    that were uploaded are deleted again if the commit provably did not land.
    """
    files = _write_splits(snapshot, data)
    with deleting_unless_landed(snapshot.context.store, [file.path for file in files]):
        intent = Append(_adds(files), _mappings(files), has_new_paths=True)
        check = uploads_check(files)
        result = commit(snapshot, intent, Operation("WRITE"), before_each_try=check)
    return _with_what_is_due(result, intent)


def overwrite(
    snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader, where: Predicate | None = None
) -> CommitResult:
    """Replace all rows, or those of the partitions that `where` selects, in one commit. See `append`.

    Raises InvalidPredicateError, too, for a `where` that needs more than partition values, and
    InvalidValueError for rows of a partition that it does not select: they would be added to what is there.
    """
    if where is not None:
        match_partitions(_partitions(()), where, snapshot.schema, snapshot.partition_columns)
    files = _write_splits(snapshot, data)
    with deleting_unless_landed(snapshot.context.store, [file.path for file in files]):
        if where is not None:
            _check_selected(snapshot, files, where)
        intent = Overwrite(_adds(files), where, _mappings(files))
        check = uploads_check(files)
        result = commit(snapshot, intent, Operation("OVERWRITE"), before_each_try=check)
    return _with_what_is_due(result, intent)


def run(
    snapshot: Snapshot, intent: Intent, operation: Operation, uploads: Sequence[SplitFile] = ()
) -> CommitResult:
    """Commit a transaction, then do what is due after it, which never fails the commit.

    `uploads` are the new splits that were written for it; without them nothing is committed.
    """
    check = uploads_check(uploads)
    return _with_what_is_due(commit(snapshot, intent, operation, before_each_try=check), intent)


def _with_what_is_due(result: CommitResult, intent: Intent) -> CommitResult:
    if not result.is_committed:
        return result
    snapshot = after_commit(result.snapshot)
    if isinstance(intent, Append | Overwrite):
        merge_on_write(snapshot)
    return replace(result, snapshot=snapshot)


def _write_splits(snapshot: Snapshot, data: pa.Table | pa.RecordBatchReader) -> tuple[SplitFile, ...]:
    """Upload rows as splits that no log refers to yet. After a failure none of them is left."""
    context = snapshot.context
    check_writable(snapshot.protocol, context.url)
    options = WriterOptions(
        target_bytes=context.settings[WRITE_TARGET_SPLIT_SIZE],
        heap_bytes=context.settings[INDEX_WRITER_HEAP_SIZE],
    )
    reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    columns = (snapshot.schema, snapshot.partition_columns)
    with SplitWriter(context.store, *columns, context.settings, options) as writer:
        # Columns that do not fit are refused even if no rows come.
        writer.write(reader.schema.empty_table())
        for batch in reader:
            writer.write(batch)
        return writer.commit()


def _check_selected(snapshot: Snapshot, files: Sequence[SplitFile], where: Predicate) -> None:
    matches = match_partitions(_partitions(files), where, snapshot.schema, snapshot.partition_columns)
    outside = next((file for file, match in zip(files, matches.to_pylist(), strict=True) if not match), None)
    if outside is not None:
        values = ", ".join(f"{name} = {value!r}" for name, value in outside.partition_values.items())
        raise InvalidValueError(
            f"{snapshot.context.url}: the data has rows with {values}, which the overwrite does not replace; leave "
            f"them out, or select their partition, too"
        )


def _partitions(files: Sequence[SplitFile]) -> pa.Table:
    values = [list(file.partition_values.items()) for file in files]
    return pa.table({"partitionValues": pa.array(values, STRING_MAP)})


def _adds(files: Sequence[SplitFile]) -> tuple[AddAction, ...]:
    return tuple(add_of(file) for file in files)


def _mappings(files: Sequence[SplitFile]) -> dict[str, str]:
    return {file.doc_mapping_ref: file.doc_mapping_json for file in files}


# DROP PARTITIONS: remove whole partitions in one commit.


class DropPartitionsResult(CommitResult, frozen=True, kw_only=True):
    """What `drop_partitions` removed; counts are None if the version file of the commit can no longer be read."""

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
    """Remove the splits of all partitions for which `where` is true. They stay on disk until a purge.

    Values are compared by the types of their columns. If others commit meanwhile, the partitions are looked up again,
    so that what they added to them goes, too; if nothing is left to remove, nothing is committed. Raises
    InvalidPredicateError if `where` needs more than partition columns, or if it cannot be decided for a file,
    CommitConflictError if the table's metadata changed meanwhile, and what else `commit` raises.
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


def _removed(result: CommitResult) -> tuple[int | None, int | None]:
    """The number of splits that a commit removed, and their bytes."""
    if not result.is_committed:
        return 0, 0
    try:
        removes = changes_since(result.snapshot, result.version - 1).removes
    except IndexTablesError:
        # The commit stands, so the operation must not fail because its version file is gone or unreadable.
        return None, None
    return removes.num_rows, pc.sum(removes["size"]).as_py() or 0


def check_partition_predicate(snapshot: Snapshot, where: Predicate) -> None:
    """Raises InvalidPredicateError unless `where` is about partition columns only, and about some."""
    if not snapshot.partition_columns:
        raise InvalidPredicateError(
            f"{snapshot.context.url}: the table is not partitioned, so that it has no partitions to drop"
        )
    nothing: pa.Table = empty_entries()
    match_partitions(nothing, where, snapshot.schema, snapshot.partition_columns)


# Table properties and the protocol: changes to the table itself.


def set_properties(snapshot: Snapshot, properties: Mapping[str, str | None]) -> CommitResult:
    """Set table properties, or remove those that are None.

    Concurrent changes of different properties compose; of the same one, the later fails with a
    CommitConflictError. Raises InvalidOptionError for a property that the log itself keeps, and for a setting with a
    value that it cannot have.
    """
    reserved = sorted(key for key in properties if key.startswith(SCHEMA_PROPERTY_PREFIX))
    if reserved:
        raise InvalidOptionError(
            f"{snapshot.context.url}: {reserved[0]} is part of the schema registry and cannot be set by hand"
        )
    for key, value in properties.items():
        if value is not None and not isinstance(value, str):
            raise InvalidOptionError(f"{snapshot.context.url}: the property {key!r} must be a text, or None")
    Settings.resolve({key: value for key, value in properties.items() if value is not None})
    return run(snapshot, ChangeProperties(dict(properties)), Operation("SET PROPERTIES"))


def upgrade_protocol(snapshot: Snapshot, reader_version: int, writer_version: int) -> CommitResult:
    """Raise the protocol versions, as a commit. They are never lowered."""
    if reader_version > READER_VERSION or writer_version > WRITER_VERSION:
        raise InvalidOptionError(
            f"{snapshot.context.url}: this release supports protocol version {READER_VERSION} for readers and "
            f"{WRITER_VERSION} for writers at most"
        )
    return run(snapshot, UpgradeProtocol(reader_version, writer_version), Operation("UPGRADE PROTOCOL"))


def indexing_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that say how columns are indexed: a table must keep them, or later splits would differ."""
    return {key: value for key, value in options.items() if key.lower().startswith(INDEXING_PREFIX)}


def text_properties(schema: pa.Schema, text: Sequence[str]) -> dict[str, str]:
    """The properties that make columns searchable as text. Raises InvalidSchemaError for others than strings."""
    for name in text:
        index = schema.get_field_index(name)
        if index < 0:
            raise InvalidSchemaError(
                f"the text column {name!r} is not in the schema: {', '.join(schema.names)}"
            )
        kind = schema.field(index).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InvalidSchemaError(
                f"the text column {name!r} is of type {kind}; only strings can be tokenised"
            )
    return {f"{INDEXING_TYPEMAP.prefix}{name}": "text" for name in text}
