"""The commits that the log still holds, and time travel by their own times."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import pyarrow as pa

from indextables._results import MOMENT, Column, schema_of
from indextables.errors import LogCorruptedError, ObjectNotFoundError, VersionNotFoundError
from indextables.log.actions import CommitInfo
from indextables.log.decode import VersionSummary
from indextables.log.segment import Base, LogListing, list_log
from indextables.storage import ObjectMeta
from indextables.table.context import TableContext
from indextables.table.log_reader import read_base, read_summaries

logger = logging.getLogger(__name__)

HISTORY_COLUMNS: Final = (
    Column("version", pa.int64(), "the version", nullable=False),
    Column("timestamp", MOMENT, "when it was committed", nullable=False),
    Column("operation", pa.string(), "what the commit did; null: its writer did not record it"),
    Column("operation_parameters", pa.map_(pa.string(), pa.string()), "the arguments of the operation"),
    Column("operation_metrics", pa.map_(pa.string(), pa.int64()), "how much it changed"),
    Column("read_version", pa.int64(), "the version that the commit was planned on"),
    Column("commit_id", pa.string(), "the unique id of the commit"),
    Column("engine_info", pa.string(), "the engine that wrote it"),
)
HISTORY_SCHEMA: Final = schema_of(HISTORY_COLUMNS)

CREATE_TABLE = "CREATE TABLE"


class Commit(msgspec.Struct, frozen=True):
    """One version: its effective time and, where its writer left one, its commitInfo."""

    version: int
    timestamp_ms: int
    info: CommitInfo | None = None


def read_commits(context: TableContext, newest_version: int) -> list[Commit]:
    """Every version up to `newest_version` that the log bears witness of, oldest first.

    Times never decrease: a commit by a clock that runs behind counts as made together with the one before it.
    Versions that only a state records (other writers leave no version files) have the state's time.
    """
    return _commits(context, list_log(context.store), newest_version)


def version_at(context: TableContext, newest_version: int, timestamp_ms: int) -> int:
    """The newest version that was committed at or before a moment, and can still be read.

    Raises VersionNotFoundError, with the earliest moment that is still there, if the moment is before it.
    """
    commits = _readable_commits(context, newest_version)
    version = _newest_until(commits, timestamp_ms)
    if version is None:
        earliest = commits[0]
        raise VersionNotFoundError(
            f"{context.url}: there is no version at or before {_iso(timestamp_ms)}; the earliest one left, version "
            f"{earliest.version}, was committed at {_iso(earliest.timestamp_ms)}"
        )
    return version


def version_before_changes(context: TableContext, newest_version: int, timestamp_ms: int) -> int:
    """The version that the changes since a moment start from: the one at that moment, or -1 before the first.

    Raises VersionNotFoundError if the moment is before the earliest version left, and this is not the first.
    """
    commits = _readable_commits(context, newest_version)
    version = _newest_until(commits, timestamp_ms)
    if version is not None:
        return version
    earliest = commits[0]
    if earliest.version == 0:
        return -1
    raise VersionNotFoundError(
        f"{context.url}: the changes since {_iso(timestamp_ms)} are gone: the earliest version left, version "
        f"{earliest.version}, was committed at {_iso(earliest.timestamp_ms)}"
    )


def _newest_until(commits: Sequence[Commit], timestamp_ms: int) -> int | None:
    return max((commit.version for commit in commits if commit.timestamp_ms <= timestamp_ms), default=None)


def _readable_commits(context: TableContext, newest_version: int) -> list[Commit]:
    """The commits whose versions can still be read, at least one. Raises VersionNotFoundError if there are none."""
    listing = list_log(context.store)
    reachable = _reachable(listing)
    commits = [commit for commit in _commits(context, listing, newest_version) if commit.version in reachable]
    if not commits:
        raise VersionNotFoundError(f"{context.url}: no version up to {newest_version} can be read any more")
    return commits


def history_table(commits: Sequence[Commit]) -> pa.Table:
    """Commits as an Arrow table, newest first."""
    rows = [
        {
            "version": commit.version,
            "timestamp": commit.timestamp_ms,
            "operation": commit.info.operation if commit.info else _operation_of_version(commit.version),
            "operation_parameters": list(commit.info.operation_parameters.items()) if commit.info else None,
            "operation_metrics": list(commit.info.operation_metrics.items()) if commit.info else None,
            "read_version": commit.info.read_version if commit.info else None,
            "commit_id": commit.info.commit_id if commit.info else None,
            "engine_info": commit.info.engine_info if commit.info else None,
        }
        for commit in reversed(commits)
    ]
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)


def _commits(context: TableContext, listing: LogListing, newest_version: int) -> list[Commit]:
    files = [(version, meta) for version, meta in listing.versions.items() if version <= newest_version]
    summaries = {summary.version: summary for summary in _summaries(context, files)}
    commits: list[Commit] = []
    latest_ms = 0
    for version in sorted({*listing.versions, *listing.bases}):
        if version > newest_version:
            break
        if (summary := summaries.get(version)) is not None:
            commit = Commit(version, summary.timestamp_ms, summary.actions.commit_info)
        elif version in listing.bases:
            commit = Commit(version, _time_of_base(context, listing.bases[version]))
        else:
            commit = Commit(version, latest_ms)
        latest_ms = max(latest_ms, commit.timestamp_ms)
        commits.append(Commit(version, latest_ms, commit.info))
    return commits


def _summaries(context: TableContext, files: Sequence[tuple[int, ObjectMeta]]) -> list[VersionSummary]:
    """What version files say. One that cannot be read tells nothing: a checkpoint may cover it long since."""
    try:
        return read_summaries(context, files)
    except (LogCorruptedError, ObjectNotFoundError):
        found: list[VersionSummary] = []
        for file in files:
            try:
                found += read_summaries(context, [file])
            except (LogCorruptedError, ObjectNotFoundError) as error:
                logger.warning("%s: nothing is known about version %d: %s", context.url, file[0], error)
        return found


def _reachable(listing: LogListing) -> frozenset[int]:
    """The versions that a checkpoint stands at, or that version files lead to from one or from the start."""
    reachable: set[int] = set()
    for version in sorted({*listing.versions, *listing.bases}):
        if version in listing.bases or version == 0 or version - 1 in reachable:
            reachable.add(version)
    return frozenset(reachable)


def _operation_of_version(version: int) -> str | None:
    """Version 0 creates the table; what other versions of other writers did, they do not say."""
    return CREATE_TABLE if version == 0 else None


def _time_of_base(context: TableContext, bases: Sequence[Base]) -> int:
    """When a checkpoint was committed, by its own word, or else the time of its file."""
    for base in bases:
        try:
            header, _ = read_base(context, base)
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        return header.timestamp_ms
    return bases[0].meta.last_modified_ms


def _iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
