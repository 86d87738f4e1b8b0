"""The paths of the log as keys below the table's root: an absolute and a relative spelling of a file are one file.

The specification says that paths are relative, and this package writes no others. Some older writers wrote absolute
paths or URLs, even for a file that other versions name by its relative path. Readers convert them where they enter, so
everything behind compares keys. Few tables have such paths: for the others, this costs one look at the column.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from indextables.errors import UnsafePathError
from indextables.log.actions import SkipAction
from indextables.log.decode import Tail, VersionSummary
from indextables.storage import relative_key

# Paths that are not plain keys: absolute ones, URLs, and spellings that never occur in a listing.
_NOT_A_PLAIN_KEY: Final = r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]"


def tail_with_keys(tail: Tail, root_url: str) -> Tail:
    """The tail, with the key of each file that it names by an absolute path."""
    adds, removes = with_keys(tail.adds, root_url), with_keys(tail.removes, root_url)
    versions = tail.versions
    if any(version.actions.skips for version in versions):
        versions = tuple(_summary_with_keys(version, root_url) for version in versions)
    return Tail(versions, adds, removes)


def with_keys(actions: pa.Table, root_url: str) -> pa.Table:
    """Actions or entries, with the key of each file that they name by an absolute path.

    A path outside of the root stays as it is; opening that file is an error.
    """
    if "path" not in actions.column_names or not has_absolute(actions["path"]):
        return actions
    index = actions.schema.get_field_index("path")
    keys = keys_or_paths(actions["path"].combine_chunks(), root_url)
    return actions.set_column(index, actions.schema.field(index), keys)


def keys_or_paths(paths: pa.Array, root_url: str) -> pa.Array:
    """The key of each absolute path below the root; all other paths as they are."""
    return normalised_paths(paths, root_url, key_or_path) if has_absolute(paths) else paths


def has_absolute(paths: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a path starts at a root, or may be a URL."""
    is_absolute = pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, ":/"))
    return bool(pc.any(is_absolute).as_py())


def normalised_paths(
    paths: pa.Array, root_url: str, resolve: Callable[[str, str], str] = relative_key
) -> pa.Array:
    """Paths from a log, in the same order, as the keys that a listing shows.

    `resolve` converts the few paths that are neither plain keys nor the root URL plus a plain key. By default it raises
    UnsafePathError for a path outside of the root.
    """
    is_unusual = pc.match_substring_regex(paths, _NOT_A_PLAIN_KEY)
    if not pc.any(is_unusual).as_py():
        return paths
    root = f"{root_url}/"
    rest = pc.if_else(pc.starts_with(paths, root), pc.utf8_slice_codeunits(paths, len(root)), "/")
    has_plain_rest = pc.and_(is_unusual, pc.invert(pc.match_substring_regex(rest, _NOT_A_PLAIN_KEY)))
    keys = pc.if_else(has_plain_rest, rest, paths)
    is_unresolved = pc.and_not(is_unusual, has_plain_rest)
    resolved = [resolve(path, root_url) for path in paths.filter(is_unresolved).to_pylist()]
    return pc.replace_with_mask(keys, is_unresolved, pa.array(resolved, pa.string()))


def key_or_path(path: str, root_url: str) -> str:
    """The key of a path, or the path itself (which no listing shows) if it is outside of the table."""
    try:
        return relative_key(path, root_url)
    except UnsafePathError:
        return path


def _summary_with_keys(summary: VersionSummary, root_url: str) -> VersionSummary:
    skips: tuple[SkipAction, ...] = tuple(
        replace(skip, path=key_or_path(skip.path, root_url)) for skip in summary.actions.skips
    )
    return replace(summary, actions=replace(summary.actions, skips=skips))
