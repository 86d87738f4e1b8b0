"""The statements of IndexTables as frozen values, and how they name their tables."""

from datetime import timedelta

import msgspec


class TablePath(msgspec.Struct, frozen=True):
    """A table by its path or URL."""

    path: str

    def __str__(self) -> str:
        return self.path


class TableName(msgspec.Struct, frozen=True):
    """A table by its name in a catalog, split at the dots."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


Target = TablePath | TableName


class Statement(msgspec.Struct, frozen=True):
    """The base of all statements."""


class Checkpoint(Statement, frozen=True):
    """CHECKPOINT INDEXTABLES."""

    target: Target


class Compact(Statement, frozen=True):
    """COMPACT INDEXTABLES."""

    target: Target


class DescribeState(Statement, frozen=True):
    """DESCRIBE INDEXTABLES STATE."""

    target: Target


class DescribeTransactionLog(Statement, frozen=True):
    """DESCRIBE INDEXTABLES TRANSACTION LOG; `includes_all` includes versions that a checkpoint covers."""

    target: Target
    includes_all: bool = False


class DescribeHistory(Statement, frozen=True):
    """DESCRIBE INDEXTABLES HISTORY."""

    target: Target


class DescribeMergeJobs(Statement, frozen=True):
    """DESCRIBE INDEXTABLES MERGE JOBS."""


class DescribeDiskCache(Statement, frozen=True):
    """DESCRIBE INDEXTABLES DISK CACHE."""


class DescribeEnvironment(Statement, frozen=True):
    """DESCRIBE INDEXTABLES ENVIRONMENT."""


class MergeSplits(Statement, frozen=True):
    """MERGE SPLITS. `where` is a predicate over partition columns. For a field that is None, the settings decide."""

    target: Target
    where: str | None = None
    target_bytes: int | None = None
    max_dest_splits: int | None = None
    max_source_splits_per_merge: int | None = None


class Purge(Statement, frozen=True):
    """PURGE INDEXTABLE. For a retention that is None, the settings decide."""

    target: Target
    older_than: timedelta | None = None
    log_retention: timedelta | None = None
    is_dry_run: bool = False


class TruncateTimeTravel(Statement, frozen=True):
    """TRUNCATE INDEXTABLES TIME TRAVEL."""

    target: Target
    is_dry_run: bool = False


class DropPartitions(Statement, frozen=True):
    """DROP INDEXTABLES PARTITIONS. `where` is a predicate over partition columns."""

    target: Target
    where: str


class Delete(Statement, frozen=True):
    """DELETE FROM. Without `where` and `query`, all rows."""

    target: Target
    where: str | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()
    is_dry_run: bool = False


class Update(Statement, frozen=True):
    """UPDATE. `values` are columns and SQL expressions. Without `where` and `query`, all rows."""

    target: Target
    values: tuple[tuple[str, str], ...]
    where: str | None = None
    query: str | None = None
    fields: tuple[str, ...] = ()
    is_dry_run: bool = False


class Relation(msgspec.Struct, frozen=True):
    """The source of MERGE INTO: a path, or a name or subquery for a caller that can read it (`sql`)."""

    path: str | None = None
    sql: str | None = None


class MergeClause(msgspec.Struct, frozen=True):
    """A clause of MERGE INTO. Without `values`, those of the source."""

    is_delete: bool = False
    values: tuple[tuple[str, str], ...] | None = None
    condition: str | None = None


class MergeInto(Statement, frozen=True):
    """MERGE INTO. `on` are the key columns of the table, and of the source."""

    target: Target
    source: Relation
    on: tuple[tuple[str, str], ...]
    matched: tuple[MergeClause, ...]
    not_matched: tuple[MergeClause, ...]
    target_name: str = "target"
    source_name: str = "source"
    is_dry_run: bool = False


class AddedColumn(msgspec.Struct, frozen=True):
    """ADD COLUMN; `default` is the text of a literal."""

    path: tuple[str, ...]
    type: str
    default: str | None = None
    comment: str | None = None
    position: str | None = None


class DroppedColumn(msgspec.Struct, frozen=True):
    """DROP COLUMN."""

    path: tuple[str, ...]


class RenamedColumn(msgspec.Struct, frozen=True):
    """RENAME COLUMN."""

    path: tuple[str, ...]
    name: str


class AlteredColumn(msgspec.Struct, frozen=True):
    """ALTER COLUMN: what is given changes. `is_nullable` is False for SET NOT NULL."""

    path: tuple[str, ...]
    type: str | None = None
    is_nullable: bool | None = None
    comment: str | None = None
    position: str | None = None


ColumnChange = AddedColumn | DroppedColumn | RenamedColumn | AlteredColumn


class Alter(Statement, frozen=True):
    """ALTER TABLE: changes of columns, one after the other in one commit."""

    target: Target
    changes: tuple[ColumnChange, ...]


class Repair(Statement, frozen=True):
    """REPAIR INDEXFILES TRANSACTION LOG. Without a `location`, the new log replaces the old one."""

    target: Target
    location: str | None = None


class Prewarm(Statement, frozen=True):
    """PREWARM INDEXTABLES. Without `fields`, the whole indexes are fetched."""

    target: Target
    fields: tuple[str, ...] = ()
    where: str | None = None


class Publish(Statement, frozen=True):
    """PUBLISH INDEXTABLES."""

    target: Target
    format: str


class InvalidateLogCache(Statement, frozen=True):
    """INVALIDATE INDEXTABLES TRANSACTION LOG CACHE, of one table or of all tables."""

    target: Target | None = None


class FlushDiskCache(Statement, frozen=True):
    """FLUSH INDEXTABLES DISK CACHE."""


class Fsck(Statement, frozen=True):
    """FSCK INDEXTABLES; `is_deep` reads every byte of the live splits."""

    target: Target
    is_deep: bool = False


class Restore(Statement, frozen=True):
    """RESTORE INDEXTABLES, to a version or to a moment as ISO 8601 text; exactly one of them is set."""

    target: Target
    version: int | None = None
    timestamp: str | None = None
