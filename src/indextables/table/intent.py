"""What a transaction means to do, as data.

An intent says what, not how: the actions are computed from it and the newest snapshot (`plan`), and computed
again whenever another writer was faster. Blindly repeating the same removes would lose or duplicate rows.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec
import pyarrow as pa

from indextables.log.actions import AddAction, Metadata, SkipAction, TransactionAction, scan_lines
from indextables.log.decode import LogFile, VersionSummary, decode_tail
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


class EmptyCommit(msgspec.Struct, frozen=True):
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
    | EmptyCommit
)


# What another writer's version did, as far as a conflict is decided by it. Read without decoding its files.
#
# A writer that lost a race is in a hurry: whoever takes longer to catch up than others take to commit never
# wins.


class ConcurrentCommit(msgspec.Struct, frozen=True):
    """One version. `changes_data` says that it has an add with new rows, and not only rows that moved."""

    summary: VersionSummary
    has_adds: bool
    has_removes: bool
    changes_data: bool


def summary_of(log_file: LogFile) -> VersionSummary:
    """What a version says besides its adds and removes. Raises LogCorruptedError."""
    actions = scan_lines(log_file.name, log_file.lines).actions
    if actions.commit_info is None:
        # Only the adds and removes tell when it was committed.
        return decode_tail([log_file]).versions[0]
    return VersionSummary(log_file.version, actions.commit_info.timestamp, actions)


def concurrent_commit_of(log_file: LogFile) -> ConcurrentCommit:
    """What a version did, by its actions alone: other writers do not say. Raises LogCorruptedError."""
    try:
        lines = _LINES.decode_lines(log_file.lines)
    except msgspec.MsgspecError:
        tail = decode_tail([log_file])
        changes_data = any(tail.adds["dataChange"].to_pylist())
        return ConcurrentCommit(
            tail.versions[0], tail.adds.num_rows > 0, tail.removes.num_rows > 0, changes_data
        )
    adds = [line.add for line in lines if line.add is not None]
    return ConcurrentCommit(
        summary=summary_of(log_file),
        has_adds=bool(adds),
        has_removes=any(line.remove is not None for line in lines),
        changes_data=any(add.data_change for add in adds),
    )


class _Action(msgspec.Struct, rename="camel"):
    data_change: bool = False


class _Line(msgspec.Struct):
    add: _Action | None = None
    remove: _Action | None = None


_LINES = msgspec.json.Decoder(_Line)
