"""What a transaction is going to do, as data.

An intent says what, not how. The planner (`plan`) computes the actions from the intent and the newest snapshot, and
computes them again after every concurrent commit. Writing the same removes again would lose or duplicate rows.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec
import pyarrow as pa

from indextables.log.actions import AddAction, Metadata, SkipAction, TransactionAction
from indextables.predicates import Predicate
from indextables.schema.evolution import SchemaChange


class Kind(Enum):
    """The rows and columns of the conflict matrix (`conflict`)."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    MERGE = "merge"
    DROP = "drop partitions"
    DELETE = "delete"
    UPSERT = "upsert"
    SCHEMA = "schema"
    METADATA = "metadata or protocol"


class Append(msgspec.Struct, frozen=True):
    """Add splits. `doc_mappings` are the doc mappings that they refer to, by hash.

    `has_new_paths` promises that this writer generated the paths, so none of them is live. With a `transaction`, the
    commit is skipped if the table has recorded that transaction already.
    """

    adds: tuple[AddAction, ...]
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    has_new_paths: bool = False
    transaction: TransactionAction | None = None
    kind = Kind.APPEND


class Overwrite(msgspec.Struct, frozen=True):
    """Remove all live splits, or those of the partitions that `where` selects, and add new ones.

    `doc_mappings` and `transaction` are as for `Append`.
    """

    adds: tuple[AddAction, ...]
    where: Predicate | None = None
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    transaction: TransactionAction | None = None
    kind = Kind.OVERWRITE


class DropPartitions(msgspec.Struct, frozen=True):
    """Remove the splits of the partitions that `where` selects."""

    where: Predicate
    kind = Kind.DROP


class Restore(msgspec.Struct, frozen=True):
    """Restore the live splits (file entries) and the metadata of an older version.

    `doc_mappings` is the doc-mapping registry of that version. Newer states may have dropped some of it.
    """

    entries: pa.Table
    metadata: Metadata
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    kind = Kind.OVERWRITE


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove splits by path. Paths that are not live are skipped."""

    paths: tuple[str, ...]
    kind = Kind.DROP


class MergeGroup(msgspec.Struct, frozen=True):
    """Source splits and the splits that replace them, atomically.

    `vectors` has the id of the deletion vector of each source that has one: the new splits lack these rows. A source
    with other deleted rows is not the split that was merged.
    """

    sources: tuple[str, ...]
    adds: tuple[AddAction, ...]
    vectors: Mapping[str, str] = msgspec.field(default_factory=dict)


class Merge(msgspec.Struct, frozen=True):
    """Replace groups of splits. A group whose sources are not all live is given up; the other groups are committed."""

    groups: tuple[MergeGroup, ...]
    skips: tuple[SkipAction, ...] = ()
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    kind = Kind.MERGE


class ChangeRows(msgspec.Struct, frozen=True):
    """Delete rows of splits, and add splits, atomically.

    `before` are the file entries of the splits that lose rows, and `after` those of them that have rows left, with
    their new deletion vectors. If one of `before` is no longer live as it was, the rows must be found again.
    """

    before: pa.Table
    after: pa.Table
    adds: tuple[AddAction, ...] = ()
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    kind = Kind.DELETE


class Upsert(ChangeRows, frozen=True):
    """Delete rows and add others with the keys of a source, and rows with keys that no row of the table has.

    Before each try, the writer searches splits that are new since it found the rows for these keys.
    """

    kind = Kind.UPSERT


class ChangeProperties(msgspec.Struct, frozen=True):
    """Set table properties. A value of None removes the property."""

    properties: Mapping[str, str | None]
    kind = Kind.METADATA


class ChangeMetadata(msgspec.Struct, frozen=True):
    """Set the fields `name` and `description` of the metadata. A value of None removes one."""

    fields: Mapping[str, str | None]
    kind = Kind.METADATA


class ChangeSchema(msgspec.Struct, frozen=True):
    """Change columns, one change after the other, in one commit.

    With `append`, the same commit adds splits that have the new columns already. `planned` is the schema that they were
    written for, in JSON: if the columns got other ids on top of a concurrent commit, the splits do not fit.
    """

    changes: tuple[SchemaChange, ...]
    append: Append | None = None
    planned: str = ""
    kind = Kind.SCHEMA


class UpgradeProtocol(msgspec.Struct, frozen=True):
    """Require at least these protocol versions of readers and writers."""

    reader_version: int
    writer_version: int
    kind = Kind.METADATA


class RecordTransaction(msgspec.Struct, frozen=True):
    """Record the number of a transaction and change nothing else. The recorded number never decreases."""

    transaction: TransactionAction
    kind = Kind.APPEND


class EmptyCommit(msgspec.Struct, frozen=True):
    """Commit a version that changes nothing, so that a compacted state gets a version of its own."""

    kind = Kind.APPEND


Intent = (
    Append
    | Overwrite
    | DropPartitions
    | Restore
    | RemoveFiles
    | Merge
    | ChangeRows
    | Upsert
    | ChangeProperties
    | ChangeMetadata
    | ChangeSchema
    | UpgradeProtocol
    | RecordTransaction
    | EmptyCommit
)
