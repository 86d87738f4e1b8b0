"""The request and the result of PURGE, the table of files to delete, retentions, and the store's clock.

TRUNCATE TIME TRAVEL reports the files that it deletes in the same form.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import ClassVar, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import MESSAGE, MOMENT, TABLE_PATH, Column, Columns, Result, Status
from indextables.config.kinds import Hours
from indextables.errors import ClockSkewError, InvalidOptionError
from indextables.ops.references import stored_table
from indextables.storage import ObjectMeta
from indextables.table import TableContext

MS_PER_HOUR: Final = 3_600_000

Retention = str | float | timedelta
"""A length of time: a timedelta, a text such as "7 days", or a number of hours."""

# Ages compare times from several clocks. With a larger difference, a purge could delete files that are too young.
_MAX_SKEW_MS: Final = 15 * 60_000


class PurgeRequest(msgspec.Struct, frozen=True):
    """What to purge. A retention of None means the one in the table's settings.

    Attributes:
        older_than: Splits are kept for this long: a timedelta, a text such as "7 days", or a number of hours.
        log_retention: Versions and checkpoints are kept for this long.
        dry_run: Whether to list the files without deleting them.
    """

    older_than: Retention | None = None
    log_retention: Retention | None = None
    dry_run: bool = True


class PurgeKind(Enum):
    """The kinds of files that a purge deletes, in the order of deletion.

    A file is deleted before the files that it refers to, so a crash leaves orphans and no dangling references.
    """

    CHECKPOINT = "checkpoint"
    VERSION = "version"
    MANIFEST = "manifest"
    REMOVED_SPLIT = "removed split"
    ORPHANED_SPLIT = "orphaned split"
    DELETION_VECTOR = "deletion vector"


# What entries of the log refer to.
SPLIT_KINDS: Final = (PurgeKind.REMOVED_SPLIT, PurgeKind.ORPHANED_SPLIT, PurgeKind.DELETION_VECTOR)

# The files to delete. A removed split ages from its removal, any other file from its modification.
DOOMED_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("age_hours", pa.float64(), nullable=False),
    ]
)

FILES_SCHEMA = pa.schema(
    [
        *DOOMED_SCHEMA,
        pa.field("is_deleted", pa.bool_(), nullable=False),
        pa.field("error", pa.string()),
    ]
)

FILES: Final = Column(
    "files",
    pa.list_(pa.struct([field.with_nullable(True) for field in FILES_SCHEMA])),
    "these files, one by one",
)


class DeletedFiles(Result, frozen=True):
    """The files that PURGE or TRUNCATE deletes or, in a dry run, lists."""

    table_path: str
    version: int
    is_dry_run: bool
    files: pa.Table

    @property
    def num_files(self) -> int:
        """The number of files that were chosen for deletion."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """The size of the files that were chosen for deletion."""
        return pc.sum(self.files["size"]).as_py() or 0

    @property
    def num_checkpoints(self) -> int:
        """The number of checkpoints among them."""
        return self.counts[PurgeKind.CHECKPOINT]

    @property
    def num_versions(self) -> int:
        """The number of version files among them."""
        return self.counts[PurgeKind.VERSION]

    @property
    def num_manifests(self) -> int:
        """The number of unreferenced log files among them."""
        return self.counts[PurgeKind.MANIFEST]

    @property
    def counts(self) -> Mapping[PurgeKind, int]:
        """The number of files of each kind."""
        kinds = self.files["kind"]
        return {kind: pc.sum(pc.equal(kinds, kind.value)).as_py() or 0 for kind in PurgeKind}


class PurgeResult(DeletedFiles, frozen=True):
    """What `IndexTable.purge` found and deleted.

    Attributes:
        table_path: The URL of the table.
        version: The newest version.
        is_dry_run: Whether files were only listed.
        files: The files as an Arrow table, with the columns path, kind, size, age_hours, is_deleted and error.
        as_of: The time of the purge, by the store's clock.
        split_cutoff: Splits that were removed before this moment were chosen.
        orphan_cutoff: Splits that are not in the log were chosen if they are older than this moment.
        num_kept_for_time_travel: Removed splits that stay, because a readable older version refers to them.
        bytes_kept_for_time_travel: The size of these splits.
        num_left_over: The files that the limit of one purge leaves for the next one.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column(
            "status",
            pa.string(),
            "`SUCCESS`, `NO_ACTION`: nothing to delete, `DRY_RUN`, or `FAILED`: some files could not be deleted",
        ),
        Column("version", pa.int64(), "the newest version"),
        Column("as_of", MOMENT, "the time of the purge, by the store's clock"),
        Column("split_cutoff", MOMENT, "splits that were removed before this moment were chosen"),
        Column(
            "orphan_cutoff",
            MOMENT,
            "splits that are not in the log were chosen if they are older than this",
        ),
        Column("num_checkpoints", pa.int64(), "expired checkpoints"),
        Column("num_versions", pa.int64(), "expired version files"),
        Column("num_manifests", pa.int64(), "log files that no checkpoint refers to"),
        Column("num_removed_splits", pa.int64(), "splits that were removed from the table before the cutoff"),
        Column("num_orphaned_splits", pa.int64(), "old splits that are not in the log"),
        Column("num_files", pa.int64(), "all of these files"),
        Column("size_bytes", pa.int64(), "the size of these files"),
        Column("num_deleted", pa.int64(), "how many of these files were deleted"),
        Column(
            "num_kept_for_time_travel",
            pa.int64(),
            "removed splits that stay, because a readable older version refers to them",
        ),
        Column("bytes_kept_for_time_travel", pa.int64(), "the size of these splits"),
        Column("num_left_over", pa.int64(), "files that the limit of one purge leaves for the next one"),
        MESSAGE,
        FILES,
    )

    as_of: datetime
    split_cutoff: datetime
    orphan_cutoff: datetime
    num_kept_for_time_travel: int = 0
    bytes_kept_for_time_travel: int = 0
    num_left_over: int = 0

    @property
    def status(self) -> Status:
        """FAILED if files could not be deleted, NO_ACTION if there were none to delete."""
        if self.is_dry_run:
            return Status.DRY_RUN
        if self.failures.num_rows:
            return Status.FAILED
        return Status.SUCCESS if self.num_files else Status.NO_ACTION

    @property
    def message(self) -> str:
        """A one-line summary."""
        if self.is_dry_run:
            return f"{self.num_files} files of {self.size_bytes} bytes would be deleted"
        failed = f"; {self.failures.num_rows} could not be deleted" if self.failures.num_rows else ""
        return f"{self.num_deleted} of {self.num_files} files were deleted{failed}"

    @property
    def num_removed_splits(self) -> int:
        """The number of removed splits among the files."""
        return self.counts[PurgeKind.REMOVED_SPLIT]

    @property
    def num_orphaned_splits(self) -> int:
        """The number of orphaned splits among the files."""
        return self.counts[PurgeKind.ORPHANED_SPLIT]

    @property
    def num_deleted(self) -> int:
        """The number of files that were deleted."""
        return pc.sum(self.files["is_deleted"]).as_py() or 0

    @property
    def failures(self) -> pa.Table:
        """The files that could not be deleted, with the reason in the column `error`."""
        return self.files.filter(self.files["error"].is_valid())


