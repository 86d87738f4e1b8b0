"""What a tail of versions does to the state before it. Pure, and columnar.

Of every path, the first action tells whether it was live before the tail, and the last whether it is afterwards.
The first part holds only for versions whose writers checked (`CommitInfo.is_exact`); for others the
entries of the state have to be looked at.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.decode import Tail


class NetChanges(msgspec.Struct, frozen=True):
    """The difference that a tail makes.

    `adds` are the entries that it leaves live. `removed` and `replaced` (columns path and size) are entries of
    the state before that are gone, and that `adds` has a newer entry for.
    """

    adds: pa.Table
    removed: pa.Table
    replaced: pa.Table


def is_exact(tail: Tail) -> bool:
    """Whether the tail alone tells what was live before it."""
    infos = [version.actions.commit_info for version in tail.versions]
    return all(info is not None and info.is_exact for info in infos) and not tail.removes["size"].null_count


def net_changes_of_exact_tail(tail: Tail) -> NetChanges:
    """The net changes of a tail for which `is_exact` holds: nothing else has to be read."""
    actions = _Actions.of(tail)
    first, last = actions.first_per_path(), actions.last_per_path()
    was_live = ~actions.is_add[first]
    is_live = actions.is_add[last]
    known = pa.table({"path": tail.removes["path"], "size": tail.removes["size"]})
    return NetChanges(
        adds=_adds(tail, actions, last[is_live]),
        removed=known.take(pa.array(actions.row[first[was_live & ~is_live]])),
        replaced=known.take(pa.array(actions.row[first[was_live & is_live]])),
    )


def net_changes(tail: Tail, live_before: pa.Table) -> NetChanges:
    """The net changes of any tail, given the live entries before it (columns path and size)."""
    actions = _Actions.of(tail)
    last = actions.last_per_path()
    is_live = actions.is_add[last]
    gone = actions.paths.take(pa.array(last[~is_live]))
    added = actions.paths.take(pa.array(last[is_live]))
    known = live_before.select(["path", "size"])
    return NetChanges(
        adds=_adds(tail, actions, last[is_live]),
        removed=known.filter(pc.is_in(known["path"], value_set=gone)),
        replaced=known.filter(pc.is_in(known["path"], value_set=added)),
    )


class _Actions(msgspec.Struct, frozen=True):
    """All adds and removes of a tail in the order of the log; `row` is where each stands in its table."""

    paths: pa.Array
    codes: npt.NDArray[np.int32]
    is_add: npt.NDArray[np.bool_]
    row: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tail: Tail) -> "_Actions":
        adds, removes = tail.adds.num_rows, tail.removes.num_rows
        sequence = np.concatenate([tail.adds["sequence"].to_numpy(), tail.removes["sequence"].to_numpy()])
        order = np.argsort(sequence, kind="stable")
        chunks = [*tail.adds["path"].chunks, *tail.removes["path"].chunks]
        paths = pa.chunked_array(chunks, pa.string()).combine_chunks().take(pa.array(order))
        is_add = np.concatenate([np.ones(adds, dtype=np.bool_), np.zeros(removes, dtype=np.bool_)])
        row = np.concatenate([np.arange(adds), np.arange(removes)])
        return cls(paths, paths.dictionary_encode().indices.to_numpy(), is_add[order], row[order])

    def first_per_path(self) -> npt.NDArray[np.int64]:
        """Where the first action on each path stands, one per path."""
        return np.unique(self.codes, return_index=True)[1]

    def last_per_path(self) -> npt.NDArray[np.int64]:
        """Where the last action on each path stands, one per path and in the same order of paths."""
        return len(self.codes) - 1 - np.unique(self.codes[::-1], return_index=True)[1]


def _adds(tail: Tail, actions: _Actions, positions: npt.NDArray[np.int64]) -> pa.Table:
    rows = np.sort(actions.row[positions])
    return tail.adds.take(pa.array(rows)).drop_columns(["sequence"])
