"""Splits that no readable file of the log tells about: which of them belong to the table. Pure.

Only where something of the log is lost can such a split have been committed. A merged split has the rows of its
sources, and says which those are: taking one in means leaving the others out.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from indextables.ops.repair_log import LogEvidence
from indextables.ops.repair_report import Problem
from indextables.ops.repair_splits import FoundSplit

# Clocks of writers differ, and a split is written some time before its commit.
_SLACK_MS: Final = 3_600_000

_TOO_OLD: Final = "it was written before the versions that are lost: it was removed, or never committed"
_TOO_NEW: Final = (
    "it was written after the versions that are lost, and no later version has it: never committed"
)
_UNDONE: Final = (
    "it was made by a merge that was never committed: one of its sources was removed in another way"
)
_REDUNDANT: Final = "it was made by a merge whose sources the log shows as live: its rows are in them"


class Window(msgspec.Struct, frozen=True):
    """The time in which splits must have been written in order to be committed by versions that are lost."""

    start_ms: int | None
    end_ms: int | None

    def reason_against(self, split: FoundSplit) -> str | None:
        """Why a split cannot have been committed then. The times of foreign files change when a table is copied."""
        written_ms = split.add.modification_time
        if self.start_ms is not None and written_ms < self.start_ms:
            return _TOO_OLD
        if split.own is not None and self.end_ms is not None and written_ms > self.end_ms:
            return _TOO_NEW
        return None


class KnownPaths(msgspec.Struct, frozen=True):
    """The paths that the log shows as live, and those that it shows as gone.

    What a damaged version removed it may have replaced by something that cannot be read any more.
    """

    live: frozenset[str]
    removed: frozenset[str]
    removed_by_damaged: frozenset[str] = frozenset()


class Candidates(msgspec.Struct, frozen=True):
    """The splits that are taken in, those that are not, and live ones whose rows another split has."""

    taken: tuple[FoundSplit, ...] = ()
    left_out: tuple[Problem, ...] = ()
    superseded: Mapping[str, str] | None = None


def lost_window(evidence: LogEvidence) -> Window:
    """From the last version that is proven to the first one after all that is lost."""
    start_ms = None if evidence.proven is None else evidence.proven.header.timestamp_ms - _SLACK_MS
    last_lost = evidence.lost[-1][-1] if evidence.lost else evidence.newest_version
    after = [
        summary.timestamp_ms
        for run in evidence.later
        if run.problem is None
        for summary in run.tail.versions
        if summary.version > last_lost
    ]
    return Window(start_ms, min(after) + _SLACK_MS if after and evidence.lost else None)


def choose(found: Mapping[str, FoundSplit], known: KnownPaths, window: Window) -> Candidates:
    """Decide on every split that is neither live nor removed."""
    left_out: dict[str, str] = {}
    candidates: dict[str, FoundSplit] = {}
    for path, split in found.items():
        if path in known.live or path in known.removed:
            continue
        reason = _reason_against(split, known, window)
        if reason is None:
            candidates[path] = split
        else:
            left_out[path] = reason
    committed = (split for path, split in found.items() if path not in left_out)
    superseded = _superseded(committed)
    left_out |= {path: superseded[path] for path in candidates.keys() & superseded.keys()}
    return Candidates(
        tuple(split for path, split in candidates.items() if path not in superseded),
        tuple(Problem(path, reason) for path, reason in sorted(left_out.items())),
        {path: superseded[path] for path in known.live & superseded.keys()},
    )


def _reason_against(split: FoundSplit, known: KnownPaths, window: Window) -> str | None:
    sources = split.merged_from
    if sources and known.live.issuperset(sources):
        return _REDUNDANT
    if sources and not (known.removed - known.removed_by_damaged).isdisjoint(sources):
        return _UNDONE
    return window.reason_against(split)


def _superseded(splits: Iterable[FoundSplit]) -> dict[str, str]:
    return {
        source: f"its rows are in {split.path}, which a merge made of it"
        for split in splits
        for source in split.merged_from
    }
