"""One memory measurement in its own process: `python -m benchmarks.memory_probe SIDE TASK TABLE …`.

Prints the peak of the resident memory above that of the idle process after its imports, as JSON.
"""

import gc
import json
import resource
import sys
from collections.abc import Callable, Mapping, Sized
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from benchmarks import delta, ours

_TASKS: Mapping[tuple[str, str], Callable[..., Sized]] = {
    ("ours", "list"): ours.list_files,
    ("ours", "partition"): ours.list_partition,
    ("ours", "compact"): ours.compact,
    ("deltalake", "list"): delta.list_files,
    ("deltalake", "partition"): delta.list_partition,
    ("deltalake", "compact"): delta.compact,
}
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def main(arguments: list[str]) -> None:
    """Run a task and print its peak."""
    side, task, *rest = arguments
    _finish_imports()
    gc.collect()
    idle = _start()
    found = _TASKS[side, task](*rest)
    print(json.dumps({"peak_bytes": max(_peak() - idle, 0), "length": len(found)}))


def _finish_imports() -> None:
    """Import what libraries import on first use, so that it counts as idle memory, as for the peer."""
    for name in ("datafusion", "fastavro", "lark"):
        import_module(name)
    pa.array([None])  # pyarrow looks for pandas


def _start() -> int:
    """The current resident memory; resets the peak counter if the system allows it."""
    if not _CLEAR_REFS.exists():
        return _peak()
    _CLEAR_REFS.write_text(_RESET_PEAK)
    return _status("VmRSS")


def _peak() -> int:
    # The counter of getrusage starts with the memory of the parent; /proc has a better one.
    if _STATUS.exists():
        return _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(f"{_STATUS} has no {field}")


if __name__ == "__main__":
    main(sys.argv[1:])
