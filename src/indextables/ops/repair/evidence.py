"""Reads every file of a damaged log, and establishes what the log still proves. Writes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.errors import InvalidSchemaError, LogCorruptedError
from indextables.log.actions import Metadata
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import VersionSummary
from indextables.log.entries import empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, JsonCheckpointPart, parse_log_path
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_entries, replay_header
from indextables.log.segment import Base, BaseFormat, LogListing, build_listing, read_hint
from indextables.ops.repair.damaged_files import (
    UNREADABLE_ERRORS,
    DamagedBase,
    VersionRun,
    manifest_entries,
    paths_of,
    read_base_paths,
    read_runs,
    read_whole_base,
    salvage_base,
)
from indextables.ops.repair.report import Problem
from indextables.storage import ObjectMeta
from indextables.table import TableContext
from indextables.table.field_ids import field_ids_of

REPAIR_OPERATION: Final = "REPAIR"


class LogEvidence(msgspec.Struct, frozen=True):
    """What the files of a log establish.

    `proven` is the newest version that is fully readable, or None. `later` holds the runs beyond it, by version, and
    `lost` the ranges of versions beyond it that are not fully readable. `newest_version` is the highest version that
    any file mentions, or -1.

    `header` is the header after replaying everything that is readable. `settled_paths` are the paths that the log knew
    up to the proven version: one that is not live there was removed. `descriptions` are entries from any file of the
    log, the newest last.
    """

    metas: tuple[ObjectMeta, ...] = ()
    newest_version: int = -1
    proven: Checkpoint | None = None
    later: tuple[VersionRun, ...] = ()
    lost: tuple[range, ...] = ()
    header: LogHeader = EMPTY_HEADER
    settled_paths: pa.Array = msgspec.field(default_factory=lambda: pa.array([], pa.string()))
    descriptions: tuple[pa.Table, ...] = ()
    problems: tuple[Problem, ...] = ()
    has_unfinished_repair: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the newest version is proven: then no file outside of the log can belong to the table."""
        return self.proven is not None and not self.lost

    @property
    def proven_version(self) -> int | None:
        return None if self.proven is None else self.proven.header.version


def read_evidence(context: TableContext) -> LogEvidence:
    """Read every file of the log. Damage never raises; StorageError means that the store failed."""
    metas = tuple({meta.key: meta for meta in context.store.list(LOG_PREFIX)}.values())
    return _EvidenceReader(context, metas, build_listing(metas)).evidence()


