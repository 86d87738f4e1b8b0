"""Is the newest file that a snapshot was read from still the same file?"""

from indextables.errors import ObjectNotFoundError
from indextables.table.cache import stamp
from indextables.table.snapshot import Snapshot


def is_ground_unchanged(snapshot: Snapshot) -> bool:
    """False if the table was created again since, or cleaned up past the snapshot. Raises StorageError."""
    ground = snapshot.ground
    try:
        return stamp(snapshot.context.store.head(ground.key)) == stamp(ground)
    except ObjectNotFoundError:
        return False
