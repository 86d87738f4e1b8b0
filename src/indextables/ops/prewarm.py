"""PREWARM fetches indexes into the local cache of every host, before searches need them.

    fetch the index, or some fields of it, of every selected split -> look which entries the cache holds at the end

A prewarm does not evict what it has put into the cache itself, nor what a search has used since it started: what has no
room is left out, and the result says how much that is.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables._results import MESSAGE, PROBLEM, TABLE_PATH, Column, Columns, Result, Status, schema_of
from indextables.config import Settings
from indextables.errors import (
    AccessDeniedError,
    IndexCacheError,
    IndexTablesError,
    InvalidSchemaError,
    TransientStorageError,
)
from indextables.ops.read import SplitRef, ordered_refs
from indextables.ops.runner import Failed, Host, HostTask, Interruption, Runner, TaskStore
from indextables.ops.search import known_mappings
from indextables.predicates import Predicate, bind
from indextables.schema import TableShape, find_column
from indextables.split.cold_search import HasRoom
from indextables.split.doc_mapping import ROW_FIELD
from indextables.split.index_cache import IndexCache, index_cache
from indextables.split.needs import EVERYTHING, Needs, column_needs, field_needs, united
from indextables.split.split import Split
from indextables.table import Snapshot

# A table is prewarmed in about so many tasks, for progress, but a task has at most so many splits.
_TASKS: Final = 256
_MAX_SPLITS_PER_TASK: Final = 16
_KEYS_PER_TASK: Final = 1024


class PrewarmRequest(msgspec.Struct, frozen=True):
    """What to fetch.

    Attributes:
        fields: The columns whose part of the index is fetched; the whole index if empty.
        where: Leave out splits that cannot contain a row for which this predicate is true.
    """

    fields: tuple[str, ...] = ()
    where: Predicate | None = None


class SplitProblem(msgspec.Struct, frozen=True):
    """A split whose index could not be fetched, and why."""

    path: str
    reason: str


class PrewarmedHost(Result, frozen=True):
    """The cache of one host after a prewarm.

    Attributes:
        table_path: The URL of the table.
        version: The version whose splits were selected.
        host: The name of the host.
        cache_path: The directory of its cache.
        fields: The columns whose part of the index was fetched; None for the whole index.
        num_splits: The selected splits.
        cached_splits: Those that are in the cache, with all that was asked for.
        warmed_splits: Those of which this prewarm has put something into the cache.
        fetched_bytes: What was fetched from the store, besides the footers.
        cached_bytes: The size in the cache of the indexes of `cached_splits`.
        left_bytes: What did not fit into the cache.
        problems: The splits that could not be read, and why.
    """

    columns: ClassVar[Columns] = (
        TABLE_PATH,
        Column(
            "status",
            pa.string(),
            "`SUCCESS`, `NO_ACTION`: all was in the cache, `PARTIAL`: splits are left out, or `FAILED`: all are",
        ),
        Column("version", pa.int64(), "the version whose splits were selected"),
        Column("host", pa.string(), "the name of the host"),
        Column("cache_path", pa.string(), "the directory of its cache"),
        Column("fields", pa.list_(pa.string()), "the columns that were fetched; null: the whole index"),
        Column("num_splits", pa.int64(), "the selected splits"),
        Column("cached_splits", pa.int64(), "those that are in the cache, with all that was asked for"),
        Column("warmed_splits", pa.int64(), "those of which this prewarm has put something into the cache"),
        Column(
            "fetched_bytes", pa.int64(), "the bytes that were fetched from the store, besides the footers"
        ),
        Column("cached_bytes", pa.int64(), "the size in the cache of the indexes of these splits"),
        Column("left_bytes", pa.int64(), "the bytes that did not fit into the cache"),
        MESSAGE,
        Column("problems", pa.list_(PROBLEM), "the splits that could not be read, and why"),
    )

    table_path: str
    version: int
    host: str
    cache_path: str
    fields: tuple[str, ...] | None
    num_splits: int
    cached_splits: int
    warmed_splits: int
    fetched_bytes: int
    cached_bytes: int
    left_bytes: int
    problems: tuple[SplitProblem, ...]

    @property
    def status(self) -> Status:
        """PARTIAL if a split did not fit or could not be read, FAILED if that is true for all."""
        if self.cached_splits < self.num_splits:
            return Status.PARTIAL if self.cached_splits else Status.FAILED
        return Status.SUCCESS if self.warmed_splits else Status.NO_ACTION

    @property
    def message(self) -> str:
        """A one-line summary."""
        text = f"{self.cached_splits} of {self.num_splits} splits are in the cache"
        if self.left_bytes:
            text += f"; {self.left_bytes} bytes did not fit: raise spark.indextables.cache.disk.maxSize, or select less"
        if self.problems:
            text += f"; {len(self.problems)} splits could not be read"
        return text


class PrewarmResult(Result, frozen=True):
    """The result of `IndexTable.prewarm`: what every host has in its cache. `to_arrow()` has one row per host.

    Attributes:
        hosts: The hosts, by name.
    """

    row: ClassVar[type[Result]] = PrewarmedHost
    columns: ClassVar[Columns] = PrewarmedHost.columns

    hosts: tuple[PrewarmedHost, ...]

    def to_arrow(self) -> pa.Table:
        """Return one row per host, the same as the SQL statement returns."""
        return pa.concat_tables(
            [schema_of(self.columns).empty_table(), *(host.to_arrow() for host in self.hosts)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict of JSON values, with a list of `hosts`."""
        return {"hosts": [host.to_dict() for host in self.hosts]}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.hosts))})"


