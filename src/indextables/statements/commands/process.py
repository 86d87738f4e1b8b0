"""The statements about this process and machine: caches, background merges, and the environment."""

import os
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from typing import ClassVar, Final

import pyarrow as pa

from indextables._caching import clear_process_caches
from indextables._results import MESSAGE, MOMENT, Column, Columns, Result, Status, schema_of
from indextables._version import __version__
from indextables.config import list_families
from indextables.config.settings import is_ours
from indextables.ops.merge import merge_jobs
from indextables.split.index_cache import index_cache
from indextables.statements import nodes
from indextables.statements.caller import Caller
from indextables.storage.redaction import REDACTED
from indextables.table.context import process_cache

ENVIRONMENT_COLUMNS: Final = (
    Column(
        "kind", pa.string(), "`runtime`, `library`, `setting`, `storage option` or `environment variable`"
    ),
    Column("name", pa.string(), "the name"),
    Column("value", pa.string(), "the value; `***` for every value that may be a credential"),
    Column("source", pa.string(), "the source of a setting: `option`, `session` or `default`"),
)


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
    """What FLUSH DISK CACHE removed."""

    columns: ClassVar[Columns] = (
        Column("cache_path", pa.string(), "the directory of the cache"),
        Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the cache was empty"),
        Column("freed_bytes", pa.int64(), "the size of the entries that were removed"),
        Column("num_entries_left", pa.int64(), "the number of entries that are in use and stay"),
        MESSAGE,
    )

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
    """How full the disk cache of this machine is."""

    columns: ClassVar[Columns] = (
        Column("cache_path", pa.string(), "the directory of the cache"),
        Column("num_entries", pa.int64(), "the number of indexes in the cache"),
        Column("size_bytes", pa.int64(), "their size"),
        Column("max_bytes", pa.int64(), "the limit for the size of the cache"),
        Column(
            "least_recent_use", MOMENT, "the last use of the entry that is evicted next; null: empty cache"
        ),
        Column("most_recent_use", MOMENT, "the last use of the cache; null: empty cache"),
    )

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
    cache = index_cache(caller.settings())
    freed_bytes = cache.flush()
    return FlushResult(str(cache.root), freed_bytes, len(cache.entries())).to_arrow()


def run_describe_disk_cache(_: nodes.DescribeDiskCache, caller: Caller) -> pa.Table:
    """See `IndexCache`. Raises IndexCacheError."""
    cache = index_cache(caller.settings())
    entries = cache.entries()
    result = DiskCacheResult(
        cache_path=str(cache.root),
        num_entries=len(entries),
        size_bytes=sum(entry.size for entry in entries),
        max_bytes=cache.max_bytes,
        least_recent_use=_moment(entries[0].used_ns) if entries else None,
        most_recent_use=_moment(entries[-1].used_ns) if entries else None,
    )
    return result.to_arrow()


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
