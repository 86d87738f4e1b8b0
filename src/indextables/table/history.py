"""The commits that the log still holds, and time travel by commit time."""

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
from indextables.log.segment import Base, LogListing, VersionEntry, list_log
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
    """One version: its effective time and its commitInfo, which some writers leave out."""

    version: int
    timestamp_ms: int
    info: CommitInfo | None = None


def read_commits(context: TableContext, newest_version: int) -> list[Commit]:
    """Every version up to `newest_version` that the log still records, oldest first.

    Times never decrease: a commit by a clock that runs behind gets the time of the commit before it. A version that
    only a state records, because its writer wrote no version file, has the time of the state.
    """
    return _commits(context, list_log(context.store), newest_version)


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


def version_at(context: TableContext, newest_version: int, timestamp_ms: int) -> int:
    """The newest readable version that was committed at or before a timestamp.

    Raises VersionNotFoundError, with the earliest readable version, if the timestamp is before it.
    """
    commits = _readable_commits(context, newest_version)
    version = _newest_at_or_before(commits, timestamp_ms)
    if version is None:
        earliest = commits[0]
        raise VersionNotFoundError(
            f"{context.url}: there is no version at or before {_iso(timestamp_ms)}; the earliest one left, version "
            f"{earliest.version}, was committed at {_iso(earliest.timestamp_ms)}"
        )
    return version


def version_before_changes(context: TableContext, newest_version: int, timestamp_ms: int) -> int:
    """The version that the changes since a timestamp start from: the version at that time, or -1 before the first.

    Raises VersionNotFoundError if the timestamp is before the earliest readable version, unless that is version 0.
    """
    commits = _readable_commits(context, newest_version)
    version = _newest_at_or_before(commits, timestamp_ms)
    if version is not None:
        return version
    earliest = commits[0]
    if earliest.version == 0:
        return -1
    raise VersionNotFoundError(
        f"{context.url}: the changes since {_iso(timestamp_ms)} are gone: the earliest version left, version "
        f"{earliest.version}, was committed at {_iso(earliest.timestamp_ms)}"
    )


def _newest_at_or_before(commits: Sequence[Commit], timestamp_ms: int) -> int | None:
    return max((commit.version for commit in commits if commit.timestamp_ms <= timestamp_ms), default=None)


def _readable_commits(context: TableContext, newest_version: int) -> list[Commit]:
    """The commits whose versions are readable, at least one. Raises VersionNotFoundError if there are none."""
    listing = list_log(context.store)
    loadable = _loadable(listing)
    commits = [commit for commit in _commits(context, listing, newest_version) if commit.version in loadable]
    if not commits:
        raise VersionNotFoundError(
            f"{context.url}: no version up to {newest_version} is readable; rebuild the log with REPAIR INDEXFILES "
            f"TRANSACTION LOG"
        )
    return commits


def _commits(context: TableContext, listing: LogListing, newest_version: int) -> list[Commit]:
    files = [file for file in listing.version_files if file.version <= newest_version]
    summaries = {summary.version: summary for summary in _summaries(context, files)}
    commits: list[Commit] = []
    latest_ms = 0
    for version in sorted({*listing.versions, *listing.bases}):
        if version > newest_version:
            break
        if (summary := summaries.get(version)) is not None:
            commit = Commit(version, summary.timestamp_ms, summary.actions.commit_info)
        elif version in listing.bases:
            recorded_ms = _time_of_base(context, listing.bases[version])
            if recorded_ms is None:
                continue
            commit = Commit(version, recorded_ms)
        else:
            commit = Commit(version, latest_ms)
        latest_ms = max(latest_ms, commit.timestamp_ms)
        commits.append(Commit(version, latest_ms, commit.info))
    return commits


def _summaries(context: TableContext, files: Sequence[VersionEntry]) -> list[VersionSummary]:
    """The summaries of version files. Unreadable files are skipped with a warning: a checkpoint may cover them."""
    try:
        return read_summaries(context, files)
    except (LogCorruptedError, ObjectNotFoundError):
        found: list[VersionSummary] = []
        for file in files:
            try:
                found += read_summaries(context, [file])
            except (LogCorruptedError, ObjectNotFoundError) as error:
                logger.warning(
                    "%s: the commit of version %d cannot be read: %s", context.url, file.version, error
                )
        return found


def _loadable(listing: LogListing) -> frozenset[int]:
    """The versions that can be loaded: from a checkpoint, or from version files after one or after version 0."""
    loadable: set[int] = set()
    for version in sorted({*listing.versions, *listing.bases}):
        if version in listing.bases or version == 0 or version - 1 in loadable:
            loadable.add(version)
    return frozenset(loadable)


def _operation_of_version(version: int) -> str | None:
    """Version 0 creates the table. Without a commitInfo, the operation of other versions is unknown."""
    return CREATE_TABLE if version == 0 else None


def _time_of_base(context: TableContext, bases: Sequence[Base]) -> int | None:
    """The commit time that a checkpoint records, or the time of its file if it is unreadable.

    None if a concurrent cleanup deleted the checkpoint after it was listed: then its version is gone.
    """
    damaged: Base | None = None
    for base in bases:
        try:
            header, _ = read_base(context, base)
        except LogCorruptedError:
            damaged = base
        except ObjectNotFoundError:
            continue
        else:
            return header.timestamp_ms
    return None if damaged is None else damaged.meta.last_modified_ms


def _iso(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
