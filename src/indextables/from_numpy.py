"""Numbers of numpy as Arrow arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def from_numpy(numbers: npt.NDArray[Any]) -> pa.Array:
    """An Arrow array of the same type, without nulls, and where possible in the same memory.

    `pa.array` gives the same, but imports numpy's masked arrays to see whether it has one before it. That takes a
    noticeable part of a short command's time.
    """
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])
