"""Did a version file that was just written become part of the table?

Usually: yes, at once. But a writer may have planned on version 5, slept, and written version 6 after other
writers had gone on to version 20 and the versions before that had been cleaned up. The name was free, and yet
nobody will ever read the file. Or the table was dropped and created again, and version 6 is none of its own.

Two looks tell that neither happened. The file that the snapshot was read from is still the same one: the table was
not created again, and not cleaned up past it. And no checkpoint stands at or beyond the new version: cleaning up
always writes one, and advances the hint to it, first.
"""

from indextables.errors import (
    CommitOutcomeUnknownError,
    LogCorruptedError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.checkpoint import read_hint
from indextables.log.paths import version_key
from indextables.log.segment import list_log
from indextables.log.version_file import find_version_file
from indextables.table.context import TableContext
from indextables.table.ground import is_ground_unchanged
from indextables.table.load import load_snapshot
from indextables.table.snapshot import Snapshot


def is_landed(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Whether the commit `commit_id`, written as `version`, is in the table. If not, its file is deleted.

    Raises CommitOutcomeUnknownError if the log does not tell any more, or the store stops answering.
    """
    context = planned_on.context
    try:
        if is_ground_unchanged(planned_on) and _newest_checkpoint(planned_on, version) < version:
            return True
        return _is_in_newest(planned_on, version, commit_id)
    except StorageError as error:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written, but the store stopped answering before it was certain that "
            f"it is part of the table ({error}); read the history again before you retry"
        ) from error


def _newest_checkpoint(planned_on: Snapshot, version: int) -> int:
    """By the hint, if a version file vouches for it: a cleanup would have taken that, too.

    A checkpoint is often kept when the versions after it go, and a hint may be missing or turned back.
    """
    store = planned_on.context.store
    hint = read_hint(store) if planned_on.segment.tail else None
    if hint is not None:
        return hint.version
    return max(list_log(store, from_version=version).bases, default=-1)


def _is_in_newest(planned_on: Snapshot, version: int, commit_id: str) -> bool:
    """Look the commit up in the table as it is now: checkpoints remember the ids of recent commits."""
    context = planned_on.context
    newest = _newest_or_none(context)
    if newest is None or newest.metadata.id != planned_on.metadata.id or newest.version < version:
        return _withdraw(context, version)
    recorded = newest.header.recent_commits
    if recorded.get(version) == commit_id:
        return True
    if recorded and min(recorded) <= version:
        context.store.delete_many([version_key(version)])
        return False
    raise CommitOutcomeUnknownError(
        f"{context.url}: version {version} was written, but the table went on to version {newest.version} meanwhile "
        f"and does not say whether it was included; compare the history before you retry"
    )


def _newest_or_none(context: TableContext) -> Snapshot | None:
    try:
        return load_snapshot(context)
    except (TableNotFoundError, LogCorruptedError, VersionNotFoundError):
        return None


def _withdraw(context: TableContext, version: int) -> bool:
    """Take a file away that was written into another table than the one it was meant for."""
    if find_version_file(context.store, version + 1) is not None:
        raise CommitOutcomeUnknownError(
            f"{context.url}: version {version} was written into a table that was created again meanwhile, and other "
            f"writers have gone on from there; remove the files that it added"
        )
    context.store.delete_many([version_key(version)])
    return False
