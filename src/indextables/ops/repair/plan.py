"""Decides which splits the new log of a repair refers to. Pure.

A split that no readable log file mentions can belong to the table only if part of the log is lost. A merged split
holds the rows of its sources and names them: the plan takes either the merged split or its sources, never both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.actions import AddAction, encode_actions
from indextables.log.decode import LogFile, decode_tail
from indextables.log.deletion_vectors import live_counts
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.replay import replay_entries
from indextables.ops.references import among, first_paths
from indextables.ops.repair.damaged_files import paths_of
from indextables.ops.repair.evidence import LogEvidence
from indextables.ops.repair.report import Problem, SplitCounts, problems
from indextables.ops.repair.splits import FoundSplit, SplitSurvey
from indextables.state.source import newest_per_path

# Writers' clocks differ, and a split is written some time before its commit.
_SLACK_MS: Final = 3_600_000

_MISSING: Final = "the log refers to it, but the file does not exist"
_TOO_OLD: Final = "written before the lost versions: it was removed, or never committed"
_TOO_NEW: Final = "written after the lost versions, and no later version adds it: never committed"
_UNDONE: Final = "the output of a merge that never committed: another commit removed one of its sources"
_REDUNDANT: Final = "the output of a merge whose sources are live in the log: its rows are in them"


class RepairPlan(msgspec.Struct, frozen=True):
    """The live files of the new log at `version`, and the decisions on all other files.

    `removed` are the entries that are live in the old log but not in the new one. `taken` are the splits that the plan
    includes although no readable log file adds them.
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
        """The number of rows, or None if one of the files does not record its own."""
        counts = live_counts(self.entries)
        return None if counts.null_count else pc.sum(counts).as_py() or 0

    @property
    def has_vectors(self) -> bool:
        """Whether rows of splits are deleted."""
        vectors = self.entries["deletionVector"]
        return bool(vectors.null_count < len(vectors))

    @property
    def total_bytes(self) -> int:
        return pc.sum(self.entries["size"]).as_py() or 0


def log_entries(evidence: LogEvidence) -> pa.Table:
    """The files that are live according to every readable part of the log."""
    entries = empty_entries() if evidence.proven is None else evidence.proven.entries
    for run in evidence.later:
        entries = replay_entries(entries, run.tail)
    return entries


def make_plan(evidence: LogEvidence, live: pa.Table, stored: pa.Table, survey: SplitSurvey) -> RepairPlan:
    """Decide which splits the new log refers to.

    `live` are the entries of `log_entries`, and `stored` the split files that exist. `survey` covers the live files, or
    all stored files if the log is incomplete.
    """
    version = evidence.newest_version + 1
    is_stored = among(live["path"], stored["path"].combine_chunks())
    missing = live.filter(pc.invert(is_stored))["path"].to_pylist()
    unreadable = pa.array(list(survey.unreadable), pa.string())
    present = live.filter(is_stored)
    readable = present.filter(pc.invert(among(present["path"], unreadable)))
    selection = Selection() if evidence.is_complete else _select_from(evidence, readable, survey)
    superseded = dict(selection.superseded or {})
    kept = readable.filter(pc.invert(among(readable["path"], pa.array(list(superseded), pa.string()))))
    known = _corrected(kept, survey.found, version)
    entries = pa.concat_tables(
        [known, _entries_of_taken(selection.taken, evidence.descriptions, version)], promote_options="default"
    )
    proven = _proven_paths(evidence)
    from_proven = pc.sum(among(kept["path"], proven)).as_py() or 0
    return RepairPlan(
        version=version,
        entries=entries,
        removed=_not_kept(evidence, entries),
        taken=selection.taken,
        counts=SplitCounts(from_proven, kept.num_rows - from_proven, len(selection.taken)),
        missing=problems(missing, _MISSING),
        unreadable=tuple(_unreadable(evidence, survey, live)),
        left_out=(
            *selection.left_out,
            *(Problem(path, reason) for path, reason in sorted(superseded.items())),
        ),
        undecided=tuple(_undecided(evidence, selection.taken)),
    )