def retention_hours(retention: Retention) -> float:
    """Return a retention in hours. Raises InvalidOptionError if it is not a length of time, or negative."""
    if isinstance(retention, timedelta):
        hours = retention.total_seconds() / 3600
    else:
        try:
            hours = Hours().read(retention)
        except ValueError as error:
            raise _refused(retention) from error
    if hours < 0:
        raise _refused(retention)
    return hours


def store_now_ms(context: TableContext) -> int:
    """Return the time by the store's clock, which also sets the modification times of its files.

    Raises ClockSkewError if this machine's clock is far off, because commits made here then have wrong times.
    """
    now_ms, local_ms = context.store.now_ms(), context.store.clock.now_ms()
    if abs(now_ms - local_ms) > _MAX_SKEW_MS:
        raise ClockSkewError(
            f"{context.url}: nothing was deleted, because this machine's clock differs from the store's by "
            f"{abs(now_ms - local_ms) / 60_000:.0f} minutes; set the clock, and try again"
        )
    return now_ms


def doomed_files(kind: PurgeKind, metas: Iterable[ObjectMeta], now_ms: int) -> pa.Table:
    """Return objects of one kind, which age from their modification, with the columns of `DOOMED_SCHEMA`."""
    table = stored_table(metas)
    paths, sizes, since_ms = (table[name].combine_chunks() for name in ("path", "size", "modifiedMs"))
    return doomed_rows(kind, paths, sizes, since_ms, now_ms)


def doomed_rows(
    kind: PurgeKind, paths: pa.Array, sizes: pa.Array, since_ms: pa.Array, now_ms: int
) -> pa.Table:
    """Return files of one kind, which age from `since_ms`, with the columns of `DOOMED_SCHEMA`."""
    age_ms = pc.cast(pc.subtract(pa.scalar(now_ms, pa.int64()), since_ms), pa.float64())
    return pa.table(
        {
            "path": paths,
            "kind": pa.array(np.full(len(paths), kind.value, dtype=object), pa.string()),
            "size": sizes,
            "age_hours": pc.divide(age_ms, float(MS_PER_HOUR)),
        },
        schema=DOOMED_SCHEMA,
    )


def with_outcome(doomed: pa.Table, is_deleted: np.ndarray, errors: list[str | None]) -> pa.Table:
    """Add the outcome of each deletion to doomed files: the columns of `FILES_SCHEMA`."""
    columns = [*doomed.columns, pa.array(is_deleted, pa.bool_()), pa.array(errors, pa.string())]
    return pa.Table.from_arrays(columns, schema=FILES_SCHEMA)


def _refused(retention: Retention) -> InvalidOptionError:
    return InvalidOptionError(
        f"{retention!r} is not a retention; write it as '7 days', '12 hours' or a number of hours"
    )
