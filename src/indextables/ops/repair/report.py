"""What a repair found, what it wrote, and what nobody can know any more."""

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec
import pyarrow as pa


class RepairStatus(Enum):
    """How a repair ended.

    PARTIAL: the new log is there, but splits are missing or cannot be read, or something could not be decided.
    NO_ACTION: the log was to be replaced, and nothing is wrong with it. DRY_RUN: nothing was written.
    """

    SUCCESS = "SUCCESS"
    PARTIAL = "PARTIAL"
    NO_ACTION = "NO_ACTION"
    DRY_RUN = "DRY_RUN"


class Problem(msgspec.Struct, frozen=True):
    """A file, and what is the matter with it."""

    path: str
    reason: str


class SplitCounts(msgspec.Struct, frozen=True):
    """Where the splits of the new log come from.

    `proven`: the newest version that can be proved. `salvaged`: files of the log that lie beyond what is lost.
    `described_by_themselves`: no file of the log that can be read says whether they are live.
    """

    proven: int = 0
    salvaged: int = 0
    described_by_themselves: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.proven + self.salvaged + self.described_by_themselves


_PROBLEMS = pa.list_(pa.struct([pa.field("path", pa.string()), pa.field("reason", pa.string())]))

REPAIR_SCHEMA = pa.schema(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("proven_version", pa.int64()),
        pa.field("newest_version", pa.int64()),
        pa.field("num_files", pa.int64(), nullable=False),
        pa.field("num_rows", pa.int64()),
        pa.field("total_bytes", pa.int64(), nullable=False),
        pa.field("files_proven", pa.int64(), nullable=False),
        pa.field("files_salvaged", pa.int64(), nullable=False),
        pa.field("files_described_by_themselves", pa.int64(), nullable=False),
        pa.field("missing_splits", _PROBLEMS, nullable=False),
        pa.field("unreadable_splits", _PROBLEMS, nullable=False),
        pa.field("left_out_splits", _PROBLEMS, nullable=False),
        pa.field("unreadable_log_files", _PROBLEMS, nullable=False),
        pa.field("undecided", pa.list_(pa.string()), nullable=False),
        pa.field("damaged_log", pa.string()),
    ]
)


class RepairReport(msgspec.Struct, frozen=True):
    """The outcome of a repair.

    `location` is the root of the new log, None if none was written. `version` is that of the new log,
    `proven_version` the newest one that the old log still proves, and `newest_version` the highest one that any of its
    files bears witness of. `missing_splits` are named by the log and not there. `left_out_splits` are there, and not
    in the new log. `undecided` says, for people, what cannot be known. `damaged_log` is where the old log was put.
    """

    url: str
    location: str | None
    status: RepairStatus
    version: int
    proven_version: int | None
    newest_version: int | None
    num_rows: int | None
    total_bytes: int
    counts: SplitCounts
    missing_splits: tuple[Problem, ...] = ()
    unreadable_splits: tuple[Problem, ...] = ()
    left_out_splits: tuple[Problem, ...] = ()
    unreadable_log_files: tuple[Problem, ...] = ()
    undecided: tuple[str, ...] = ()
    damaged_log: str | None = None

    @property
    def num_files(self) -> int:
        """How many splits the new log refers to."""
        return self.counts.total

    @property
    def skipped_splits(self) -> tuple[Problem, ...]:
        """Every split that is not in the new log, and why."""
        return (*self.missing_splits, *self.unreadable_splits, *self.left_out_splits)

    def to_arrow(self) -> pa.Table:
        """One row with everything."""
        row = {
            "url": self.url,
            "location": self.location,
            "status": self.status.value,
            "version": self.version,
            "proven_version": self.proven_version,
            "newest_version": self.newest_version,
            "num_files": self.num_files,
            "num_rows": self.num_rows,
            "total_bytes": self.total_bytes,
            "files_proven": self.counts.proven,
            "files_salvaged": self.counts.salvaged,
            "files_described_by_themselves": self.counts.described_by_themselves,
            "missing_splits": _rows(self.missing_splits),
            "unreadable_splits": _rows(self.unreadable_splits),
            "left_out_splits": _rows(self.left_out_splits),
            "unreadable_log_files": _rows(self.unreadable_log_files),
            "undecided": list(self.undecided),
            "damaged_log": self.damaged_log,
        }
        return pa.Table.from_pylist([row], schema=REPAIR_SCHEMA)


def problems(paths: Iterable[str], reason: str) -> tuple[Problem, ...]:
    """The same problem of several files."""
    return tuple(Problem(path, reason) for path in paths)


def _rows(found: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"path": problem.path, "reason": problem.reason} for problem in found]
