"""The result of REPAIR: the new log, the evidence for its splits, and what could not be recovered or decided."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec
import pyarrow as pa

from indextables._results import MESSAGE, PROBLEM, TABLE_PATH, Column, Columns, Result, Status


class Problem(msgspec.Struct, frozen=True):
    """A file and its problem."""

    path: str
    reason: str


class SplitCounts(msgspec.Struct, frozen=True):
    """The splits of the new log, by the evidence for them.

    `proven`: they are live in the newest version that the old log still proves. `salvaged`: log files after the lost
    ones name them. `described_by_themselves`: no readable log file names them; the splits describe themselves.
    """

    proven: int = 0
    salvaged: int = 0
    described_by_themselves: int = 0

    @property
    def total(self) -> int:
        return self.proven + self.salvaged + self.described_by_themselves


class RepairResult(Result, frozen=True):
    """The result of `IndexTable.repair` and `repair_table`.

    Attributes:
        table_path: The URL of the damaged table.
        location: The root of the new log; None if none was written.
        status: PARTIAL if splits are missing or unreadable, or a question is undecided; NO_ACTION if the log is intact.
        version: The version of the new log.
        proven_version: The newest version that the old log still proves.
        newest_version: The newest version that any file of the old log mentions.
        num_rows: The number of rows; None if a split does not record it.
        total_bytes: The size of the splits of the new log.
        counts: The number of splits of the new log, by the evidence for them.
        missing_splits: Splits that the old log names but the store does not have.
        unreadable_splits: Splits that cannot be read.
        left_out_splits: Splits that the store has but the new log leaves out.
        unreadable_log_files: Files of the old log that cannot be read.
        undecided: Questions that the evidence does not answer.
        damaged_log: Where the old log was moved; None if it was not moved.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column("location", pa.string(), "the root of the new log; null: none was written"),
        Column(
            "status",
            pa.string(),
            "`SUCCESS`, `NO_ACTION`: the log is intact, `DRY_RUN`, or `PARTIAL`: something is lost or undecided",
        ),
        Column("version", pa.int64(), "the version of the new log"),
        Column("proven_version", pa.int64(), "the newest version that the old log still proves; null: none"),
        Column("newest_version", pa.int64(), "the newest version that any file of the old log mentions"),
        Column("num_files", pa.int64(), "the splits of the new log"),
        Column("num_rows", pa.int64(), "their rows; null: a split does not record it"),
        Column("total_bytes", pa.int64(), "their size"),
        Column("files_proven", pa.int64(), "splits of the proven version"),
        Column("files_salvaged", pa.int64(), "splits that log files beyond the proven version name"),
        Column("files_described_by_themselves", pa.int64(), "splits that no readable log file names"),
        Column(
            "missing_splits", pa.list_(PROBLEM), "splits that the old log names but the store does not have"
        ),
        Column("unreadable_splits", pa.list_(PROBLEM), "splits that cannot be read, and why"),
        Column(
            "left_out_splits",
            pa.list_(PROBLEM),
            "splits that the store has but the new log leaves out, and why",
        ),
        Column(
            "unreadable_log_files", pa.list_(PROBLEM), "files of the old log that cannot be read, and why"
        ),
        Column("undecided", pa.list_(pa.string()), "questions that the evidence does not answer"),
        Column("damaged_log", pa.string(), "where the old log was moved; null: it was not moved"),
        MESSAGE,
    )

    table_path: str
    location: str | None
    status: Status
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
        """The number of splits of the new log."""
        return self.counts.total

    @property
    def skipped_splits(self) -> tuple[Problem, ...]:
        """Every split that is not in the new log, and why."""
        return (*self.missing_splits, *self.unreadable_splits, *self.left_out_splits)

    @property
    def files_proven(self) -> int:
        """The number of splits of the proven version."""
        return self.counts.proven

    @property
    def files_salvaged(self) -> int:
        """The number of splits that log files beyond the proven version name."""
        return self.counts.salvaged

    @property
    def files_described_by_themselves(self) -> int:
        """The number of splits that no readable log file names."""
        return self.counts.described_by_themselves

    @property
    def message(self) -> str:
        """A one-line summary."""
        if self.status is Status.NO_ACTION:
            return "the log is intact, and nothing was written"
        skipped = len(self.skipped_splits)
        lost = f"; {skipped} splits are missing or left out" if skipped else ""
        return f"version {self.version} of the new log has {self.num_files} splits{lost}"


def problems(paths: Iterable[str], reason: str) -> tuple[Problem, ...]:
    """Return one problem for each of several files, with the same reason."""
    return tuple(Problem(path, reason) for path in paths)
