"""A change opens only the manifests that it affects, by the first and the last path of each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indextables import IndexTable, errors
from indextables.log.paths import state_manifest_key
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.state.source import manifests_that_may_hold
from indextables.state.state_manifest import ManifestInfo
from indextables.table.whole_base import file_problem
from support.state_tables import TableBuilder, numbered, paths, split, state_of

PATHS = st.lists(st.text(max_size=4), max_size=8)


@given(st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=5), max_size=6), PATHS)
def test_a_manifest_that_holds_a_path_is_never_left_out(contents, wanted):
    manifests = [
        ManifestInfo(str(number), len(held), 0, 0, first_path=min(held), last_path=max(held))
        for number, held in enumerate(contents)
    ]
    found = {int(info.path) for info in manifests_that_may_hold(manifests, pa.array(wanted, pa.string()))}
    holding = {number for number, held in enumerate(contents) if set(held) & set(wanted)}
    between = {
        number for number, held in enumerate(contents) if any(min(held) <= w <= max(held) for w in wanted)
    }
    assert holding <= found == between


def test_a_manifest_without_recorded_paths_is_never_left_out():
    manifests = [ManifestInfo("theirs", 1, 0, 0), ManifestInfo("half", 1, 0, 0, first_path="z")]
    assert manifests_that_may_hold(manifests, pa.array(["a"])) == tuple(manifests)


TENS = (0, 10, 20)


@pytest.fixture
def tables(builder) -> TableBuilder:
    """A table with a manifest for each of three runs of ten paths, and a tombstone in the first."""
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    for first in TENS:
        table.commit(adds=[split(number) for number in range(first, first + 10)])
        table.checkpoint()
    table.commit(removes=numbered([5]))
    table.checkpoint()
    return tables


def manifest_files(tables: TableBuilder) -> list[Path]:
    return [Path(tables.path, "_transaction_log", info.path) for info in state_of(tables.open()).manifests]


def checkpoint_after_a_commit(table: IndexTable) -> None:
    """What a commit does when a checkpoint is due: unlike CHECKPOINT, it does not read what it only carries on."""
    write_checkpoint(table._snapshot, check=file_problem)


@contextmanager
def unreadable(files: list[Path]) -> Iterator[None]:
    """Files of the same size that nobody can read."""
    contents = {file: file.read_bytes() for file in files}
    for file, content in contents.items():
        file.write_bytes(b"?" * len(content))
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


def test_states_record_the_first_and_the_last_path_of_each_manifest(tables):
    state = Path(tables.path, state_manifest_key(4))
    with state.open("rb") as file:
        (record,) = fastavro.reader(file)
    ranges = [(item["firstPath"], item["lastPath"]) for item in record["manifests"]]
    assert ranges == [tuple(numbered([first, first + 9])) for first in TENS]


CHANGES: dict[str, tuple[Callable[[IndexTable], object], set[int]]] = {
    "adds": (lambda table: table.commit(adds=[split(30), split(31)]), set(range(32)) - {5}),
    "removes": (lambda table: table.commit(removes=numbered([12, 17])), set(range(30)) - {5, 12, 17}),
    "comes back": (lambda table: table.commit(adds=[split(15, size=9)]), set(range(30)) - {5}),
    "is replaced": (
        lambda table: table.commit(adds=[split(40)], removes=numbered([18])),
        {*range(30), 40} - {5, 18},
    ),
    "goes and comes back": (
        lambda table: (table.commit(removes=numbered([11])), table.commit(adds=[split(11, size=8)])),
        set(range(30)) - {5},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_opens_only_the_manifests_that_it_affects(tables, change):
    make, expected = CHANGES[change]
    first, _, last = manifest_files(tables)
    with unreadable([first, last]):
        table = tables.open()
        make(table)
        checkpoint_after_a_commit(table)
    assert paths(tables.open()) == numbered(expected)
    state = state_of(tables.open())
    assert (state.num_files, "part-00005.split" in state.tombstones.to_pylist()) == (len(expected), True)
    assert sum(info.live_entry_count for info in state.manifests) == len(expected)
    assert sum(info.tombstone_count for info in state.manifests) == len(state.tombstones)


def test_a_readded_path_with_a_tombstone_is_live_once(tables):
    _, middle, last = manifest_files(tables)
    with unreadable([middle, last]):
        table = tables.open()
        table.commit(adds=[split(5, size=55)])
        checkpoint_after_a_commit(table)
    assert paths(tables.open()) == numbered(range(30))
    assert len(state_of(tables.open()).tombstones) == 0


def test_a_change_opens_every_manifest_that_may_hold_the_path(tables):
    _, _, last = manifest_files(tables)
    table = tables.open()
    table.commit(adds=[split(25, size=1)])
    with unreadable([last]), pytest.raises(errors.LogCorruptedError):
        checkpoint_after_a_commit(table)
    tables.open().checkpoint()
    assert paths(tables.open()) == numbered(set(range(30)) - {5})


def test_a_merge_of_a_few_files_opens_only_their_manifest(tables):
    first, _, last = manifest_files(tables)
    with unreadable([first, last]):
        assert tables.open().commit(adds=[split(50)], removes=numbered([10, 11])) == 5
    assert paths(tables.open()) == numbered({*range(30), 50} - {5, 10, 11})
