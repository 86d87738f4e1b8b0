"""What a damaged log still proves, and what its other files bear witness of. Reads everything, writes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.errors import InvalidSchemaError, LogCorruptedError, ObjectNotFoundError
from indextables.log.actions import Metadata
from indextables.log.checkpoint import Checkpoint, read_hint
from indextables.log.decode import VersionSummary
from indextables.log.entries import empty_entries
from indextables.log.paths import LAST_CHECKPOINT_KEY, LOG_PREFIX, JsonCheckpointPart, parse_log_path
from indextables.log.replay import EMPTY_HEADER, LogHeader, removed_paths, replay_entries, replay_header
from indextables.log.segment import Base, BaseFormat, LogListing, build_listing
from indextables.ops.repair.damaged_files import (
    BrokenBase,
    Run,
    loose_entries,
    paths_of,
    read_base_paths,
    read_runs,
    read_whole_base,
    salvage_base,
)
from indextables.ops.repair.report import Problem
from indextables.schema import from_spark_json
from indextables.storage import ObjectMeta
from indextables.table import TableContext

REPAIR_OPERATION: Final = "REPAIR"

_UNREADABLE = (LogCorruptedError, ObjectNotFoundError)


class LogEvidence(msgspec.Struct, frozen=True):
    """Everything that the files of a log tell.

    `proven` is the newest version that can be read to the last entry, None if there is none. `later` is what was read
    beyond it, in the order of versions; `lost` are the versions beyond it of which not everything could be read, as
    ranges. `newest_version` is the highest one that any file bears witness of, -1 if none does.

    `header` is the table at the end of all that. `settled_paths` are those that the log knew up to the proven version:
    one of them that is not live there was removed. `descriptions` are entries of any file of the log, the newest last.
    """

    metas: tuple[ObjectMeta, ...] = ()
    newest_version: int = -1
    proven: Checkpoint | None = None
    later: tuple[Run, ...] = ()
    lost: tuple[range, ...] = ()
    header: LogHeader = EMPTY_HEADER
    settled_paths: pa.Array = msgspec.field(default_factory=lambda: pa.array([], pa.string()))
    descriptions: tuple[pa.Table, ...] = ()
    problems: tuple[Problem, ...] = ()
    has_unfinished_repair: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the newest version is proven, so that no other file can belong to the table."""
        return self.proven is not None and not self.lost

    @property
    def proven_version(self) -> int | None:
        """The version of `proven`."""
        return None if self.proven is None else self.proven.header.version


def read_evidence(context: TableContext) -> LogEvidence:
    """Read every file of the log. Damage is never an error here; raises StorageError if the store fails."""
    metas = tuple({meta.key: meta for meta in context.store.list(LOG_PREFIX)}.values())
    return _Reading(context, metas, build_listing(metas)).evidence()


