"""The same version from a checkpoint that is whole, or from the log alone.

States share manifests. A manifest that is missing or cut off damages every state that refers to it, and would damage
every state that is built on one of them. So a state is verified before anything is built on it: commits and automatic
checkpoints compare the sizes of its files (`file_problem`), CHECKPOINT and COMPACT read every entry. If a state is
damaged, an older checkpoint and the version files after it may lead to the same version.
"""

import logging
from collections.abc import Callable

import msgspec

from indextables.errors import (
    CheckpointCorruptionError,
    ConcurrentMaintenanceError,
    LogCorruptedError,
    LogGapError,
    VersionNotFoundError,
)
from indextables.log.segment import Base
from indextables.log.version_file import find_object
from indextables.state.source import StateSource
from indextables.table.context import stamp
from indextables.table.load import load_snapshot
from indextables.table.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Says what is wrong with the base of a snapshot, or returns None.
Check = Callable[[Snapshot], str | None]


class WholeBase(msgspec.Struct, frozen=True):
    """A snapshot whose base is whole, or that has no base, and the damaged bases that it was not loaded from.

    The files of the snapshot lead to the versions of the damaged bases, too.
    """

    snapshot: Snapshot
    damaged: tuple[Base, ...]


def file_problem(snapshot: Snapshot) -> str | None:
    """What is wrong with the files of the snapshot's state, by their sizes; None if there is no state.

    JSON and Parquet checkpoints are read completely when they are loaded, so there is nothing left to check.
    """
    return snapshot.source.file_problem() if isinstance(snapshot.source, StateSource) else None


def on_whole_base(snapshot: Snapshot, check: Check) -> WholeBase:
    """Load the same version from the newest base that passes the check, or from the version files alone.

    Raises CheckpointCorruptionError, which says what is lost, if no files of the log lead to the version, and
    ConcurrentMaintenanceError if a concurrent cleanup deleted the base.
    """
    found, damaged, problems = snapshot, list[Base](), list[str]()
    while (problem := check(found)) is not None:
        base = found.segment.base
        assert base is not None  # without a base, there is nothing to complain about
        _check_not_cleaned_up(snapshot, base)
        logger.warning(
            "%s: the checkpoint of version %d is damaged, and nothing is built on it: %s",
            snapshot.context.url, base.version, problem,
        )  # fmt: skip
        damaged.append(base)
        problems.append(problem)
        try:
            found = load_snapshot(
                snapshot.context, snapshot.version, excluded_bases=[base.meta.key for base in damaged]
            )
        except (VersionNotFoundError, LogCorruptedError) as error:
            raise CheckpointCorruptionError(
                f"{snapshot.context.url}: failed to read checkpoint at version {damaged[0].version}: {problems[0]}; "
                f"no other files of the log lead to version {snapshot.version} ({error}). Restore the file from a "
                f"backup, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
            ) from error
    return WholeBase(found, tuple(damaged))


def check_may_build_on(snapshot: Snapshot) -> None:
    """Raise LogGapError if the snapshot's version cannot be read, as far as the sizes of files tell.

    This costs one listing for each state that a process loads, not for each commit.
    """
    source = snapshot.source
    if not isinstance(source, StateSource) or source.had_whole_files:
        return
    try:
        on_whole_base(snapshot, file_problem)
    except ConcurrentMaintenanceError:
        return  # a newer checkpoint has replaced the one that is gone
    except CheckpointCorruptionError as error:
        raise LogGapError(
            f"version {snapshot.version} cannot be read, so nothing may be committed after it: {error}"
        ) from error


def _check_not_cleaned_up(snapshot: Snapshot, base: Base) -> None:
    """Raise ConcurrentMaintenanceError if the base is gone or replaced. Cleanup deletes it before its manifests."""
    stored = find_object(snapshot.context.store, base.meta.key)
    if stored is None or stamp(stored) != stamp(base.meta):
        raise ConcurrentMaintenanceError(
            f"{snapshot.context.url}: a concurrent cleanup or CHECKPOINT replaced the checkpoint of version "
            f"{base.version} while it was checked; open the table again"
        )
