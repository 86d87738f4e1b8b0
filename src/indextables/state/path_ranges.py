"""Which manifests may hold an entry of a path, by the first and the last path of each.

Where partitions are folders, a manifest covers a few of them, and a change of some files concerns few manifests.
"""

from bisect import bisect_left
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from indextables.state.state_manifest import ManifestInfo


def manifests_that_may_hold(manifests: Sequence[ManifestInfo], paths: pa.Array) -> tuple[ManifestInfo, ...]:
    """The manifests that may have an entry for any of the paths. One that does not say what it covers always may."""
    ordered = paths.take(pc.array_sort_indices(paths)).to_numpy(zero_copy_only=False)

    def may_hold(info: ManifestInfo) -> bool:
        if info.first_path is None or info.last_path is None:
            return True
        place = bisect_left(ordered, info.first_path)
        return place < len(ordered) and ordered[place] <= info.last_path

    return tuple(info for info in manifests if may_hold(info))
