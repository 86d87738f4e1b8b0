"""The statements about this process and machine: caches, background merges, and the environment."""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from typing import ClassVar, Final, TypeVar

import pyarrow as pa

from indextables._caching import clear_process_caches
from indextables._results import MESSAGE, MOMENT, Column, Columns, Result, Status, schema_of
from indextables._version import __version__
from indextables.config import Settings, list_families
from indextables.config.settings import is_ours
from indextables.ops.merge import merge_jobs
from indextables.ops.runner import Failed, Host, HostTask, Interruption, LocalRunner
from indextables.split.index_cache import IndexCache, index_cache
from indextables.statements import nodes
from indextables.statements.caller import Caller
from indextables.storage.redaction import REDACTED
from indextables.table.context import process_cache

T = TypeVar("T")

ENVIRONMENT_COLUMNS: Final = (
    Column(
        "kind", pa.string(), "`runtime`, `library`, `setting`, `storage option` or `environment variable`"
    ),
    Column("name", pa.string(), "the name"),
    Column("value", pa.string(), "the value; `***` for every value that may be a credential"),
    Column("source", pa.string(), "the source of a setting: `option`, `session` or `default`"),
)


_HOST: Final = Column("host", pa.string(), "the name of the host")


class InvalidateResult(Result, frozen=True):
    """What INVALIDATE TRANSACTION LOG CACHE removed. `table_path` is None for all tables."""

    columns: ClassVar[Columns] = (
        Column("table_path", pa.string(), "the URL of the table; null: all tables"),
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the cache was empty"),
        Column("num_entries", pa.int64(), "the number of cache entries that were removed"),
        MESSAGE,
    )

    table_path: str | None
    num_entries: int

    @property
    def status(self) -> Status:
        return Status.SUCCESS if self.num_entries else Status.NO_ACTION

    @property
    def message(self) -> str:
        return f"{self.num_entries} cache entries were removed"


class FlushResult(Result, frozen=True):
    """What FLUSH DISK CACHE removed on one host."""

    columns: ClassVar[Columns] = (
        _HOST,
        Column("cache_path", pa.string(), "the directory of the cache"),
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the cache was empty"),
        Column("freed_bytes", pa.int64(), "the size of the entries that were removed"),
        Column("num_entries_left", pa.int64(), "the number of entries that are in use and stay"),
        MESSAGE,
    )

    host: str
    cache_path: str
    freed_bytes: int
    num_entries_left: int

    @property
    def status(self) -> Status:
        return Status.SUCCESS if self.freed_bytes else Status.NO_ACTION

    @property
    def message(self) -> str:
        return f"{self.freed_bytes} bytes were freed; {self.num_entries_left} entries are in use"


class DiskCacheResult(Result, frozen=True):
    """How full the disk cache of one host is."""

    columns: ClassVar[Columns] = (
        _HOST,
        Column("cache_path", pa.string(), "the directory of the cache"),
        Column("num_entries", pa.int64(), "the number of indexes in the cache"),
        Column("size_bytes", pa.int64(), "their size"),
        Column("max_bytes", pa.int64(), "the limit for the size of the cache"),
        Column(
            "least_recent_use", MOMENT, "the last use of the entry that is evicted next; null: empty cache"
        ),
        Column("most_recent_use", MOMENT, "the last use of the cache; null: empty cache"),
    )

    host: str
    cache_path: str
    num_entries: int
    size_bytes: int
    max_bytes: int
    least_recent_use: datetime | None
    most_recent_use: datetime | None


def run_invalidate(statement: nodes.InvalidateLogCache, caller: Caller) -> pa.Table:
    """Remove the log of one table, which need not exist any more, or of all tables from the cache of this process.

    Without a table, the other caches of this process are cleared, too; the answer does not count their entries.
    """
    if statement.target is None:
        num_entries = process_cache().invalidate(None)
        clear_process_caches()
        return InvalidateResult(None, num_entries).to_arrow()
    context = caller.context(statement.target)
    return InvalidateResult(context.url, process_cache().invalidate(context.store)).to_arrow()


def run_flush_disk_cache(_: nodes.FlushDiskCache, caller: Caller) -> pa.Table:
    """See `IndexCache.flush`. Raises IndexCacheError."""
    found = _on_all_hosts(caller, "flushing the disk cache", FlushTask(caller.settings()))
    return pa.concat_tables(
        [
            FlushResult(
                host.name,
                host.cache_path,
                sum(answer.freed_bytes for answer in answers),
                answers[-1].num_entries_left,
            ).to_arrow()
            for host, answers in found
        ]
    )


def run_describe_disk_cache(_: nodes.DescribeDiskCache, caller: Caller) -> pa.Table:
    """See `IndexCache`. Raises IndexCacheError."""
    found = _on_all_hosts(caller, "describing the disk cache", DescribeCacheTask(caller.settings()))
    return pa.concat_tables([answers[-1].to_arrow() for _, answers in found])


