"""Splits that a merge could not read: recorded in the log, left alone for a while, and then tried again."""

from collections.abc import Iterator, Mapping, Sequence

from indextables.config.registry import SKIPPED_FILES_COOLDOWN_HOURS, SKIPPED_FILES_TRACKING_ENABLED
from indextables.errors import UnsafePathError
from indextables.log.actions import SkipAction
from indextables.ops.merge.task import BadSource, MergeSource
from indextables.storage import relative_key
from indextables.table import Snapshot

_OPERATION = "merge"
_MS_PER_HOUR = 3_600_000


def resting_paths(snapshot: Snapshot) -> frozenset[str]:
    """The splits whose cool-down is not over yet, by their paths in the log."""
    if not snapshot.context.settings[SKIPPED_FILES_TRACKING_ENABLED]:
        return frozenset()
    now_ms = snapshot.context.store.clock.now_ms()
    return frozenset(
        spelling
        for path, skip in snapshot.header.skips.items()
        if skip.operation.lower() == _OPERATION and now_ms < _retry_after(skip, _cooldown_ms(snapshot))
        for spelling in _spellings(path, snapshot)
    )


def skip_actions(
    snapshot: Snapshot, bad_sources: Sequence[BadSource], sources: Mapping[str, MergeSource]
) -> tuple[SkipAction, ...]:
    """What the log is told about sources that could not be merged; nothing if that is switched off."""
    if not snapshot.context.settings[SKIPPED_FILES_TRACKING_ENABLED]:
        return ()
    now_ms = snapshot.context.store.clock.now_ms()
    counts = {
        spelling: skip.skip_count
        for path, skip in snapshot.header.skips.items()
        for spelling in _spellings(path, snapshot)
    }
    return tuple(
        SkipAction(
            path=bad.path,
            skip_timestamp=now_ms,
            reason=bad.reason,
            operation=_OPERATION,
            skip_count=counts.get(bad.path, 0) + 1,
            retry_after=now_ms + _cooldown_ms(snapshot),
            partition_values=dict(sources[bad.path].ref.partition_values),
            size=sources[bad.path].ref.size,
        )
        for bad in bad_sources
    )


def _cooldown_ms(snapshot: Snapshot) -> int:
    return int(snapshot.context.settings[SKIPPED_FILES_COOLDOWN_HOURS] * _MS_PER_HOUR)


def _retry_after(skip: SkipAction, cooldown_ms: int) -> int:
    return skip.retry_after if skip.retry_after is not None else skip.skip_timestamp + cooldown_ms


def _spellings(path: str, snapshot: Snapshot) -> Iterator[str]:
    """A path as it is, and relative to the table if it is an absolute one, as older writers recorded them."""
    yield path
    try:
        yield relative_key(path, snapshot.context.url)
    except UnsafePathError:
        return
