"""Making a checkpoint valid, which is the last thing that its writer does.

Files that nothing refers to are collected as soon as they are old enough, and so are those of an older checkpoint that
was cleaned up. A writer that was suspended must not refer to them any more. It may fall asleep in the very moment
between the look and the write, so it looks once more afterwards. A collection looks at the checkpoints after it has
listed the files, and so either it sees this one, or whoever published it sees that it came too late.
"""

from typing import Final

from indextables.errors import ObjectNotFoundError, StorageError, VersionNotFoundError
from indextables.storage import ObjectStore, PutOutcome

# Half of the age below which no garbage collection takes anything, whatever its settings.
_LONGEST_MS: Final = 30 * 60 * 1000


def publish(
    store: ObjectStore, key: str, data: bytes, version: int, started_ms: int, origin: str | None = None
) -> PutOutcome:
    """Write the file that makes the checkpoint of a version valid, if there is none.

    Raises StorageError if the checkpoint was begun too long ago, at `started_ms`, and VersionNotFoundError if `origin`
    is gone, the key of the one whose files it goes on to use. Nothing is published then.
    """
    _check_in_time(store, version, started_ms)
    _check_origin(store, version, origin)
    outcome = store.put_if_absent(key, data)
    if outcome is PutOutcome.WRITTEN:
        try:
            _check_in_time(store, version, started_ms)
            _check_origin(store, version, origin)
        except (_TooLateError, VersionNotFoundError):
            store.delete_many([key])
            raise
    return outcome


class _TooLateError(StorageError):
    """As opposed to a store that does not answer, which proves nothing."""


def _check_in_time(store: ObjectStore, version: int, started_ms: int) -> None:
    took_ms = store.clock.now_ms() - started_ms
    if took_ms > _LONGEST_MS:
        raise _TooLateError(
            f"{store.url}: the checkpoint of version {version} was not published, because {took_ms // 60_000} minutes "
            f"went by since it was begun: its files may have been collected as garbage meanwhile; write it again"
        )


def _check_origin(store: ObjectStore, version: int, origin: str | None) -> None:
    if origin is None:
        return
    try:
        store.head(origin)
    except ObjectNotFoundError as error:
        raise VersionNotFoundError(
            f"{store.url}: the state of version {version} was not published, because others went on and cleaned up "
            f"{origin}, which it goes on from; open the table again"
        ) from error