@dataclass(frozen=True, slots=True)
class FlushTask(HostTask[FlushResult]):
    """Flushes the cache of the host that it runs on."""

    settings: Settings = field(repr=False)

    def cache(self) -> IndexCache:
        return index_cache(self.settings)

    def run(self, interruption: Interruption) -> FlushResult:
        interruption.check()
        cache = self.cache()
        host = Host.this(cache)
        return FlushResult(host.name, host.cache_path, cache.flush(), len(cache.entries()))


@dataclass(frozen=True, slots=True)
class DescribeCacheTask(HostTask[DiskCacheResult]):
    """Describes the cache of the host that it runs on."""

    settings: Settings = field(repr=False)

    def cache(self) -> IndexCache:
        return index_cache(self.settings)

    def run(self, interruption: Interruption) -> DiskCacheResult:
        interruption.check()
        cache = self.cache()
        host = Host.this(cache)
        entries = cache.entries()
        return DiskCacheResult(
            host=host.name,
            cache_path=host.cache_path,
            num_entries=len(entries),
            size_bytes=sum(entry.size for entry in entries),
            max_bytes=cache.max_bytes,
            least_recent_use=_moment(entries[0].used_ns) if entries else None,
            most_recent_use=_moment(entries[-1].used_ns) if entries else None,
        )


def _on_all_hosts(caller: Caller, description: str, task: HostTask[T]) -> list[tuple[Host, list[T]]]:
    """Return the answers of this host, and of the other hosts of the caller's runner by name. Raises a task's error.

    A host that both are on answers twice.
    """
    answers: dict[Host, list[T]] = {}
    for runner in (LocalRunner(1), *([caller.runner] if caller.runner is not None else [])):
        with closing(runner.run_on_hosts(description, [task])) as outcomes:
            found = list(outcomes)
        for host, outcome in sorted(found, key=lambda each: (each.host.name, each.host.cache_path)):
            if isinstance(outcome, Failed):
                raise outcome.error
            answers.setdefault(host, []).append(outcome.result)
    return list(answers.items())


def run_describe_merge_jobs(_: nodes.DescribeMergeJobs, __: Caller) -> pa.Table:
    """See `ops.merge.merge_jobs`."""
    return merge_jobs()


def _moment(epoch_ns: int) -> datetime:
    return datetime.fromtimestamp(epoch_ns // 1_000_000 / 1000, UTC)


# --- DESCRIBE ENVIRONMENT: what statements run with, without any value that may be a credential ---------

_LIBRARIES: Final = (
    "datafusion",
    "fastavro",
    "lark",
    "numpy",
    "obstore",
    "pyarrow",
    "pyspark",
    "tantivy",
)
# The prefixes of variables that stores and Spark read. Any of their values may be a credential, so none is shown.
_VARIABLES: Final = ("AWS_", "AZURE_", "GOOGLE_", "INDEXTABLES_", "SPARK_")

_Row = tuple[str, str, str, str | None]


def run_describe_environment(_: nodes.DescribeEnvironment, caller: Caller) -> pa.Table:
    """List versions, settings, and the names of options and variables. Raises InvalidOptionError."""
    rows = [*_runtime(), *_libraries(), *_settings(caller), *_storage_options(caller), *_variables()]
    schema = schema_of(ENVIRONMENT_COLUMNS)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _runtime() -> Iterator[_Row]:
    yield "runtime", "indextables", __version__, None
    yield "runtime", "python", platform.python_version(), None
    yield "runtime", "platform", platform.platform(), None
    yield "runtime", "processors", str(os.cpu_count() or 1), None
    yield "runtime", "executable", sys.executable, None


def _libraries() -> Iterator[_Row]:
    for name in _LIBRARIES:
        try:
            yield "library", name, metadata.version(name), None
        except metadata.PackageNotFoundError:
            continue  # an optional dependency


def _settings(caller: Caller) -> Iterator[_Row]:
    settings = caller.settings()
    for setting, value in settings.items():
        yield "setting", setting.key, setting.kind.show(value), settings.source(setting)
    given = {name.lower() for name in caller.options}
    for family in list_families():
        for ending, text in sorted(settings.family(family).items()):
            key = f"{family.prefix}{ending}"
            source = "option" if key.lower() in given else "session"
            yield "setting", key, REDACTED if family.secret else text, source


def _storage_options(caller: Caller) -> Iterator[_Row]:
    """Options of the store and of Hadoop, which are not settings of IndexTables."""
    for source, options in (
        ("option", caller.storage_options),
        ("option", caller.options),
        ("session", caller.session),
    ):
        for name in sorted(options):
            if options is caller.storage_options or not is_ours(name):
                yield "storage option", name, REDACTED, source


def _variables() -> Iterator[_Row]:
    for name in sorted(os.environ):
        if name.upper().startswith(_VARIABLES):
            yield "environment variable", name, REDACTED, None
