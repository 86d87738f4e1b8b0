"""Replay: a base and the versions after it give the live files. Pure, and columnar throughout."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.log.decode import Tail
from indextables.log.entries import FILE_ENTRY_SCHEMA


def replay_entries(base: pa.Table, tail: Tail) -> pa.Table:
    """The live file entries after `tail`.

    Of several actions on a path the last one counts: an add makes it live with this entry, in place of any
    older one, and a remove makes it vanish. Removing a path that is not live changes nothing.
    """
    if not tail.adds.num_rows and not tail.removes.num_rows:
        return base
    adds = _last_adds(tail)
    touched = pc.unique(_touched_paths(tail))
    is_touched = pc.is_in(base["path"], value_set=touched)
    # Most tails only add new paths: the base, which may be large, is then not copied.
    untouched = base.filter(pc.invert(is_touched)) if pc.any(is_touched).as_py() else base
    if not adds.num_rows:
        return untouched
    return pa.concat_tables([untouched, adds.cast(FILE_ENTRY_SCHEMA)], promote_options="default")


def removed_paths(tail: Tail) -> dict[str, int]:
    """The paths that a tail removes, with the last version that does so. Some may have been added again."""
    if not tail.removes.num_rows:
        return {}
    last = tail.removes.group_by("path", use_threads=False).aggregate([("version", "max")])
    return dict(zip(last["path"].to_pylist(), last["version_max"].to_pylist(), strict=True))


def _last_adds(tail: Tail) -> pa.Table:
    """The adds that no later action of the tail takes back or replaces, in the order of the log."""
    add_count = tail.adds.num_rows
    codes = _touched_paths(tail).combine_chunks().dictionary_encode().indices.to_numpy()
    sequence = np.concatenate([tail.adds["sequence"].to_numpy(), tail.removes["sequence"].to_numpy()])
    last = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes, sequence)
    is_last = last[codes[:add_count]] == sequence[:add_count]
    # Usually every path is added once: then there is nothing to copy.
    adds = tail.adds if is_last.all() else tail.adds.filter(pa.array(is_last))
    return adds.drop_columns(["sequence"])


def _touched_paths(tail: Tail) -> pa.ChunkedArray:
    """The path of every add, then of every remove."""
    return pa.chunked_array([*tail.adds["path"].chunks, *tail.removes["path"].chunks], pa.string())
