"""What of a long tail a replay needs. Pure, and columnar."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indextables.log.decode import Tail


def last_actions(tail: Tail) -> Tail:
    """The tail with the last add and the last remove of each path only: it replays to the same."""
    return Tail(tail.versions, _last_per_path(tail.adds), _last_per_path(tail.removes))


def _last_per_path(actions: pa.Table) -> pa.Table:
    codes = actions["path"].combine_chunks().dictionary_encode().indices.to_numpy()
    sequence = actions["sequence"].to_numpy()
    last: npt.NDArray[np.int64] = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes, sequence)
    is_last = last[codes] == sequence
    return actions if is_last.all() else actions.filter(pa.array(is_last))
