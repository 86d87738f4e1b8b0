"""Several entries for one path in a state: the newest one wins."""

import pytest

from indextables.log.paths import LOG_PREFIX
from indextables.state.manifest_writer import write_manifest
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo, StateManifest, new_manifest_path
from indextables.storage import open_store
from support.manifest_samples import REQUIRED_VALUES, entries


@pytest.fixture
def sizes_by_path(tmp_path):
    """The live entries (path and size) of a state whose manifests hold these entries, in this order."""
    store = open_store(str(tmp_path))

    def listed(*manifests: list[tuple[str, int]], are_ours: bool) -> list[tuple[str, int]]:
        infos = []
        for rows in manifests:
            path = new_manifest_path()
            table = entries([{**REQUIRED_VALUES, "path": name, "size": size} for name, size in rows])
            store.put(LOG_PREFIX + path, write_manifest(table))
            infos.append(ManifestInfo(path, len(rows), 0, 0, has_typed_bounds=are_ours))
        state = StateManifest(1, 0, 0, 0, tuple(infos))
        found = StateSource(store, state, parallelism=2).load(None, ["size"]).entries
        return list(zip(found["path"].to_pylist(), found["size"].to_pylist(), strict=True))

    return listed


def test_a_repeated_path_in_a_manifest_of_another_writer_counts_once(sizes_by_path):
    assert sizes_by_path([("a", 1), ("b", 2), ("a", 3)], are_ours=False) == [("b", 2), ("a", 3)]


@pytest.mark.parametrize("are_ours", [True, False])
def test_the_later_manifest_wins_for_a_repeated_path(sizes_by_path, are_ours):
    found = sizes_by_path([("a", 1), ("c", 2)], [("b", 3), ("c", 4)], are_ours=are_ours)
    assert found == [("a", 1), ("b", 3), ("c", 4)]


@pytest.mark.parametrize("are_ours", [True, False])
def test_a_path_at_the_edges_of_two_manifests_counts_once(sizes_by_path, are_ours):
    assert sizes_by_path([("b", 1), ("c", 2)], [("a", 3), ("b", 4)], are_ours=are_ours) == [
        ("c", 2),
        ("a", 3),
        ("b", 4),
    ]


def test_manifests_without_a_path_in_common_are_listed_in_their_order(sizes_by_path):
    found = sizes_by_path([("é", 1), ("é2", 2)], [], [("a", 3), ("z", 4)], are_ours=True)
    assert found == [("é", 1), ("é2", 2), ("a", 3), ("z", 4)]