class LostWindow(msgspec.Struct, frozen=True):
    """The time in which a split must have been written for a lost version to commit it; None is unbounded."""

    start_ms: int | None
    end_ms: int | None

    def rejection(self, split: FoundSplit) -> str | None:
        """Why no lost version can have committed a split, or None.

        Only our own splits record when they were written. Other files have the store's time, which becomes newer when
        the table is copied, so it never makes them too new.
        """
        written_ms = split.add.modification_time
        if self.start_ms is not None and written_ms < self.start_ms:
            return _TOO_OLD
        if split.own is not None and self.end_ms is not None and written_ms > self.end_ms:
            return _TOO_NEW
        return None


class KnownPaths(msgspec.Struct, frozen=True):
    """The paths that the log shows as live and as removed.

    `removed_by_damaged` are removed by a damaged version, which may have added a replacement in an unreadable line.
    """

    live: frozenset[str]
    removed: frozenset[str]
    removed_by_damaged: frozenset[str] = frozenset()


class Selection(msgspec.Struct, frozen=True):
    """The splits to take, those to leave out, and live splits (path to reason) that a taken split supersedes."""

    taken: tuple[FoundSplit, ...] = ()
    left_out: tuple[Problem, ...] = ()
    superseded: Mapping[str, str] | None = None


def lost_window(evidence: LogEvidence) -> LostWindow:
    """The time from the proven version to the first version after all lost ones, with slack."""
    start_ms = None if evidence.proven is None else evidence.proven.header.timestamp_ms - _SLACK_MS
    last_lost = evidence.lost[-1][-1] if evidence.lost else evidence.newest_version
    after = [
        summary.timestamp_ms
        for run in evidence.later
        if run.problem is None
        for summary in run.tail.versions
        if summary.version > last_lost
    ]
    return LostWindow(start_ms, min(after) + _SLACK_MS if after and evidence.lost else None)


def select_splits(found: Mapping[str, FoundSplit], known: KnownPaths, window: LostWindow) -> Selection:
    """Decide on every found split that the log shows neither as live nor as removed."""
    left_out: dict[str, str] = {}
    candidates: dict[str, FoundSplit] = {}
    for path, split in found.items():
        if path in known.live or path in known.removed:
            continue
        reason = _rejection(split, known, window)
        if reason is None:
            candidates[path] = split
        else:
            left_out[path] = reason
    committed = (split for path, split in found.items() if path not in left_out)
    superseded = _superseded(committed)
    left_out |= {path: superseded[path] for path in candidates.keys() & superseded.keys()}
    return Selection(
        tuple(split for path, split in candidates.items() if path not in superseded),
        tuple(Problem(path, reason) for path, reason in sorted(left_out.items())),
        {path: superseded[path] for path in known.live & superseded.keys()},
    )


def _select_from(evidence: LogEvidence, readable: pa.Table, survey: SplitSurvey) -> Selection:
    live = frozenset(readable["path"].to_pylist())
    settled = {*evidence.settled_paths.to_pylist(), *paths_of(evidence.later).to_pylist()}
    damaged = [run.tail.removes["path"] for run in evidence.later if run.problem is not None]
    known = KnownPaths(
        live,
        frozenset(settled - live),
        frozenset(path for removed in damaged for path in removed.to_pylist()),
    )
    return select_splits(survey.found, known, lost_window(evidence))


def _corrected(entries: pa.Table, found: Mapping[str, FoundSplit], version: int) -> pa.Table:
    """The entries of the log. An entry that contradicts its file is replaced by one made from the file."""
    from_files = pa.table(
        {
            "path": pa.array(list(found), pa.string()),
            "size": pa.array([split.add.size for split in found.values()], pa.int64()),
            "numRecords": pa.array([split.add.num_records for split in found.values()], pa.int64()),
        }
    )
    rows = pc.index_in(entries["path"], value_set=from_files["path"].combine_chunks())
    is_wrong = pa.array(np.zeros(entries.num_rows, dtype=np.bool_))
    for name in ("size", "numRecords"):
        differs = pc.not_equal(entries[name], from_files[name].combine_chunks().take(rows))
        is_wrong = pc.or_(is_wrong, pc.fill_null(differs, False))
    wrong = entries.filter(is_wrong)["path"].to_pylist()
    if not wrong:
        return entries
    right = _entries_of([found[path].add for path in wrong], version)
    # The file does not know which of its rows are deleted.
    place = pc.index_in(right["path"], value_set=entries["path"].combine_chunks())
    index = right.schema.get_field_index("deletionVector")
    vectors = entries["deletionVector"].combine_chunks().take(place)
    right = right.set_column(index, right.schema.field(index), vectors)
    return pa.concat_tables([entries.filter(pc.invert(is_wrong)), right], promote_options="default")


