"""Numbers of numpy as Arrow arrays."""

import numpy as np
import pyarrow as pa
import pytest

from indextables._arrow import arrow_from_numpy


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(None, None, -1), slice(0, 0)])
def test_arrays_are_those_that_pyarrow_makes(dtype, cut):
    numbers = np.array([3, -1, 2, 0], dtype)[cut]
    array = arrow_from_numpy(numbers)
    array.validate(full=True)
    assert array.equals(pa.array(numbers))


def test_memory_is_shared_and_outlives_the_numpy_array():
    numbers = np.arange(5)
    array = arrow_from_numpy(numbers)
    numbers[0] = 7
    del numbers
    assert array.to_pylist() == [7, 1, 2, 3, 4]
