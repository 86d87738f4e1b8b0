"""From a snapshot to the newest one, reading only what is new."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from indextables.errors import ObjectNotFoundError
from indextables.log.segment import LogListing, contiguous_versions, list_log
from indextables.log.version_file import find_version_file
from indextables.storage import ObjectMeta
from indextables.table.cache import stamp
from indextables.table.ground import is_ground_unchanged
from indextables.table.load import load_snapshot
from indextables.table.log_files import read_log_files, with_unlisted_versions
from indextables.table.rebase import rebase, rebase_if_long
from indextables.table.snapshot import Snapshot
from indextables.table.winner import Winner, winner_of

# Beyond this, it is cheaper to start again from a checkpoint than to read the versions in between.
_MANY_VERSIONS = 200

# Beyond this, one listing is cheaper than asking for each version.
_FOLLOWED_VERSIONS = 8


class CaughtUp(msgspec.Struct, frozen=True):
    """The newest snapshot, and each version that was committed since, in order.

    `winners` is None if nobody can tell: the log was cleaned up past the older snapshot, or the table was created
    again, or there are so many that they were not looked at one by one.
    """

    snapshot: Snapshot
    winners: tuple[Winner, ...] | None


def catch_up(snapshot: Snapshot) -> CaughtUp:
    """The table as it is now, by way of the versions after `snapshot`. Raises what `load_snapshot` raises."""
    context = snapshot.context
    listing = list_log(context.store, from_version=snapshot.version)
    if not _is_ground_listed(snapshot, listing):
        return CaughtUp(load_snapshot(context), None)
    listing = with_unlisted_versions(context, listing, snapshot.version + 1)
    files = contiguous_versions(listing, snapshot.version + 1)
    # Behind a hole there is more: the versions in between were cleaned up, or the log has a gap.
    has_hole = listing.newest_version > snapshot.version + len(files)
    is_far_behind = len(files) > _MANY_VERSIONS and max(listing.bases, default=-1) > snapshot.version
    if has_hole or is_far_behind:
        return CaughtUp(load_snapshot(context), None)
    try:
        caught_up = _extended(snapshot, files)
    except ObjectNotFoundError:
        # Cleaned up since it was listed.
        return CaughtUp(load_snapshot(context), None)
    if _has_another_base(caught_up.snapshot, listing):
        return replace(caught_up, snapshot=rebase(caught_up.snapshot))
    return replace(caught_up, snapshot=rebase_if_long(caught_up.snapshot))


def follow(snapshot: Snapshot) -> CaughtUp:
    """What `catch_up` gives, for a writer that lost a race just now and is in a hurry to lose no other.

    The next versions are asked for by name. That takes no longer in a long log than in a short one, as a listing would.
    """
    files: list[tuple[int, ObjectMeta]] = []
    while (meta := find_version_file(snapshot.context.store, snapshot.version + len(files) + 1)) is not None:
        files.append((snapshot.version + len(files) + 1, meta))
        if len(files) > _FOLLOWED_VERSIONS:
            return catch_up(snapshot)
    try:
        caught_up = _extended(snapshot, files)
    except ObjectNotFoundError:
        return catch_up(snapshot)
    # Looked at last: what was found so far belongs to the same table then.
    return caught_up if files and is_ground_unchanged(snapshot) else catch_up(snapshot)


def _extended(snapshot: Snapshot, files: Sequence[tuple[int, ObjectMeta]]) -> CaughtUp:
    if not files:
        return CaughtUp(snapshot, ())
    log_files = read_log_files(snapshot.context, files)
    winners = tuple(winner_of(log_file) for log_file in log_files)
    return CaughtUp(snapshot.extended(files, log_files), winners)


def _has_another_base(snapshot: Snapshot, listing: LogListing) -> bool:
    """Whether there is a newer base, or one of the same version in another format, which may be the one to read."""
    base = snapshot.segment.base
    known = base.version if base is not None else -1
    is_alone = len(listing.bases.get(known, ())) <= 1
    return not is_alone or any(known < version <= snapshot.version for version in listing.bases)


def _is_ground_listed(snapshot: Snapshot, listing: LogListing) -> bool:
    """What `is_ground_unchanged` tells, by a listing."""
    version, ground = snapshot.version, stamp(snapshot.ground)
    found = [base.meta for base in listing.bases.get(version, ())]
    if version in listing.versions:
        found.append(listing.versions[version])
    return any(stamp(meta) == ground for meta in found)
