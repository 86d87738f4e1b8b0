"""Compaction: when it is triggered, what it rewrites, and that it loses no entry."""

from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.pruning import Bounds, map_values
from indextables.schema import TableShape
from indextables.state.compaction import (
    CompactionRules,
    Trigger,
    compaction_trigger,
    layout,
    manifests_to_rewrite,
    target_entries,
    would_help,
)
from indextables.state.state_manifest import ManifestInfo, StateManifest
from support.state_tables import SCHEMA, numbered, paths, split, state_of

RULES = CompactionRules(
    tombstone_threshold=0.10, max_manifests=20, large_remove_threshold=2**31 - 1, entries_per_manifest=50_000
)


def state(*entries: int, tombstones: int = 0, dead: int = 0) -> StateManifest:
    """A state with manifests of these sizes, `dead` entries in the first one."""
    manifests = tuple(
        ManifestInfo(
            f"manifests/manifest-{index:08x}.avro",
            count,
            1,
            1,
            tombstone_count=dead if index == 0 else 0,
            live_entry_count=count - (dead if index == 0 else 0),
            has_typed_bounds=True,
        )
        for index, count in enumerate(entries)
    )
    return StateManifest(
        state_version=9,
        created_at_ms=0,
        num_files=sum(entries) - dead,
        total_bytes=0,
        manifests=manifests,
        tombstones=pa.array([f"dead-{n}" for n in range(tombstones)], pa.string()),
    )


@pytest.mark.parametrize(
    ("given", "new_removes", "expected"),
    [
        (state(100), 0, None),
        (state(1000, tombstones=100, dead=100), 0, Trigger.TOMBSTONE_RATIO),
        (state(1100, tombstones=100, dead=100), 100, None),
        (state(1100, tombstones=101, dead=101), 101, Trigger.TOMBSTONE_RATIO),
        (state(*[10] * 20), 0, None),
        (state(*[10] * 21), 0, Trigger.MANIFEST_COUNT),
        (state(), 0, None),
        (state(*[50_000] * 30), 0, None),
    ],
)
def test_when_a_state_is_compacted(given, new_removes, expected):
    assert compaction_trigger(given, new_removes, RULES, is_partitioned=False) is expected


def test_a_large_remove_triggers_only_when_a_threshold_is_set(builder):
    tables = builder(
        state__compaction__largeRemoveThreshold="50", state__compaction__tombstoneThreshold="0.99"
    )
    table = tables.create()
    table.commit(adds=[split(n) for n in range(200)])
    table.checkpoint()
    table.commit(removes=numbered(range(50)))
    table.checkpoint()
    assert len(state_of(tables.open()).tombstones) == 50
    table.commit(removes=numbered(range(50, 101)))
    table.checkpoint()
    assert len(state_of(tables.open()).tombstones) == 0
    assert tables.open().num_files == 99


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([7_813] * 128, None),
        ([4_700] * 213, None),
        ([4_000, 3_900] * 120, None),
        # The small manifests between the large ones are worth a rewrite: it leaves few of them.
        ([100, 4_000] * 300, Trigger.MANIFEST_COUNT),
    ],
)
def test_the_manifest_count_does_not_trigger_forever_on_a_large_table(sizes, expected):
    large = state(*sizes)
    assert compaction_trigger(large, 0, RULES, is_partitioned=True) is expected


def test_a_large_table_without_fragments_is_compact():
    assert not would_help(state(*[7_813] * 128), RULES, TableShape(SCHEMA, ("day",)))


@settings(deadline=None, max_examples=200)
@given(
    partitions=st.lists(st.integers(1, 400), min_size=1, max_size=60),
    additions=st.lists(st.integers(1, 60), max_size=40),
    limit=st.integers(20, 120),
)
def test_every_compaction_by_manifest_count_reduces_the_manifests(partitions, additions, limit):
    """Repeated small additions to a table with any partitions: a rewrite always reduces the manifests."""
    rules = CompactionRules(1.0, 5, 2**31 - 1, limit)
    sizes = layout_of(partitions, limit)
    for added in additions:
        sizes.append(added)
        now = state(*sizes)
        if compaction_trigger(now, 0, rules, is_partitioned=False) is None:
            continue
        chosen = manifests_to_rewrite(now, Trigger.MANIFEST_COUNT, rules, is_partitioned=False)
        names = {info.path for info in chosen}
        kept = [info.num_entries for info in now.manifests if info.path not in names]
        # The worst case: every rewritten manifest holds partitions of its own.
        written = layout_of([info.num_entries for info in chosen], limit)
        assert len(written) < len(chosen)
        sizes = kept + written


