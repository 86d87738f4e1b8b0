"""Splits that no readable file of the log tells about: which of them belong to the table. Pure.

Only where something of the log is lost can such a split have been committed. A merged split has the rows of its
sources, and says which those are: taking one in means leaving the others out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import AddAction, encode_actions
from indextables.log.decode import LogFile, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.replay import replay_entries
from indextables.ops.references import among
from indextables.ops.repair.damaged_files import paths_of
from indextables.ops.repair.evidence import LogEvidence
from indextables.ops.repair.report import Problem, SplitCounts, problems
from indextables.ops.repair.splits import FoundSplit, SplitSurvey
from indextables.state.source import newest_per_path

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


# What the new log will hold: the plan of a repair. Pure.


_GONE = "the log names it, and it is not there"
_NAMED = 5


class RepairPlan(msgspec.Struct, frozen=True):
    """The live files of the new log, under `version`, and what became of everything else.

    `removed` are entries that the old log shows as live and the new one does not have. `taken` are the splits of
    which only they themselves tell.
    """

    version: int
    entries: pa.Table
    removed: pa.Table
    taken: tuple[FoundSplit, ...]
    counts: SplitCounts
    missing: tuple[Problem, ...]
    unreadable: tuple[Problem, ...]
    left_out: tuple[Problem, ...]
    undecided: tuple[str, ...]

    @property
    def num_rows(self) -> int | None:
        """How many rows the live files have, or None if one does not say."""
        counts = self.entries["numRecords"]
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    @property
    def total_bytes(self) -> int:
        """The size of the live files."""
        return pc.sum(self.entries["size"]).as_py() or 0


def log_entries(evidence: LogEvidence) -> pa.Table:
    """The files that are live by all that the log still says."""
    entries = empty_entries() if evidence.proven is None else evidence.proven.entries
    for run in evidence.later:
        entries = replay_entries(entries, run.tail)
    return entries


def make_plan(evidence: LogEvidence, live: pa.Table, stored: pa.Table, survey: SplitSurvey) -> RepairPlan:
    """Decide which splits the new log refers to.

    `live` is what `log_entries` gives, `stored` are the split files that are there, and `survey` what they say: of
    those that are live, or of all if the log is not complete.
    """
    version = evidence.newest_version + 1
    is_there = among(live["path"], stored["path"].combine_chunks())
    missing = live.filter(pc.invert(is_there))["path"].to_pylist()
    bad = pa.array(list(survey.unreadable), pa.string())
    present = live.filter(is_there)
    readable = present.filter(pc.invert(among(present["path"], bad)))
    chosen = Candidates() if evidence.is_complete else _chosen(evidence, readable, survey)
    superseded = dict(chosen.superseded or {})
    kept = readable.filter(pc.invert(among(readable["path"], pa.array(list(superseded), pa.string()))))
    known = _as_the_files_say(kept, survey.found, version)
    entries = pa.concat_tables(
        [known, _described(chosen.taken, evidence.descriptions, version)], promote_options="default"
    )
    proven = _proven_paths(evidence)
    from_proven = pc.sum(among(kept["path"], proven)).as_py() or 0
    return RepairPlan(
        version=version,
        entries=entries,
        removed=_not_kept(evidence, entries),
        taken=chosen.taken,
        counts=SplitCounts(from_proven, kept.num_rows - from_proven, len(chosen.taken)),
        missing=problems(missing, _GONE),
        unreadable=tuple(_unreadable(evidence, survey, live)),
        left_out=(*chosen.left_out, *(Problem(path, why) for path, why in sorted(superseded.items()))),
        undecided=tuple(_undecided(evidence, chosen.taken)),
    )


def _chosen(evidence: LogEvidence, readable: pa.Table, survey: SplitSurvey) -> Candidates:
    live = frozenset(readable["path"].to_pylist())
    settled = {*evidence.settled_paths.to_pylist(), *paths_of(evidence.later).to_pylist()}
    damaged = [run.tail.removes["path"] for run in evidence.later if run.problem is not None]
    known = KnownPaths(
        live,
        frozenset(settled - live),
        frozenset(path for removed in damaged for path in removed.to_pylist()),
    )
    return choose(survey.found, known, lost_window(evidence))


def _as_the_files_say(entries: pa.Table, found: Mapping[str, FoundSplit], version: int) -> pa.Table:
    """Entries of the log; one that contradicts its file is replaced by what the file says."""
    said = pa.table(
        {
            "path": pa.array(list(found), pa.string()),
            "size": pa.array([split.add.size for split in found.values()], pa.int64()),
            "numRecords": pa.array([split.add.num_records for split in found.values()], pa.int64()),
        }
    )
    place = pc.index_in(entries["path"], value_set=said["path"].combine_chunks())
    is_wrong = pa.array(np.zeros(entries.num_rows, dtype=np.bool_))
    for name in ("size", "numRecords"):
        differs = pc.not_equal(entries[name], said[name].combine_chunks().take(place))
        is_wrong = pc.or_(is_wrong, pc.fill_null(differs, False))
    wrong = entries.filter(is_wrong)["path"].to_pylist()
    if not wrong:
        return entries
    right = _entries_of([found[path].add for path in wrong], version)
    return pa.concat_tables([entries.filter(pc.invert(is_wrong)), right], promote_options="default")


def _described(splits: Sequence[FoundSplit], descriptions: Sequence[pa.Table], version: int) -> pa.Table:
    """Entries of splits that the log does not show as live. Of foreign ones it may know more than they say."""
    foreign = [split.path for split in splits if split.own is None]
    noted = _noted(foreign, descriptions) if foreign else empty_entries()
    noted_paths = frozenset(noted["path"].to_pylist())
    others = [split.add for split in splits if split.path not in noted_paths]
    found = {split.path: split for split in splits if split.path in noted_paths}
    return pa.concat_tables(
        [_as_the_files_say(noted, found, version), _entries_of(others, version)], promote_options="default"
    )


def _noted(paths: Sequence[str], descriptions: Sequence[pa.Table]) -> pa.Table:
    wanted = pa.array(paths, pa.string())
    found = [table.filter(among(table["path"], wanted)) for table in descriptions]
    return newest_per_path(pa.concat_tables([empty_entries(), *found], promote_options="default"))


def _entries_of(adds: Sequence[AddAction], version: int) -> pa.Table:
    if not adds:
        return empty_entries()
    newest_ms = max(add.modification_time for add in adds)
    tail = decode_tail([LogFile(version, "splits", encode_actions(adds), newest_ms)])
    return tail.adds.drop_columns(["sequence"]).cast(FILE_ENTRY_SCHEMA)


def _proven_paths(evidence: LogEvidence) -> pa.Array:
    if evidence.proven is None:
        return pa.array([], pa.string())
    return evidence.proven.entries["path"].combine_chunks()


def _not_kept(evidence: LogEvidence, entries: pa.Table) -> pa.Table:
    """What a reader of the old log sees as live, and the new log does not have."""
    proven = empty_entries() if evidence.proven is None else evidence.proven.entries
    return proven.filter(pc.invert(among(proven["path"], entries["path"].combine_chunks())))


def _unreadable(evidence: LogEvidence, survey: SplitSurvey, live: pa.Table) -> Iterable[Problem]:
    """Unreadable files that the log shows as live or, if it is not complete, that may have been."""
    if not survey.unreadable:
        return ()
    shown = frozenset(live["path"].to_pylist())
    gone = frozenset(evidence.settled_paths.to_pylist()) | frozenset(paths_of(evidence.later).to_pylist())
    return (
        problem
        for path, problem in survey.unreadable.items()
        if path in shown or (not evidence.is_complete and path not in gone)
    )


def _undecided(evidence: LogEvidence, taken: Sequence[FoundSplit]) -> Iterable[str]:
    if evidence.is_complete:
        return
    if evidence.newest_version < 0:
        yield (
            "no version of the log is left: rows that were overwritten, dropped or deleted, and not purged since, are "
            "back, and so are splits that were never committed, if there were any"
        )
        yield "which version numbers were used is not known: streams that read the table have to start again"
    else:
        yield (
            f"{_ranges(evidence.lost)} cannot be read: what they removed, and the properties that they set, is "
            f"not known"
        )
        if taken:
            yield (
                f"{len(taken)} splits that no readable file of the log shows were taken in; whether each of them was "
                f"committed is not known"
            )
    yield "streams that write to the table may write their last batch again: its number may be lost"
    merged = [split.path for split in taken if split.is_merged_on_the_jvm]
    if merged:
        more = f" and {len(merged) - _NAMED} more" if len(merged) > _NAMED else ""
        yield (
            f"by their names, {', '.join(merged[:_NAMED])}{more} were made by merges, and splits of the JVM do not say "
            f"of which others: if those are still there, their rows are in the table twice"
        )


def _ranges(lost: Sequence[range]) -> str:
    texts = [str(each[0]) if len(each) == 1 else f"{each[0]} to {each[-1]}" for each in lost]
    is_one = len(lost) == 1 and len(lost[0]) == 1
    return f"{'version' if is_one else 'versions'} {', '.join(texts)}"
