"""The statements of IndexTables as values: one frozen class for each, and what they name their tables by."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class TablePath:
    """A table by its place: a local path or a URL."""

    path: str

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True, slots=True)
class TableName:
    """A table by its name in somebody's catalog, cut at the dots."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


Target = TablePath | TableName


class Statement:
    """The root of all statements."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Checkpoint(Statement):
    """CHECKPOINT INDEXTABLES."""

    target: Target


@dataclass(frozen=True, slots=True)
class Compact(Statement):
    """COMPACT INDEXTABLES."""

    target: Target


@dataclass(frozen=True, slots=True)
class DescribeState(Statement):
    """DESCRIBE INDEXTABLES STATE."""

    target: Target


@dataclass(frozen=True, slots=True)
class DescribeTransactionLog(Statement):
    """DESCRIBE INDEXTABLES TRANSACTION LOG; `includes_all` asks for versions that a checkpoint covers, too."""

    target: Target
    includes_all: bool = False


@dataclass(frozen=True, slots=True)
class DescribeHistory(Statement):
    """DESCRIBE INDEXTABLES HISTORY."""

    target: Target


@dataclass(frozen=True, slots=True)
class DescribeMergeJobs(Statement):
    """DESCRIBE INDEXTABLES MERGE JOBS."""


@dataclass(frozen=True, slots=True)
class DescribeDiskCache(Statement):
    """DESCRIBE INDEXTABLES DISK CACHE."""


@dataclass(frozen=True, slots=True)
class DescribeEnvironment(Statement):
    """DESCRIBE INDEXTABLES ENVIRONMENT."""


@dataclass(frozen=True, slots=True)
class MergeSplits(Statement):
    """MERGE SPLITS. `where` is the text of a predicate over partitions; what is None is left to the settings."""

    target: Target
    where: str | None = None
    target_bytes: int | None = None
    max_dest_splits: int | None = None
    max_source_splits_per_merge: int | None = None


@dataclass(frozen=True, slots=True)
class Purge(Statement):
    """PURGE INDEXTABLE. Retentions that are None are left to the settings."""

    target: Target
    older_than: timedelta | None = None
    log_retention: timedelta | None = None
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTimeTravel(Statement):
    """TRUNCATE INDEXTABLES TIME TRAVEL."""

    target: Target
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DropPartitions(Statement):
    """DROP INDEXTABLES PARTITIONS. `where` is the text of a predicate over partitions."""

    target: Target
    where: str


@dataclass(frozen=True, slots=True)
class Repair(Statement):
    """REPAIR INDEXFILES TRANSACTION LOG. `location` is where the new log goes; None leaves that to the repair."""

    target: Target
    location: str | None = None


@dataclass(frozen=True, slots=True)
class InvalidateLogCache(Statement):
    """INVALIDATE INDEXTABLES TRANSACTION LOG CACHE, of one table or of all."""

    target: Target | None = None


@dataclass(frozen=True, slots=True)
class FlushDiskCache(Statement):
    """FLUSH INDEXTABLES DISK CACHE."""


@dataclass(frozen=True, slots=True)
class Fsck(Statement):
    """FSCK INDEXTABLES; `is_deep` asks for every byte of the live splits."""

    target: Target
    is_deep: bool = False


@dataclass(frozen=True, slots=True)
class Restore(Statement):
    """RESTORE INDEXTABLES, to a version or to a moment as ISO 8601 text: one of the two is there."""

    target: Target
    version: int | None = None
    timestamp: str | None = None