def _entries_of_taken(
    splits: Sequence[FoundSplit], descriptions: Sequence[pa.Table], version: int
) -> pa.Table:
    """Entries of splits that the log does not show as live.

    Any file of the log may describe a split of the JVM in more detail than the split itself does.
    """
    jvm_paths = [split.path for split in splits if split.own is None]
    described = _newest_descriptions(jvm_paths, descriptions) if jvm_paths else empty_entries()
    described_paths = frozenset(described["path"].to_pylist())
    undescribed = [split.add for split in splits if split.path not in described_paths]
    found = {split.path: split for split in splits if split.path in described_paths}
    return pa.concat_tables(
        [_corrected(described, found, version), _entries_of(undescribed, version)], promote_options="default"
    )


def _newest_descriptions(paths: Sequence[str], descriptions: Sequence[pa.Table]) -> pa.Table:
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
    """The entries that are live for a reader of the old log, but not in the new log."""
    proven = empty_entries() if evidence.proven is None else evidence.proven.entries
    return proven.filter(pc.invert(among(proven["path"], entries["path"].combine_chunks())))


def _unreadable(evidence: LogEvidence, survey: SplitSurvey, live: pa.Table) -> Iterable[Problem]:
    """Unreadable files that are live in the log or, if the log is incomplete, may have been live."""
    if not survey.unreadable:
        return ()
    live_paths = frozenset(live["path"].to_pylist())
    known = frozenset(evidence.settled_paths.to_pylist()) | frozenset(paths_of(evidence.later).to_pylist())
    return (
        problem
        for path, problem in survey.unreadable.items()
        if path in live_paths or (not evidence.is_complete and path not in known)
    )


def _undecided(evidence: LogEvidence, taken: Sequence[FoundSplit]) -> Iterable[str]:
    if evidence.is_complete:
        return
    if evidence.newest_version < 0:
        yield (
            "no version of the log is left: rows that were overwritten, dropped or deleted but not yet purged are "
            "back, and so are splits that were never committed"
        )
        yield "the used version numbers are unknown: restart the streams that read the table"
    else:
        yield (
            f"{_ranges(evidence.lost)} cannot be read: the files that they removed, the rows that they deleted and the "
            f"properties that they set are unknown"
        )
        if taken:
            yield (
                f"{len(taken)} splits that no readable log file mentions were included; some of them may never have "
                f"been committed"
            )
    yield "streams that write to the table may write their last batch again: its number may be lost"
    merged = [split.path for split in taken if split.is_merged_on_the_jvm]
    if merged:
        yield (
            f"judging by their names, merges wrote {first_paths(merged)}, and splits of the JVM do not name their "
            f"sources: if the sources still exist, their rows are in the table twice"
        )


def _ranges(lost: Sequence[range]) -> str:
    texts = [
        str(versions[0]) if len(versions) == 1 else f"{versions[0]} to {versions[-1]}" for versions in lost
    ]
    is_one = len(lost) == 1 and len(lost[0]) == 1
    return f"{'version' if is_one else 'versions'} {', '.join(texts)}"


def _rejection(split: FoundSplit, known: KnownPaths, window: LostWindow) -> str | None:
    sources = split.merged_from
    if sources and known.live.issuperset(sources):
        return _REDUNDANT
    if sources and not (known.removed - known.removed_by_damaged).isdisjoint(sources):
        return _UNDONE
    return window.rejection(split)


def _superseded(splits: Iterable[FoundSplit]) -> dict[str, str]:
    return {
        source: f"its rows are in {split.path}, the output of a merge"
        for split in splits
        for source in split.merged_from
    }
