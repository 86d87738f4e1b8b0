"""Workarounds for slow imports that pyarrow triggers, which dominate the run time of short commands.

The functions import numpy and pyarrow themselves: the command line imports this module and prints its help without
them.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa


def arrow_from_numpy(numbers: "npt.NDArray[Any]") -> "pa.Array":
    """Return an Arrow array of the same type without nulls, sharing memory where possible.

    `pa.array` returns the same, but first imports numpy's masked arrays to check for one.
    """
    import numpy as np
    import pyarrow as pa

    # Arrow has one bit for a truth value.
    content = np.packbits(numbers, bitorder="little") if numbers.dtype == np.bool_ else numbers
    buffer = pa.py_buffer(np.ascontiguousarray(content))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])


def hide_pandas_from_pyarrow() -> None:
    """Make pyarrow conclude, for the lifetime of this process, that pandas is not installed.

    pyarrow imports pandas when it first converts a Python list, to check whether the list is a Series. That import
    takes longer than the rest of a command. Neither commands nor Spark's planning processes use pandas.
    """
    if "pandas" in sys.modules:
        return
    blocker = _PandasBlocker()
    sys.meta_path.insert(0, blocker)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(blocker)


class _PandasBlocker:
    """An import finder that reports pandas as missing and leaves everything else to the other finders."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
        return None
