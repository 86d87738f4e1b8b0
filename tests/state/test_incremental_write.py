"""Incremental states: what is written, what is reused, and the exact result."""

from pathlib import Path

import fastavro
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import errors
from indextables.log.paths import version_key
from indextables.pruning import Bounds
from support.state_tables import TableBuilder, numbered, paths, split, state_of


def manifests_on_disk(path: str) -> set[str]:
    return {file.name for file in Path(path, "_transaction_log/manifests").glob("*.avro")}


def test_adding_files_writes_one_manifest_and_reuses_the_others(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(n) for n in range(50)])
    table.checkpoint()
    before = manifests_on_disk(tables.path)
    table.commit(adds=[split(n) for n in range(50, 60)])
    table.checkpoint()

    state = state_of(tables.open())
    new = manifests_on_disk(tables.path) - before
    assert len(new) == 1
    assert [info.num_entries for info in state.manifests] == [50, 10]
    assert {Path(info.path).name for info in state.manifests} == before | new
    assert state.num_files == 60
    assert paths(tables.open()) == numbered(range(60))


def test_a_chain_of_incremental_writes_adds_up(builder):
    tables = builder(state__compaction__maxManifests="100")
    table = tables.create()
    for number in range(12):
        table.commit(adds=[split(number)])
        table.checkpoint()
    state = state_of(tables.open())
    assert len(state.manifests) == 12
    assert state.state_version == 12
    assert paths(tables.open()) == numbered(range(12))
    assert [(info.min_added_at_version, info.max_added_at_version) for info in state.manifests] == [
        (version, version) for version in range(1, 13)
    ]


def test_removing_files_adds_tombstones_and_rewrites_nothing(builder):
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    table.commit(adds=[split(n) for n in range(20)])
    table.checkpoint()
    before = manifests_on_disk(tables.path)
    table.commit(removes=numbered([3, 7]))
    table.checkpoint()

    state = state_of(tables.open())
    assert manifests_on_disk(tables.path) == before
    assert sorted(state.tombstones.to_pylist()) == numbered([3, 7])
    assert [(info.tombstone_count, info.live_entry_count) for info in state.manifests] == [(2, 18)]
    assert (state.num_files, state.total_bytes) == (18, sum(100 + n for n in range(20) if n not in (3, 7)))
    assert paths(tables.open()) == numbered(set(range(20)) - {3, 7})


def test_adds_and_removes_in_one_transaction(builder):
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    table.commit(adds=[split(n) for n in range(10)])
    table.checkpoint()
    before = manifests_on_disk(tables.path)
    assert table.commit(adds=[split(10), split(11)], removes=numbered([2, 5])) == 2
    table.checkpoint()
    state = state_of(tables.open())
    assert sorted(state.tombstones.to_pylist()) == numbered([2, 5])
    assert [(info.num_entries, info.live_entry_count) for info in state.manifests] == [(10, 8), (2, 2)]
    assert len(manifests_on_disk(tables.path) - before) == 1
    assert paths(tables.open()) == numbered(set(range(12)) - {2, 5})


def test_adds_and_removes_in_one_checkpoint(builder):
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    table.commit(adds=[split(n) for n in range(10)])
    table.checkpoint()
    table.commit(adds=[split(10), split(11)])
    table.commit(removes=numbered([10, 2]))
    table.checkpoint()
    state = state_of(tables.open())
    assert state.tombstones.to_pylist() == numbered([2])
    assert state.num_files == 10
    assert paths(tables.open()) == numbered([0, 1, 3, 4, 5, 6, 7, 8, 9, 11])


def test_only_the_manifest_of_a_readded_path_is_rewritten(builder):
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    for first in (0, 10, 20):
        table.commit(adds=[split(n) for n in range(first, first + 10)])
        table.checkpoint()
    before = [info.path for info in state_of(tables.open()).manifests]
    table.commit(removes=numbered([15]))
    table.commit(adds=[split(15, size=777)])
    table.checkpoint()

    state = state_of(tables.open())
    reused = [info.path for info in state.manifests if info.path in before]
    assert reused == [before[0], before[2]]
    assert len(state.tombstones) == 0
    assert state.num_files == 30
    assert paths(tables.open()) == numbered(range(30))


def test_new_manifests_have_typed_bounds_of_their_own(builder):
    tables = builder("region", "day")
    table = tables.create()
    for days in (range(8, 13), range(1, 3)):
        table.commit(adds=[split(day, region="eu" if day < 10 else "us", day=str(day)) for day in days])
        table.checkpoint()
    table.commit(adds=[split(99, region=None, day="5")])
    table.checkpoint()
    state = state_of(tables.open())
    assert [info.bounds for info in state.manifests] == [
        {"region": Bounds("eu", "us"), "day": Bounds("8", "12")},
        {"region": Bounds("eu", "eu"), "day": Bounds("1", "2")},
        {"region": Bounds(None, None), "day": Bounds("5", "5")},
    ]
    assert all(info.has_typed_bounds for info in state.manifests)


