"""The statements about what is remembered here: the log in memory, indexes on the local disk."""

from datetime import UTC, datetime

import pyarrow as pa

from indextables._caching import clear_process_caches
from indextables.split.index_cache import index_cache
from indextables.statements import columns
from indextables.statements.caller import Caller
from indextables.statements.columns import Status, answer
from indextables.statements.nodes import DescribeDiskCache, FlushDiskCache, InvalidateLogCache
from indextables.table.context import process_cache


def run_invalidate(statement: InvalidateLogCache, caller: Caller) -> pa.Table:
    """Forget the log of a table that need not be there any more, or of all tables."""
    context = None if statement.target is None else caller.context(statement.target)
    forgotten = process_cache().invalidate(None if context is None else context.store)
    if context is None:
        clear_process_caches()
    return answer(
        columns.INVALIDATE,
        {
            "table_path": None if context is None else context.url,
            "status": Status.SUCCESS if forgotten else Status.NO_ACTION,
            "num_entries": forgotten,
            "message": f"{forgotten} cached values were forgotten",
        },
    )


def run_flush_disk_cache(_: FlushDiskCache, caller: Caller) -> pa.Table:
    """See `IndexCache.flush`. Raises IndexCacheError."""
    cache = index_cache(caller.settings())
    freed = cache.flush()
    left = len(cache.entries())
    return answer(
        columns.FLUSH,
        {
            "cache_path": str(cache.root),
            "status": Status.SUCCESS if freed else Status.NO_ACTION,
            "freed_bytes": freed,
            "num_entries_left": left,
            "message": f"{freed} bytes were freed; {left} entries are in use",
        },
    )


def run_describe_disk_cache(_: DescribeDiskCache, caller: Caller) -> pa.Table:
    """See `IndexCache`. Raises IndexCacheError."""
    cache = index_cache(caller.settings())
    entries = cache.entries()
    return answer(
        columns.DISK_CACHE,
        {
            "cache_path": str(cache.root),
            "num_entries": len(entries),
            "size_bytes": sum(entry.size for entry in entries),
            "max_bytes": cache.max_bytes,
            "least_recent_use": _moment(entries[0].used_ns) if entries else None,
            "most_recent_use": _moment(entries[-1].used_ns) if entries else None,
        },
    )


def _moment(epoch_ns: int) -> datetime:
    return datetime.fromtimestamp(epoch_ns // 1_000_000 / 1000, UTC)
