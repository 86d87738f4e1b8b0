"""The operations on a table, one module or package per operation.

Modules are imported on first use, as in `ops.search.count(…)`: opening and reading a table needs few of them.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indextables.ops import (
        checkpoint,
        describe,
        fsck,
        merge,
        purge,
        read,
        repair,
        restore,
        runner,
        search,
        truncate,
        write,
    )

__all__ = [
    "checkpoint",
    "describe",
    "fsck",
    "merge",
    "purge",
    "read",
    "repair",
    "restore",
    "runner",
    "search",
    "truncate",
    "write",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
