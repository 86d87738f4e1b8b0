"""Ways around imports that pyarrow does on its own and that cost more than a short command has time for."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_from_numpy(numbers: npt.NDArray[Any]) -> pa.Array:
    """An Arrow array of the same type, without nulls, and where possible in the same memory.

    `pa.array` gives the same, but imports numpy's masked arrays to see whether it has one before it. That takes a
    noticeable part of a short command's time.
    """
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])


# A start without pandas.
#
# pyarrow imports pandas, where that is installed, at the first Python list that becomes an array, to find out
# whether the list is a series of it. That takes longer than everything else that a command does, and no
# command has a series; nor has any of the processes in which Spark plans a query.


def hide_pandas_from_pyarrow() -> None:
    """Let pyarrow find, once and for this process, that there is no pandas."""
    if "pandas" in sys.modules:
        return
    blocker = _Blocker()
    sys.meta_path.insert(0, blocker)
    try:
        import pyarrow as pa  # here, because the command line's help should not wait for it

        pa.array([None])
    finally:
        sys.meta_path.remove(blocker)


class _Blocker:
    """An importer that knows one thing: pandas cannot be found."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
        return None
