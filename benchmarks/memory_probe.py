"""A process of its own for one measurement of memory: `python -m benchmarks.memory_probe SIDE TASK TABLE …`.

It prints, as JSON, by how much the resident memory peaked above that of the idle process with its imports done.
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
    """What libraries import when they are first used belongs to the idle process, as it does for the peer."""
    for name in ("datafusion", "fastavro", "lark"):
        import_module(name)
    pa.array([None])  # pyarrow looks for pandas


def _start() -> int:
    """What the process occupies now; from here on the peak is counted anew, where the system allows that."""
    if not _CLEAR_REFS.exists():
        return _peak()
    _CLEAR_REFS.write_text(_RESET_PEAK)
    return _status("VmRSS")


def _peak() -> int:
    # The counter of getrusage starts with what the parent occupied, where /proc has a better one.
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
