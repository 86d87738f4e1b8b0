"""What lies under a table's root, as columns, and which of it can be a split of this table."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import UnsafePathError
from indextables.log.paths import LOG_PREFIX
from indextables.storage import ObjectMeta, relative_key

SPLIT_SUFFIX: Final = ".split"

STORED_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modifiedMs", pa.int64(), nullable=False),
    ]
)

# A path that says where it is by itself, or that is spelled in a way in which no listing shows it.
_NEEDS_A_LOOK: Final = r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]"


def stored_table(metas: Iterable[ObjectMeta]) -> pa.Table:
    """Objects as columns, each key once: listings may repeat themselves."""
    found = {meta.key: meta for meta in metas}
    return pa.table(
        {
            "path": pa.array(list(found), pa.string()),
            "size": pa.array([meta.size for meta in found.values()], pa.int64()),
            "modifiedMs": pa.array([meta.last_modified_ms for meta in found.values()], pa.int64()),
        },
        schema=STORED_SCHEMA,
    )


def split_files(stored: pa.Table) -> pa.Table:
    """The files that can be splits of the table at the root: by suffix, outside the log, and of no table below."""
    paths = stored["path"]
    is_split = pc.and_(pc.ends_with(paths, SPLIT_SUFFIX), pc.invert(pc.starts_with(paths, LOG_PREFIX)))
    for folder in _tables_below(paths):
        is_split = pc.and_(is_split, pc.invert(pc.starts_with(paths, folder)))
    return stored.filter(is_split)


def normalised_paths(
    paths: pa.Array, root_url: str, resolve: Callable[[str, str], str] = relative_key
) -> pa.Array:
    """Paths that a log names, in the same order, as the keys under which a listing shows them.

    `resolve` is asked about those that are no plain keys below the root: by default it raises UnsafePathError for one
    that lies outside.
    """
    needs_a_look = pc.match_substring_regex(paths, _NEEDS_A_LOOK)
    if not pc.any(needs_a_look).as_py():
        return paths
    below = f"{root_url}/"
    rest = pc.if_else(pc.starts_with(paths, below), pc.utf8_slice_codeunits(paths, len(below)), "/")
    is_plain_rest = pc.and_(needs_a_look, pc.invert(pc.match_substring_regex(rest, _NEEDS_A_LOOK)))
    keys = pc.if_else(is_plain_rest, rest, paths)
    is_left = pc.and_not(needs_a_look, is_plain_rest)
    resolved = [resolve(path, root_url) for path in paths.filter(is_left).to_pylist()]
    return pc.replace_with_mask(keys, is_left, pa.array(resolved, pa.string()))


def key_or_path(path: str, root_url: str) -> str:
    """The key of a path, or the path itself, which no listing shows, if it leads out of the table."""
    try:
        return relative_key(path, root_url)
    except UnsafePathError:
        return path


def among(values: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> pa.Array:
    """Which of the values are wanted, as a mask."""
    mask = pc.is_in(values, value_set=wanted)
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


def _tables_below(paths: pa.ChunkedArray) -> Sequence[str]:
    """The folders of other tables: what lies in there is not ours."""
    inner = paths.filter(pc.match_substring(paths, f"/{LOG_PREFIX}"))
    return sorted({path[: path.index(f"/{LOG_PREFIX}") + 1] for path in inner.to_pylist()})