class _EvidenceReader(msgspec.Struct):
    context: TableContext
    metas: tuple[ObjectMeta, ...]
    listing: LogListing
    problems: list[Problem] = msgspec.field(default_factory=list)
    damaged_bases: list[DamagedBase] = msgspec.field(default_factory=list)
    settled: list[pa.ChunkedArray] = msgspec.field(default_factory=list)
    headers: list[LogHeader] = msgspec.field(default_factory=list)

    def evidence(self) -> LogEvidence:
        start, newer = self._start()
        older = self._runs(-1, start.header.version)
        chain, later = _chain(newer, start.header.version)
        proven = _replay(start, chain)
        proven_version = proven.header.version
        later = self._with_damaged_bases(later, proven_version)
        newest = self._newest_version()
        lost = tuple(_missing(later, proven_version + 1, newest))
        is_complete = proven_version >= 0 and not lost
        runs = [*older, *newer]
        self.problems += [run.problem for run in runs if run.problem is not None]
        self.problems += self._hint_problems()
        return LogEvidence(
            metas=self.metas,
            newest_version=newest,
            proven=proven if proven_version >= 0 else None,
            later=tuple(later),
            lost=lost,
            header=self._header(proven.header, later, runs),
            settled_paths=_no_paths() if is_complete else self._settled_paths([*older, *chain], proven),
            descriptions=() if is_complete else tuple(self._descriptions(runs)),
            problems=tuple(self.problems),
            has_unfinished_repair=self._has_unfinished_repair(runs),
        )

    def _start(self) -> tuple[Checkpoint, list[VersionRun]]:
        """Where the replay starts (the newest whole checkpoint, or an empty table), and the runs beyond it."""
        start = self._newest_whole_base()
        newer = self._runs(start.header.version, metadata=start.header.metadata)
        repaired = [
            summary.version
            for run in newer
            if run.problem is None
            for summary in run.tail.versions
            if _is_repair(summary)
        ]
        if not repaired:
            return start, newer
        # A version written by REPAIR holds the whole table, so it serves as a checkpoint.
        own = self._runs(repaired[-1] - 1, repaired[-1])
        start = _replay(Checkpoint(EMPTY_HEADER, empty_entries()), own)
        return start, self._runs(repaired[-1], metadata=start.header.metadata)

    def _runs(
        self, after_version: int, last: int | None = None, metadata: Metadata | None = None
    ) -> list[VersionRun]:
        files = [
            file
            for file in self.listing.version_files
            if file.version > after_version and (last is None or file.version <= last)
        ]
        # The remains of a checkpoint are replayed right after the version of that checkpoint.
        ends = {damaged.run.last for damaged in self.damaged_bases}
        return read_runs(self.context, files, ends, metadata)

    def _newest_whole_base(self) -> Checkpoint:
        found: Checkpoint | None = None
        for base in self.listing.bases_newest_first():
            try:
                if found is None:
                    found = read_whole_base(self.context, base)
                else:
                    header, paths = read_base_paths(self.context, base)
                    self.settled.append(paths)
                    self.headers.append(header)
            except UNREADABLE_ERRORS as error:
                self.problems.append(Problem(base.meta.key, str(error)))
                if found is None:
                    self.damaged_bases.append(salvage_base(self.context, base, self.metas, error))
        start = found or Checkpoint(EMPTY_HEADER, empty_entries())
        list_missing = LogCorruptedError("the list of the parts of this checkpoint is missing")
        for base in self._parts_without_list(start.header.version):
            self.damaged_bases.append(salvage_base(self.context, base, self.metas, list_missing))
        return start

    def _with_damaged_bases(self, later: list[VersionRun], proven_version: int) -> list[VersionRun]:
        """The later runs and the remains of checkpoints, each checkpoint after the run of its version."""
        remains = [damaged.run for damaged in self.damaged_bases if damaged.run.first > proven_version]
        # The sort is stable: at the same version, remains stay behind the run.
        return sorted([*later, *remains], key=lambda run: run.last)

    def _parts_without_list(self, after_version: int) -> Iterator[Base]:
        listed = {
            base.version for base in self.listing.bases_newest_first() if base.format is BaseFormat.JSON
        }
        parts = {
            path.version: meta
            for meta in self.metas
            if isinstance(path := parse_log_path(meta.key), JsonCheckpointPart)
        }
        for version, meta in sorted(parts.items()):
            if version > after_version and version not in listed:
                yield Base(version, BaseFormat.JSON, meta)

    def _newest_version(self) -> int:
        mentioned = [getattr(parse_log_path(meta.key), "version", -1) for meta in self.metas]
        hint = read_hint(self.context.store)
        if hint is not None and hint.proves_version_after(-1):
            mentioned.append(hint.version)
        return max(mentioned, default=-1)

    def _hint_problems(self) -> Iterator[Problem]:
        if not any(meta.key == LAST_CHECKPOINT_KEY for meta in self.metas):
            return
        hint = read_hint(self.context.store)
        if hint is None:
            yield Problem(LAST_CHECKPOINT_KEY, "the checkpoint hint cannot be read")
        elif hint.version not in self.listing.bases:
            yield Problem(
                LAST_CHECKPOINT_KEY,
                f"points at a checkpoint of version {hint.version}, which does not exist",
            )

    def _header(
        self, proven: LogHeader, later: Sequence[VersionRun], runs: Sequence[VersionRun]
    ) -> LogHeader:
        """The header after every readable run, with the newest metadata and protocol of any file."""
        header = proven
        for run in later:
            header = replay_header(header, run.tail.versions, removed_paths(run.tail))
        damaged = [base.header for base in self.damaged_bases if base.header is not None]
        newest = max([header, *damaged], key=lambda candidate: candidate.version)
        metadata, protocol = self._usable(newest.metadata), newest.protocol
        registry = dict(newest.doc_mappings)
        for other in [header, *damaged, *self.headers]:
            metadata, protocol = metadata or self._usable(other.metadata), protocol or other.protocol
            registry = {**other.doc_mappings, **registry}
        for summary in reversed([summary for run in runs for summary in run.tail.versions]):
            metadata = metadata or self._usable(summary.actions.metadata)
            protocol = protocol or summary.actions.protocol
        return replace(newest, metadata=metadata, protocol=protocol, doc_mappings=registry)

    def _usable(self, metadata: Metadata | None) -> Metadata | None:
        """The metadata if its schema and field ids parse: without checksums, a damaged file can still decode."""
        try:
            if metadata is not None:
                field_ids_of(metadata)
        except InvalidSchemaError as error:
            problem = Problem(LOG_PREFIX, f"the schema in a metaData action cannot be read: {error}")
            if problem not in self.problems:
                self.problems.append(problem)
            return None
        return metadata

    def _has_unfinished_repair(self, runs: Sequence[VersionRun]) -> bool:
        """Whether an earlier repair stopped before it deleted the log that it replaced."""
        repaired = [summary.version for run in runs for summary in run.tail.versions if _is_repair(summary)]
        oldest = min([*self.listing.versions, *self.listing.bases], default=0)
        return bool(repaired) and oldest < repaired[-1]

    def _settled_paths(self, runs: Sequence[VersionRun], proven: Checkpoint) -> pa.Array:
        """The paths known up to the proven version. Without one, none: a lost version may have removed any path."""
        if proven.header.version < 0:
            return _no_paths()
        chunks = [*_chunks(self.settled), paths_of(runs), *proven.entries["path"].chunks]
        return pc.unique(pa.chunked_array(chunks, pa.string()))

    def _descriptions(self, runs: Sequence[VersionRun]) -> Iterator[pa.Table]:
        yield from manifest_entries(self.context, self.metas)
        for damaged in self.damaged_bases:
            yield damaged.run.tail.adds.drop_columns(["sequence"])
        for run in runs:
            yield run.tail.adds.drop_columns(["sequence"])


