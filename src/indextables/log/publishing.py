"""Making a checkpoint valid, which is the last thing that its writer does.

Files that nothing refers to are collected as soon as they are old enough, and so are those of an older checkpoint that
was cleaned up. A writer that was suspended for long must not refer to them any more. What it has published is never
taken back: others may have cleaned up what came before, because they rely on it.
"""

from typing import Final

from indextables.errors import StorageError, VersionNotFoundError
from indextables.log.version_file import find_object
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
    took_ms = store.clock.now_ms() - started_ms
    if took_ms > _LONGEST_MS:
        raise StorageError(
            f"{store.url}: the checkpoint of version {version} was not published, because {took_ms // 60_000} minutes "
            f"went by since it was begun: its files may have been collected as garbage meanwhile; write it again"
        )
    if origin is not None and find_object(store, origin) is None:
        raise VersionNotFoundError(
            f"{store.url}: the state of version {version} was not published, because others went on and cleaned up "
            f"{origin}, which it goes on from; open the table again"
        )
    return store.put_if_absent(key, data)