def layout_of(partitions: list[int], limit: int) -> list[int]:
    """The number of entries in each manifest of a compact table with these partitions."""
    entries = entries_with([f"{number:05}" for number, count in enumerate(partitions) for _ in range(count)])
    schema = pa.schema([("day", pa.string())])
    return [len(rows) for rows in layout(entries, TableShape(schema, ("day",)), limit)]


def test_only_manifests_that_need_it_are_rewritten():
    fragmented = state(50_000, 50_000, *[5] * 30)
    chosen = manifests_to_rewrite(fragmented, Trigger.MANIFEST_COUNT, RULES, is_partitioned=False)
    assert [info.num_entries for info in chosen] == [5] * 30
    with_dead = state(50_000, 50_000, tombstones=7_000, dead=7_000)
    chosen = manifests_to_rewrite(with_dead, Trigger.TOMBSTONE_RATIO, RULES, is_partitioned=False)
    assert chosen == with_dead.manifests[:1]


def test_a_forced_compaction_rewrites_everything():
    everything = state(50_000, 10)
    assert (
        manifests_to_rewrite(everything, Trigger.FORCED, RULES, is_partitioned=False) == everything.manifests
    )


@pytest.mark.parametrize(
    ("entries", "is_partitioned", "expected"),
    [
        (1_000_000, False, 50_000),
        (1_000_000, True, 7_813),
        (70_000, True, 4096),
        (10**8, True, 50_000),
        (0, True, 4096),
    ],
)
def test_target_size_of_a_manifest(entries, is_partitioned, expected):
    assert target_entries(entries, 50_000, is_partitioned=is_partitioned) == expected


def entries_with(days: list[str | None]) -> pa.Table:
    rows = [
        {
            "path": f"{index}.split",
            "partitionValues": [] if day is None else [("day", day)],
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "hasFooterOffsets": False,
            "addedAtVersion": 1,
            "addedAtTimestamp": 1,
        }
        for index, day in enumerate(days)
    ]
    return pa.Table.from_pylist(rows, schema=FILE_ENTRY_SCHEMA)


def arranged(days, max_entries):
    entries = entries_with(days)
    return [entries.take(rows) for rows in layout(entries, TableShape(SCHEMA, ("day",)), max_entries)]


def test_entries_are_sorted_by_the_type_of_the_partition_column():
    (ordered,) = arranged(["10", "9", None, "2", "100"], 10)
    assert map_values(ordered["partitionValues"], "day").to_pylist() == ["2", "9", "10", "100", None]


def test_values_that_do_not_parse_are_sorted_as_text_and_nothing_is_lost():
    (ordered,) = arranged(["10", "nine", "2"], 10)
    assert sorted(ordered["path"].to_pylist()) == ["0.split", "1.split", "2.split"]


def test_manifests_end_where_partitions_end():
    days = [str(day) for day in np.repeat([1, 2, 3], [4, 4, 4])]
    assert [piece.num_rows for piece in arranged(days, 5)] == [4, 4, 4]
    assert [piece.num_rows for piece in arranged(days, 8)] == [8, 4]


def test_a_partition_too_large_for_one_manifest_is_divided():
    assert [piece.num_rows for piece in arranged(["1"] * 10 + ["2"] * 2, 4)] == [4, 4, 4]


def test_compaction_leaves_no_tombstones_and_all_live_files(builder):
    tables = builder("day", state__compaction__tombstoneThreshold="0.9")
    table = tables.create()
    for batch in range(5):
        table.commit(adds=[split(n, day=str(n % 12 + 1)) for n in range(batch * 20, batch * 20 + 20)])
        table.checkpoint()
    table.commit(removes=numbered([1, 50, 99]))
    table.checkpoint()
    assert len(state_of(tables.open()).tombstones) == 3

    report = tables.open().compact()
    compacted = state_of(tables.open())
    assert report.version == 7
    assert (len(compacted.tombstones), len(compacted.manifests)) == (0, 1)
    assert compacted.manifests[0].bounds == {"day": Bounds("1", "12")}
    assert paths(tables.open()) == numbered(set(range(100)) - {1, 50, 99})
    assert paths(tables.at(5)) == numbered(range(100))