class _Reading(msgspec.Struct):
    context: TableContext
    metas: tuple[ObjectMeta, ...]
    listing: LogListing
    problems: list[Problem] = msgspec.field(default_factory=list)
    broken: list[BrokenBase] = msgspec.field(default_factory=list)
    settled: list[pa.ChunkedArray] = msgspec.field(default_factory=list)
    headers: list[LogHeader] = msgspec.field(default_factory=list)

    def evidence(self) -> LogEvidence:
        start, newer = self._start()
        older = self._runs(-1, start.header.version)
        chain, later = _chain(newer, start.header.version)
        proven = _replayed(start, chain)
        proven_version = proven.header.version
        later = self._with_broken_bases(later, proven_version)
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

    def _start(self) -> tuple[Checkpoint, list[Run]]:
        """Where a replay starts: the newest checkpoint that is whole, or nothing; and the versions beyond it."""
        start = self._newest_whole_base()
        newer = self._runs(start.header.version)
        repaired = [
            summary.version
            for run in newer
            if run.problem is None
            for summary in run.tail.versions
            if _is_repair(summary)
        ]
        if not repaired:
            return start, newer
        # A version that a repair wrote holds the whole table: it is as good as a checkpoint.
        own = self._runs(repaired[-1] - 1, repaired[-1])
        return _replayed(Checkpoint(EMPTY_HEADER, empty_entries()), own), self._runs(repaired[-1])

    def _runs(self, after_version: int, last: int | None = None) -> list[Run]:
        files = [
            file
            for file in self.listing.version_files
            if file.version > after_version and (last is None or file.version <= last)
        ]
        # What is left of a checkpoint comes right after the version that it is of.
        ends = {broken.run.last for broken in self.broken}
        return read_runs(self.context, files, ends)

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
            except _UNREADABLE as error:
                self.problems.append(Problem(base.meta.key, str(error)))
                if found is None:
                    self.broken.append(salvage_base(self.context, base, self.metas, error))
        start = found or Checkpoint(EMPTY_HEADER, empty_entries())
        gone = LogCorruptedError("the list of its parts is gone")
        for base in self._parts_without_list(start.header.version):
            self.broken.append(salvage_base(self.context, base, self.metas, gone))
        return start

    def _with_broken_bases(self, later: list[Run], proven_version: int) -> list[Run]:
        """What is left of checkpoints beyond the proven version, each after the version that it is of."""
        pieces = [broken.run for broken in self.broken if broken.run.first > proven_version]
        # Sorting keeps the order of those that end at the same version.
        return sorted([*later, *pieces], key=lambda run: run.last)

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
        witnesses = [getattr(parse_log_path(meta.key), "version", -1) for meta in self.metas]
        hint = read_hint(self.context.store)
        if hint is not None and hint.proves_version_after(-1):
            witnesses.append(hint.version)
        return max(witnesses, default=-1)

    def _hint_problems(self) -> Iterator[Problem]:
        if not any(meta.key == LAST_CHECKPOINT_KEY for meta in self.metas):
            return
        hint = read_hint(self.context.store)
        if hint is None:
            yield Problem(LAST_CHECKPOINT_KEY, "the hint at the newest checkpoint cannot be read")
        elif hint.version not in self.listing.bases:
            yield Problem(
                LAST_CHECKPOINT_KEY, f"points at a checkpoint of version {hint.version}, which is not there"
            )

    def _header(self, proven: LogHeader, later: Sequence[Run], runs: Sequence[Run]) -> LogHeader:
        """The table at the end of everything, with the newest metadata and protocol that any file has."""
        header = proven
        for run in later:
            header = replay_header(header, run.tail.versions, removed_paths(run.tail))
        broken = [each.header for each in self.broken if each.header is not None]
        newest = max([header, *broken], key=lambda each: each.version)
        metadata, protocol = self._usable(newest.metadata), newest.protocol
        registry = dict(newest.doc_mappings)
        for other in [header, *broken, *self.headers]:
            metadata, protocol = metadata or self._usable(other.metadata), protocol or other.protocol
            registry = {**other.doc_mappings, **registry}
        for summary in reversed([summary for run in runs for summary in run.tail.versions]):
            metadata = metadata or self._usable(summary.actions.metadata)
            protocol = protocol or summary.actions.protocol
        return replace(newest, metadata=metadata, protocol=protocol, doc_mappings=registry)

    def _usable(self, metadata: Metadata | None) -> Metadata | None:
        """Metadata whose schema can be read: a file without checksums may be damaged and look whole."""
        try:
            if metadata is not None:
                from_spark_json(metadata.schema_string)
        except InvalidSchemaError as error:
            problem = Problem(LOG_PREFIX, f"the schema in a metaData action cannot be read: {error}")
            self.problems += [] if problem in self.problems else [problem]
            return None
        return metadata

    def _has_unfinished_repair(self, runs: Sequence[Run]) -> bool:
        """Whether a repair was interrupted before it had removed the log that it replaced."""
        repaired = [summary.version for run in runs for summary in run.tail.versions if _is_repair(summary)]
        oldest = min([*self.listing.versions, *self.listing.bases], default=0)
        return bool(repaired) and oldest < repaired[-1]

    def _settled_paths(self, runs: Sequence[Run], proven: Checkpoint) -> pa.Array:
        """Without a proven version nothing is settled: a path may have been removed by what is lost."""
        if proven.header.version < 0:
            return _no_paths()
        chunks = [*_chunks(self.settled), paths_of(runs), *proven.entries["path"].chunks]
        return pc.unique(pa.chunked_array(chunks, pa.string()))

    def _descriptions(self, runs: Sequence[Run]) -> Iterator[pa.Table]:
        yield from loose_entries(self.context, self.metas)
        for broken in self.broken:
            yield broken.run.tail.adds.drop_columns(["sequence"])
        for run in runs:
            yield run.tail.adds.drop_columns(["sequence"])


def _chain(runs: Sequence[Run], start_version: int) -> tuple[list[Run], list[Run]]:
    """The runs that follow a version without a gap or damage, and those beyond them."""
    reached = start_version
    for index, run in enumerate(runs):
        if run.problem is not None or run.first != reached + 1:
            return list(runs[:index]), list(runs[index:])
        reached = run.last
    return list(runs), []


def _replayed(start: Checkpoint, runs: Iterable[Run]) -> Checkpoint:
    header, entries = start.header, start.entries
    for run in runs:
        header = replay_header(header, run.tail.versions, removed_paths(run.tail))
        entries = replay_entries(entries, run.tail)
    return Checkpoint(header, entries)


def _missing(later: Sequence[Run], first: int, newest: int) -> Iterator[range]:
    """The versions from `first` to `newest` that no whole run covers."""
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
