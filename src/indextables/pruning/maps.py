"""One key's values out of a column of maps."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def map_values(maps: pa.MapArray | pa.ChunkedArray, key: str) -> pa.Array:
    """Return the value under `key` for each map; null where the map is null or has no such key.

    Arrow's own `map_lookup` takes a walk through every map. This compares all keys at once, which for a
    snapshot's worth of statistics is an order of magnitude faster.
    """
    column = maps.combine_chunks() if isinstance(maps, pa.ChunkedArray) else maps
    offsets = column.offsets.to_numpy()
    start, end = (offsets[0], offsets[-1]) if len(offsets) else (0, 0)
    is_key = pc.equal(column.keys.slice(start, end - start), key)
    positions = np.flatnonzero(is_key.to_numpy(zero_copy_only=False)) + start
    rows = np.searchsorted(offsets, positions, side="right") - 1
    found = np.full(len(column), -1, np.int64)
    found[rows] = positions
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return column.items.take(pa.array(found, mask=found < 0))
