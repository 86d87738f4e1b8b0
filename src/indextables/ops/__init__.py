"""The operations on a table, one module or package each, and all of one shape:

    operation(snapshot, request, runner) -> result

- The *snapshot* is the version that the operation starts from. `fsck` and `repair` take a context instead, because a
  table may be too damaged to open.
- The *request* is a frozen value that holds every choice of the caller. An operation with only one or two plain
  arguments takes those in its place: `restore(snapshot, request)`, but `append(snapshot, data)` and
  `describe_state(snapshot)`. Flags such as `dry_run` are keyword-only then.
- The *runner* executes the tasks of an operation that hands out work; other operations take none. `IndexTable`
  chooses it: the caller's, or threads of this process. `checkpoint` and `compact` take None for no runner.
- The *result* is a frozen value with `to_arrow()` and `to_dict()`, or an Arrow table where rows are the result. The
  result of an operation that commits has a `snapshot`: the table after it.

A module is imported at its first use as an attribute, such as `ops.search`: opening a table needs few of them.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indextables.ops import (
        checkpoint,
        columns,
        delete,
        describe,
        fsck,
        merge,
        prewarm,
        publish,
        purge,
        read,
        repair,
        restore,
        runner,
        search,
        sorted_search,
        truncate,
        update,
        upsert,
        upsert_clauses,
        write,
    )

__all__ = [
    "checkpoint",
    "columns",
    "delete",
    "describe",
    "fsck",
    "merge",
    "prewarm",
    "publish",
    "purge",
    "read",
    "repair",
    "restore",
    "runner",
    "search",
    "sorted_search",
    "truncate",
    "update",
    "upsert",
    "upsert_clauses",
    "write",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
