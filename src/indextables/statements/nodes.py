"""The statements of IndexTables as values: one frozen class for each, and what they name their tables by."""

from datetime import timedelta

import msgspec


class TablePath(msgspec.Struct, frozen=True):
    """A table by its place: a local path or a URL."""

    path: str

    def __str__(self) -> str:
        return self.path


class TableName(msgspec.Struct, frozen=True):
    """A table by its name in somebody's catalog, cut at the dots."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


Target = TablePath | TableName


class Statement(msgspec.Struct, frozen=True):
    """The root of all statements."""


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
    """DESCRIBE INDEXTABLES TRANSACTION LOG; `includes_all` asks for versions that a checkpoint covers, too."""

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
    """MERGE SPLITS. `where` is the text of a predicate over partitions; what is None is left to the settings."""

    target: Target
    where: str | None = None
    target_bytes: int | None = None
    max_dest_splits: int | None = None
    max_source_splits_per_merge: int | None = None


class Purge(Statement, frozen=True):
    """PURGE INDEXTABLE. Retentions that are None are left to the settings."""

    target: Target
    older_than: timedelta | None = None
    log_retention: timedelta | None = None
    is_dry_run: bool = False


class TruncateTimeTravel(Statement, frozen=True):
    """TRUNCATE INDEXTABLES TIME TRAVEL."""

    target: Target
    is_dry_run: bool = False


class DropPartitions(Statement, frozen=True):
    """DROP INDEXTABLES PARTITIONS. `where` is the text of a predicate over partitions."""

    target: Target
    where: str


class Repair(Statement, frozen=True):
    """REPAIR INDEXFILES TRANSACTION LOG. `location` is where the new log goes; None leaves that to the repair."""

    target: Target
    location: str | None = None


class InvalidateLogCache(Statement, frozen=True):
    """INVALIDATE INDEXTABLES TRANSACTION LOG CACHE, of one table or of all."""

    target: Target | None = None


class FlushDiskCache(Statement, frozen=True):
    """FLUSH INDEXTABLES DISK CACHE."""


class Fsck(Statement, frozen=True):
    """FSCK INDEXTABLES; `is_deep` asks for every byte of the live splits."""

    target: Target
    is_deep: bool = False


class Restore(Statement, frozen=True):
    """RESTORE INDEXTABLES, to a version or to a moment as ISO 8601 text: one of the two is there."""

    target: Target
    version: int | None = None
    timestamp: str | None = None