def test_compacting_a_compact_table_does_nothing(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(1)])
    first = table.compact()
    before = sorted(str(file) for file in Path(tables.path).rglob("*"))
    assert table.compact() == first.__class__(first.table_path, 1, "avro-state", "avro-state", 1, 101)
    assert sorted(str(file) for file in Path(tables.path).rglob("*")) == before


def test_too_many_manifests_are_merged_at_a_checkpoint(builder):
    tables = builder(state__compaction__maxManifests="4")
    table = tables.create()
    for number in range(7):
        table.commit(adds=[split(number)])
        table.checkpoint()
    assert len(state_of(tables.open()).manifests) <= 5
    assert paths(tables.open()) == numbered(range(7))


@pytest.mark.parametrize(("setting", "most"), [("1", 3), ("2", 3), ("3", 4), ("1000000000000", 8)])
def test_a_state_is_compacted_above_the_setting_and_above_twice_what_is_needed(builder, setting, most):
    """One manifest is needed, so even the smallest setting allows two; the next checkpoint compacts a third one."""
    tables = builder(state__compaction__maxManifests=setting)
    table = tables.create()
    counts = []
    for number in range(8):
        table.commit(adds=[split(number)])
        table.checkpoint()
        counts.append(len(state_of(tables.open()).manifests))
    assert max(counts) == most
    assert counts[:most] == list(range(1, most + 1))


def test_many_removes_compact_at_the_next_checkpoint(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(n) for n in range(20)])
    table.checkpoint()
    table.commit(removes=numbered(range(5)))
    table.checkpoint()
    compacted = state_of(tables.open())
    assert len(compacted.tombstones) == 0
    assert [info.num_entries for info in compacted.manifests] == [15]


def test_compaction_divides_entries_that_exceed_one_manifest(builder):
    tables = builder(state__entriesPerManifest="10", state__compaction__maxManifests="100")
    table = tables.create()
    for first in range(0, 35, 7):
        table.commit(adds=[split(n) for n in range(first, first + 7)])
        table.checkpoint()
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [7] * 5
    tables.open().compact()
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [10, 10, 10, 5]
    assert paths(tables.open()) == numbered(range(35))


def test_compaction_sorts_files_by_partition_and_ends_manifests_with_partitions(builder):
    """Files of the days 1 to 12 come in any order; days compare as numbers."""
    tables = builder("day", state__entriesPerManifest="10", state__compaction__maxManifests="100")
    table = tables.create()
    for first in range(0, 48, 6):
        table.commit(adds=[split(n, day=str(n * 5 % 12 + 1)) for n in range(first, first + 6)])
        table.checkpoint()
    tables.open().compact()
    manifests = state_of(tables.open()).manifests
    days = [days_in(Path(tables.path, "_transaction_log", info.path)) for info in manifests]
    assert [len(each) for each in days] == [8] * 6
    assert [day for each in days for day in each] == sorted(day for day in range(1, 13) for _ in range(4))
    assert [info.bounds for info in manifests] == [
        {"day": Bounds(str(each[0]), str(each[-1]))} for each in days
    ]


def days_in(manifest: Path) -> list[int]:
    with manifest.open("rb") as file:
        return [int(entry["partitionValues"]["day"]) for entry in fastavro.reader(file)]


def test_output_respects_the_limit_of_entries_per_manifest(builder):
    tables = builder(state__entriesPerManifest="10")
    table = tables.create()
    table.commit(adds=[split(n) for n in range(35)])
    table.checkpoint()
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [10, 10, 10, 5]


def test_a_pruned_listing_after_compaction_opens_few_manifests(builder):
    tables = builder("day", state__entriesPerManifest="10")
    table = tables.create()
    table.commit(adds=[split(n, day=str(n // 10)) for n in range(120)])
    table.compact()
    selection = tables.open().select_files("day = 11")
    assert sorted(selection.entries["path"].to_pylist()) == numbered(range(110, 120))
    assert (selection.manifests, selection.manifests_skipped) == (12, 11)
