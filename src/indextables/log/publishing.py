"""How long a checkpoint may take from its first file to the one that makes it valid.

Files that nothing refers to are collected as soon as they are old enough. A writer that was suspended for longer must
not refer to its own any more.
"""

from typing import Final

from indextables.errors import StorageError
from indextables.storage import ObjectStore

# Half of the age below which no garbage collection takes anything, whatever its settings.
_LONGEST_MS: Final = 30 * 60 * 1000


def check_in_time(store: ObjectStore, version: int, started_ms: int) -> None:
    """Raise StorageError if a checkpoint that was begun at `started_ms` must not be published any more."""
    took_ms = store.clock.now_ms() - started_ms
    if took_ms > _LONGEST_MS:
        raise StorageError(
            f"{store.url}: the checkpoint of version {version} was not published, because {took_ms // 60_000} minutes "
            f"went by since it was begun: its files may have been collected as garbage meanwhile; write it again"
        )