def _chain(runs: Sequence[VersionRun], start_version: int) -> tuple[list[VersionRun], list[VersionRun]]:
    """The runs that follow a version without a gap or damage, and the runs beyond those."""
    reached = start_version
    for index, run in enumerate(runs):
        if run.problem is not None or run.first != reached + 1:
            return list(runs[:index]), list(runs[index:])
        reached = run.last
    return list(runs), []


def _replay(start: Checkpoint, runs: Iterable[VersionRun]) -> Checkpoint:
    header, entries = start.header, start.entries
    for run in runs:
        header = replay_header(header, run.tail.versions, removed_paths(run.tail))
        entries = replay_entries(entries, run.tail)
    return Checkpoint(header, entries)


def _missing(later: Sequence[VersionRun], first: int, newest: int) -> Iterator[range]:
    """The versions from `first` to `newest` that no undamaged run covers."""
    for run in later:
        if run.problem is None:
            if run.first > first:
                yield range(first, run.first)
            first = max(first, run.last + 1)
    if first <= newest:
        yield range(first, newest + 1)


def _is_repair(summary: VersionSummary) -> bool:
    info = summary.actions.commit_info
    return info is not None and info.operation == REPAIR_OPERATION and summary.actions.metadata is not None


def _chunks(arrays: Iterable[pa.ChunkedArray]) -> list[pa.Array]:
    return [chunk for array in arrays for chunk in array.chunks]


def _no_paths() -> pa.Array:
    return pa.array([], pa.string())