def prewarm(snapshot: Snapshot, request: PrewarmRequest, runner: Runner) -> PrewarmResult:
    """Fetch the indexes of the selected splits into the cache of every host that runs tasks.

    An unreadable split is a problem in the result; so is a host that cannot be used, if another one can. Raises
    InvalidSchemaError for a field that has no index, InvalidPredicateError, IndexCacheError and storage errors.
    """
    fields = _checked_fields(snapshot, request.fields)
    where = None if request.where is None else bind(request.where, snapshot.schema)
    refs = ordered_refs(snapshot, snapshot.select(where).entries)
    settings = snapshot.context.settings
    size = max(1, min(_MAX_SPLITS_PER_TASK, len(refs) // _TASKS))
    started_ns = time.time_ns()
    tasks = [
        PrewarmTask(TaskStore.of(snapshot.context), snapshot.shape, settings, tuple(some), fields, started_ns)
        for some in _pieces(refs, size)
    ]
    hosts = _warmed(runner, tasks)
    keys = sorted({split.key for host in hosts.values() for split in host if split.key})
    checks = [CacheCheck(settings, tuple(some)) for some in _pieces(keys, _KEYS_PER_TASK)]
    present, errors = _present(runner, checks)
    for host, error in errors.items():
        hosts[host] = [split if split.problem else replace(split, problem=error) for split in hosts[host]]
    return PrewarmResult(
        tuple(
            _summary(snapshot, fields, host, hosts[host], present.get(host, {}), len(refs))
            for host in sorted(hosts, key=lambda host: (host.name, host.cache_path))
        )
    )


class WarmedSplit(msgspec.Struct, frozen=True):
    """What became of one split on one host. The key is empty if the split could not be read."""

    path: str
    key: str = ""
    fetched_bytes: int = 0
    bytes_before: int = 0
    cached_bytes: int = 0
    left_bytes: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PrewarmTask(HostTask[tuple[WarmedSplit, ...]]):
    """Fetches the indexes of some splits into the cache of the host that it runs on."""

    store: TaskStore
    shape: TableShape
    settings: Settings = field(repr=False)
    refs: tuple[SplitRef, ...]
    fields: tuple[str, ...] | None
    started_ns: int

    def cache(self) -> IndexCache:
        return index_cache(self.settings)

    def run(self, interruption: Interruption) -> tuple[WarmedSplit, ...]:
        """Fetch one index after the other. Raises IndexCacheError, and the errors of a store that fails as a whole."""
        cache = self.cache()
        has_room = _room_in(cache, self.started_ns)
        done = []
        for ref in self.refs:
            interruption.check()
            done.append(self._warm(ref, cache, has_room))
        return tuple(done)

    def _warm(self, ref: SplitRef, cache: IndexCache, has_room: HasRoom) -> WarmedSplit:
        try:
            split = ref.open(self.store.store, self.shape)
            bytes_before = cache.entry_size(split.index_key) or 0
            fetched_bytes, left_bytes = split.warm_index(cache, _needs(split, self.fields), has_room)
            cached_bytes = cache.entry_size(split.index_key) or 0
        except (AccessDeniedError, TransientStorageError, IndexCacheError):
            raise
        except IndexTablesError as error:
            return WarmedSplit(ref.path, problem=str(error))
        return WarmedSplit(ref.path, split.index_key, fetched_bytes, bytes_before, cached_bytes, left_bytes)


@dataclass(frozen=True, slots=True)
class CacheCheck(HostTask[dict[str, int]]):
    """Finds out which entries the cache of a host has, and their sizes."""

    settings: Settings = field(repr=False)
    keys: tuple[str, ...]

    def cache(self) -> IndexCache:
        return index_cache(self.settings)

    def run(self, interruption: Interruption) -> dict[str, int]:
        interruption.check()
        cache = self.cache()
        found = {key: cache.entry_size(key) for key in self.keys}
        return {key: size for key, size in found.items() if size is not None}


def _room_in(cache: IndexCache, since_ns: int) -> HasRoom:
    """Return a function that asks a cache for room. What has been refused once is not asked for again."""
    smallest_refused: int | None = None

    def has_room(size: int) -> bool:
        nonlocal smallest_refused
        if smallest_refused is not None and size >= smallest_refused:
            return False
        if cache.has_room(size, since_ns):
            return True
        smallest_refused = size
        return False

    return has_room


def _needs(split: Split, fields: tuple[str, ...] | None) -> Needs:
    """Return what any search on these fields reads of the index. Fields that this split does not index need nothing."""
    if fields is None:
        return EVERYTHING
    found = [mapping for name in fields if (mapping := split.mapping.find(name)) and mapping.is_indexed]
    names = [mapping.index_name for mapping in found]
    return united(
        [
            column_needs(ROW_FIELD),
            *(field_needs(name, with_positions=True) | column_needs(name) for name in names),
        ]
    )


def _checked_fields(snapshot: Snapshot, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns in the table's spelling, None for all. Raises InvalidSchemaError."""
    if not names:
        return None
    mappings = known_mappings(snapshot)
    columns: dict[str, None] = {}
    for name in names:
        column = find_column(snapshot.schema, name)
        if column is None:
            raise InvalidSchemaError(
                f"{snapshot.context.url}: there is no column {name!r} to prewarm; {_remedy(snapshot.schema, name)}"
            )
        if column.name in snapshot.partition_columns:
            raise InvalidSchemaError(
                f"{snapshot.context.url}: {column.name!r} is a partition column, whose values are in the log and not "
                f"in an index; leave it out"
            )
        found = [mapping.find(column.name) for mapping in mappings]
        if not any(each is not None and each.is_indexed for each in found):
            raise InvalidSchemaError(
                f"{snapshot.context.url}: column {column.name!r} is not indexed, so there is nothing to prewarm; leave "
                f"it out"
            )
        columns[column.name] = None
    return tuple(columns)


def _remedy(schema: pa.Schema, name: str) -> str:
    near = get_close_matches(name, schema.names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"


def _pieces(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _warmed(runner: Runner, tasks: Sequence[PrewarmTask]) -> dict[Host, list[WarmedSplit]]:
    """Run the tasks on every host. Raises the first error of a task if no task of any host succeeds."""
    hosts: dict[Host, list[WarmedSplit]] = {}
    first_error: Exception | None = None
    has_succeeded = False
    with closing(runner.run_on_hosts("prewarming", tasks)) as outcomes:
        for host, outcome in outcomes:
            splits = hosts.setdefault(host, [])
            if isinstance(outcome, Failed):
                first_error = first_error or outcome.error
                problem = str(outcome.error)
                splits += [WarmedSplit(ref.path, problem=problem) for ref in tasks[outcome.index].refs]
            else:
                has_succeeded = True
                splits += outcome.result
    if first_error is not None and not has_succeeded:
        raise first_error
    return hosts


def _present(
    runner: Runner, checks: Sequence[CacheCheck]
) -> tuple[dict[Host, dict[str, int]], dict[Host, str]]:
    """Return the entries that each host has, with their sizes, and the errors of hosts that cannot say."""
    present: dict[Host, dict[str, int]] = {}
    errors: dict[Host, str] = {}
    with closing(runner.run_on_hosts("looking into the cache", checks)) as outcomes:
        for host, outcome in outcomes:
            if isinstance(outcome, Failed):
                errors[host] = str(outcome.error)
            else:
                present.setdefault(host, {}).update(outcome.result)
    return present, errors


def _summary(
    snapshot: Snapshot,
    fields: tuple[str, ...] | None,
    host: Host,
    splits: Sequence[WarmedSplit],
    present: dict[str, int],
    num_splits: int,
) -> PrewarmedHost:
    """Summarize what became of the splits on a host. An entry that was evicted meanwhile did not fit."""
    readable = [split for split in splits if split.problem is None]
    cached = [split for split in readable if split.key in present and not split.left_bytes]
    left = [split for split in readable if split.key not in present or split.left_bytes]
    return PrewarmedHost(
        table_path=snapshot.context.url,
        version=snapshot.version,
        host=host.name,
        cache_path=host.cache_path,
        fields=fields,
        num_splits=num_splits,
        cached_splits=len(cached),
        warmed_splits=sum(split.cached_bytes > split.bytes_before for split in splits),
        fetched_bytes=sum(split.fetched_bytes for split in splits),
        cached_bytes=sum(present[split.key] for split in cached),
        left_bytes=sum(split.left_bytes or split.cached_bytes for split in left),
        problems=tuple(
            SplitProblem(split.path, split.problem) for split in splits if split.problem is not None
        ),
    )
