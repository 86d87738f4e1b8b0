"""How long what is kept: retentions as users write them, and the time that ages are measured by."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.config.kinds import Hours
from indextables.errors import ClockSkewError, InvalidOptionError
from indextables.ops.references import stored_table
from indextables.storage import ObjectMeta
from indextables.table import TableContext

MS_PER_HOUR: Final = 3_600_000

Retention = str | float | timedelta
"""A length of time: a timedelta, a text such as "7 days", or a number of hours."""

# Ages are differences of times by several clocks. A machine that is so far off cannot be trusted with a delete.
_MAX_SKEW_MS: Final = 15 * 60_000


def retention_hours(retention: Retention) -> float:
    """A retention in hours. Raises InvalidOptionError if it is no length of time, or a negative one."""
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
    """The store's clock, which the times of its files come from.

    Raises ClockSkewError if this machine's clock is far off: commits made here have wrong times then.
    """
    now_ms, local_ms = context.store.now_ms(), context.store.clock.now_ms()
    if abs(now_ms - local_ms) > _MAX_SKEW_MS:
        raise ClockSkewError(
            f"{context.url}: nothing was deleted, because this machine's clock differs from the store's by "
            f"{abs(now_ms - local_ms) / 60_000:.0f} minutes; set the clock, and try again"
        )
    return now_ms


def _refused(retention: Retention) -> InvalidOptionError:
    return InvalidOptionError(
        f"{retention!r} is not a retention; write it as '7 days', '12 hours' or a number of hours"
    )


# What a purge deletes, why, and what became of it.


class PurgeKind(Enum):
    """The kinds of files that a purge deletes, in the order of deletion.

    Pointers go before what they point at: a crash leaves orphans, and nothing that dangles.
    """

    CHECKPOINT = "checkpoint"
    VERSION = "version"
    MANIFEST = "manifest"
    REMOVED_SPLIT = "removed split"
    ORPHANED_SPLIT = "orphaned split"


SPLIT_KINDS: Final = (PurgeKind.REMOVED_SPLIT, PurgeKind.ORPHANED_SPLIT)

# `since` is what the age counts from: the removal of a removed split, the modification of any other file.
DOOMED_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("since", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("ageHours", pa.float64(), nullable=False),
    ]
)

REPORT_SCHEMA = pa.schema(
    [
        *DOOMED_SCHEMA,
        pa.field("isDeleted", pa.bool_(), nullable=False),
        pa.field("error", pa.string()),
    ]
)


class PurgeReport(msgspec.Struct, frozen=True):
    """What a purge found and did, as of `now_ms` by the store's clock.

    `files` has the columns of `REPORT_SCHEMA`: in a dry run none of them is deleted. Splits went if they were removed
    before `split_cutoff_ms`, or if no log ever knew them and they are older than `orphan_cutoff_ms`. Removed splits
    that older versions still show are kept, whatever their age: `kept_for_time_travel` counts them. `left_over` is how
    many files the limit of one purge left for the next.
    """

    url: str
    version: int
    is_dry_run: bool
    now_ms: int
    split_cutoff_ms: int
    orphan_cutoff_ms: int
    files: pa.Table
    kept_for_time_travel: int = 0
    kept_for_time_travel_bytes: int = 0
    left_over: int = 0

    def to_arrow(self) -> pa.Table:
        """One row for each file that was deleted, was to be, or, in a dry run, would be."""
        return self.files

    @property
    def num_files(self) -> int:
        """How many files the purge decided on."""
        return int(self.files.num_rows)

    @property
    def size_bytes(self) -> int:
        """The size of all of them."""
        return pc.sum(self.files["size"]).as_py() or 0

    @property
    def num_deleted(self) -> int:
        """How many files are gone."""
        return pc.sum(self.files["isDeleted"]).as_py() or 0

    @property
    def failures(self) -> pa.Table:
        """The files that could not be deleted, with the reason under `error`."""
        return self.files.filter(self.files["error"].is_valid())

    @property
    def counts(self) -> Mapping[PurgeKind, int]:
        """How many files of each kind the purge decided on."""
        kinds = self.files["kind"]
        return {kind: pc.sum(pc.equal(kinds, kind.value)).as_py() or 0 for kind in PurgeKind}


def doomed_files(kind: PurgeKind, metas: Iterable[ObjectMeta], now_ms: int) -> pa.Table:
    """Objects of one kind, aged by their modification, with the columns of `DOOMED_SCHEMA`."""
    table = stored_table(metas)
    paths, sizes, since_ms = (table[name].combine_chunks() for name in ("path", "size", "modifiedMs"))
    return doomed_rows(kind, paths, sizes, since_ms, now_ms)


def doomed_rows(
    kind: PurgeKind, paths: pa.Array, sizes: pa.Array, since_ms: pa.Array, now_ms: int
) -> pa.Table:
    """Files of one kind, with the columns of `DOOMED_SCHEMA`."""
    age_ms = pc.cast(pc.subtract(pa.scalar(now_ms, pa.int64()), since_ms), pa.float64())
    return pa.table(
        {
            "path": paths,
            "kind": pa.array(np.full(len(paths), kind.value, dtype=object), pa.string()),
            "size": sizes,
            "since": since_ms.cast(pa.timestamp("ms", tz="UTC")),
            "ageHours": pc.divide(age_ms, float(MS_PER_HOUR)),
        },
        schema=DOOMED_SCHEMA,
    )


def with_outcome(doomed: pa.Table, is_deleted: np.ndarray, errors: list[str | None]) -> pa.Table:
    """Files that were decided on, with the columns of `REPORT_SCHEMA`."""
    columns = [*doomed.columns, pa.array(is_deleted, pa.bool_()), pa.array(errors, pa.string())]
    return pa.Table.from_arrays(columns, schema=REPORT_SCHEMA)
