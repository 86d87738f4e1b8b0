"""What a transaction means to do, as data.

An intent says what, not how: the actions are computed from it and the newest snapshot (`plan`), and computed
again whenever another writer was faster. Blindly repeating the same removes would lose or duplicate rows.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec
import pyarrow as pa

from indextables.log.actions import AddAction, Metadata, SkipAction, TransactionAction
from indextables.predicates import Predicate


class Kind(Enum):
    """The rows and columns of the conflict matrix."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    MERGE = "merge"
    DROP = "drop partitions"
    METADATA = "metadata or protocol"


class Append(msgspec.Struct, frozen=True):
    """Add splits. `schemas` are the doc mappings that they refer to, by hash.

    `has_new_paths` promises that this writer made the paths up, so that none of them can be live. With a
    `transaction`, nothing happens if the table records that it was committed before.
    """

    adds: tuple[AddAction, ...]
    schemas: Mapping[str, str] = msgspec.field(default_factory=dict)
    has_new_paths: bool = False
    transaction: TransactionAction | None = None
    kind = Kind.APPEND


class Overwrite(msgspec.Struct, frozen=True):
    """Remove every live split, or those of the partitions that `where` selects, and add these.

    `transaction` is what it is for an `Append`.
    """

    adds: tuple[AddAction, ...]
    where: Predicate | None = None
    schemas: Mapping[str, str] = msgspec.field(default_factory=dict)
    transaction: TransactionAction | None = None
    kind = Kind.OVERWRITE


class DropPartitions(msgspec.Struct, frozen=True):
    """Remove the splits of the partitions that `where` selects."""

    where: Predicate
    kind = Kind.DROP


class Restore(msgspec.Struct, frozen=True):
    """Make the live splits (file entries) and the metadata what they were at an older version."""

    entries: pa.Table
    metadata: Metadata
    kind = Kind.OVERWRITE


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove splits by path. Those that are not live any more are passed over."""

    paths: tuple[str, ...]
    kind = Kind.DROP


class MergeGroup(msgspec.Struct, frozen=True):
    """Splits and what replaces them: all of it happens, or nothing."""

    sources: tuple[str, ...]
    adds: tuple[AddAction, ...]


class Merge(msgspec.Struct, frozen=True):
    """Replace groups of splits. A group whose sources are not all live is given up, the others go on."""

    groups: tuple[MergeGroup, ...]
    skips: tuple[SkipAction, ...] = ()
    schemas: Mapping[str, str] = msgspec.field(default_factory=dict)
    kind = Kind.MERGE


class ChangeProperties(msgspec.Struct, frozen=True):
    """Set table properties; None removes one."""

    properties: Mapping[str, str | None]
    kind = Kind.METADATA


class UpgradeProtocol(msgspec.Struct, frozen=True):
    """Ask readers and writers for at least these protocol versions."""

    reader_version: int
    writer_version: int
    kind = Kind.METADATA


class RecordTransaction(msgspec.Struct, frozen=True):
    """Record the number of a transaction, and change nothing else. A number that was reached before stays."""

    transaction: TransactionAction
    kind = Kind.APPEND


class Mark(msgspec.Struct, frozen=True):
    """Commit a version that changes nothing, so that a state can be written under a number of its own."""

    kind = Kind.APPEND


Intent = (
    Append
    | Overwrite
    | DropPartitions
    | Restore
    | RemoveFiles
    | Merge
    | ChangeProperties
    | UpgradeProtocol
    | RecordTransaction
    | Mark
)