def test_manifests_of_an_unpartitioned_table_are_marked_as_our_own(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(1)])
    table.checkpoint()
    (info,) = state_of(tables.open()).manifests
    assert info.partition_bounds is None
    assert info.has_typed_bounds


def test_the_state_is_read_by_fastavro(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(n) for n in range(5)])
    table.checkpoint()
    folder = Path(tables.path, "_transaction_log")
    with (folder / "state-v00000000000000000001/_manifest.avro").open("rb") as stream:
        (state,) = fastavro.reader(stream)
    assert state["numFiles"] == 5
    assert state["protocolVersion"] == 5
    with (folder / state["manifests"][0]["path"]).open("rb") as stream:
        assert [entry["path"] for entry in fastavro.reader(stream)] == numbered(range(5))


def test_a_state_carries_the_whole_log_header(builder):
    tables = builder()
    table = tables.create()
    table.set_properties({"owner": "search team"})
    table.commit(adds=[split(1)])
    table.checkpoint()
    for file in Path(tables.path, "_transaction_log").glob("*.json"):
        file.unlink()
    reopened = tables.open()
    assert reopened.version == 2
    assert reopened.metadata.configuration["owner"] == "search team"
    assert reopened.protocol.min_reader_version == 5
    assert paths(reopened) == numbered([1])
    assert reopened.commit(adds=[split(2)]) == 3


def test_the_loser_of_a_race_for_a_state_deletes_only_its_own_manifests(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(n) for n in range(3)])
    slow = tables.open()
    table.checkpoint()
    before = manifests_on_disk(tables.path)
    Path(tables.path, "_transaction_log/_last_checkpoint").unlink()

    from indextables.ops.checkpoint.operation import write_state

    written = write_state(slow._snapshot)
    assert not written.is_written
    assert manifests_on_disk(tables.path) == before
    assert paths(tables.open()) == numbered(range(3))


def test_a_state_is_not_written_when_a_manifest_cannot_be_read(builder):
    tables = builder(state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    table.commit(adds=[split(n) for n in range(10)])
    table.checkpoint()
    table.commit(adds=[split(10)])
    (manifest,) = Path(tables.path, "_transaction_log/manifests").glob("*.avro")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    Path(tables.path, version_key(0)).unlink()
    broken = tables.open()
    with pytest.raises(errors.CheckpointCorruptionError, match=manifest.name):
        broken.compact()
    assert not Path(tables.path, "_transaction_log/state-v00000000000000000002").exists()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["checkpoint", "compact", "reopen"]), st.none()),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40)
@given(operations=OPERATIONS)
def test_a_readded_path_is_live_once_with_its_newest_entry(tmp_path_factory, operations):
    tables = TableBuilder(str(tmp_path_factory.mktemp("readd") / "table"))
    table = tables.create()
    model: dict[str, int] = {}
    for size, (operation, number) in enumerate(operations, start=1000):
        if operation == "add":
            table.commit(adds=[split(number, size=size)])
            model[f"part-{number:05d}.split"] = size
        elif operation == "remove":
            table.commit(removes=[f"part-{number:05d}.split"])
            model.pop(f"part-{number:05d}.split", None)
        elif operation == "checkpoint":
            table.checkpoint()
        elif operation == "compact":
            table.compact()
        else:
            table = tables.open()
    reopened = tables.open()
    reopened.checkpoint()
    for view in (reopened, tables.open()):
        files = view.files(columns=["path", "size"])
        assert dict(zip(files["path"].to_pylist(), files["size"].to_pylist(), strict=True)) == model
        assert files.num_rows == len(model) == view.num_files
        assert view.total_bytes == sum(model.values())


def test_statistics_and_partition_values_survive_a_state(builder):
    tables = builder("region", "day")
    table = tables.create()
    table.commit(adds=[split(1, region="eu", day="9"), split(2, region=None, day="10")])
    table.checkpoint()
    files = tables.open().files()
    assert pc.map_lookup(files["minValues"], "id", "first").to_pylist() == ["10", "20"]
    values = {row["path"]: dict(row["partitionValues"]) for row in files.to_pylist()}
    assert values["part-00001.split"] == {"region": "eu", "day": "9"}
    assert values["part-00002.split"].get("region") is None
