"""Locality: a compaction sorts entries whose manifests overlap. A state says when that would help; once is enough."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import IndexTable
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.pruning import Bounds, partition_bounds
from indextables.schema import TableShape
from indextables.state.compaction import (
    CompactionRules,
    layout,
    target_entries,
    why_compaction_is_due,
    would_help,
)
from indextables.state.locality import reads_per_partition
from indextables.state.state_manifest import ManifestInfo, StateManifest
from support.state_tables import TableBuilder, numbered, paths, split, state_of

COMMITS = 14
DAYS = 40
BY_DAY = TableShape(pa.schema([("day", pa.int32()), ("id", pa.int64())]), ("day",))


def rules(entries_per_manifest: int) -> CompactionRules:
    return CompactionRules(0.10, 20, 2**31 - 1, entries_per_manifest)


def described(table: IndexTable) -> dict[str, str | None]:
    return dict(zip(*table.describe_state().to_pydict().values(), strict=True))


def manifests_read(tables: TableBuilder, where: str) -> tuple[int, int]:
    selection = tables.open().select_files(where)
    return selection.manifests - selection.manifests_skipped, selection.manifests


def files_below(tables: TableBuilder) -> list[str]:
    return sorted(str(file) for file in Path(tables.path).rglob("*"))


@pytest.fixture
def scattered(builder) -> TableBuilder:
    """A table of 40 days in 14 commits that each span all days. No manifest is small."""
    tables = builder("day", state__entriesPerManifest=str(DAYS))
    table = tables.create()
    for batch in range(COMMITS):
        table.commit(adds=[split(batch * DAYS + day, day=str(day)) for day in range(DAYS)])
        table.checkpoint()
    return tables


def test_compaction_restores_the_locality_of_commits_that_span_all_days(scattered):
    assert manifests_read(scattered, "day = 7") == (COMMITS, COMMITS)
    report = scattered.open().compact()
    assert report.version == COMMITS + 1
    read, manifests = manifests_read(scattered, "day = 7")
    assert read == 1
    assert manifests > 10
    assert paths(scattered.open()) == numbered(range(COMMITS * DAYS))


def test_a_state_says_that_its_partitions_overlap_until_it_is_compacted(scattered):
    found = described(scattered.open())
    assert found["needs_compaction"] == "true"
    assert found["compaction_reason"] == (
        "the partitions of 14 manifests overlap: a query of one partition reads 14 of them"
    )
    scattered.open().compact()
    found = described(scattered.open())
    assert (found["needs_compaction"], found["compaction_reason"]) == ("false", None)


def test_a_second_compaction_finds_nothing_to_do(scattered):
    first = scattered.open().compact()
    before = files_below(scattered)
    second = scattered.open().compact()
    assert (second.version, second.num_files) == (first.version, COMMITS * DAYS)
    assert files_below(scattered) == before


def test_partitions_that_do_not_fill_their_manifests_are_compacted_once(builder):
    """Each day has its own manifest, because two do not fit into one: more manifests than the files require."""
    tables = builder("day", state__entriesPerManifest="40")
    table = tables.create()
    table.commit(adds=[split(number, day=str(number // 30)) for number in range(150)])
    assert [tables.open().compact().version for _ in range(3)] == [1, 1, 1]
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [30] * 5


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_a_smaller_limit_of_entries_lets_a_compaction_rewrite(builder, partition_by):
    tables = builder(*partition_by)
    table = tables.create()
    table.commit(
        adds=[split(number, day=str(number)) if partition_by else split(number) for number in range(40)]
    )
    table.compact()
    limit = {"state__entriesPerManifest": "10"}
    assert described(tables.open())["needs_compaction"] == "false"
    found = described(tables.open(**limit))
    assert (found["needs_compaction"], found["compaction_reason"]) == (
        "true",
        "1 of 1 manifests have more entries than spark.indextables.state.entriesPerManifest allows",
    )
    report = tables.open(**limit).compact()
    assert [info.num_entries for info in state_of(tables.open()).manifests] == [10] * 4
    assert described(tables.open(**limit))["needs_compaction"] == "false"
    assert tables.open(**limit).compact().version == report.version == 2
    assert paths(tables.open()) == numbered(range(40))


def test_the_reason_names_tombstones_and_small_manifests(builder):
    lenient = {"state__compaction__tombstoneThreshold": "1.0", "state__compaction__maxManifests": "100"}
    tables = builder(**lenient)
    table = tables.create()
    for number in range(25):
        table.commit(adds=[split(number)])
        table.checkpoint()
    strict = {"state__compaction__tombstoneThreshold": "0.1", "state__compaction__maxManifests": "20"}
    assert described(tables.open(**strict))["compaction_reason"] == "25 manifests, and many of them are small"
    table.commit(removes=numbered(range(5)))
    table.checkpoint()
    assert described(tables.open(**strict))["compaction_reason"] == (
        "5 tombstones for 20 files: more than spark.indextables.state.compaction.tombstoneThreshold allows"
    )


# --- the measure --------------------------------------------------------------------------------------


def manifest(number: int, first: str | None, last: str | None, entries: int = 100, *, typed: bool = True):
    return ManifestInfo(
        f"manifests/manifest-{number:08x}.avro",
        entries,
        1,
        1,
        partition_bounds={"day": Bounds(first, last)},
        live_entry_count=entries,
        has_typed_bounds=typed,
    )


def state_with(*manifests: ManifestInfo) -> StateManifest:
    return StateManifest(
        state_version=1,
        created_at_ms=0,
        num_files=sum(info.num_entries for info in manifests),
        total_bytes=0,
        manifests=manifests,
    )


def test_bounds_are_compared_by_type():
    """As text, 9 to 10 would be empty."""
    in_order = [manifest(number, str(10 * number), str(10 * number + 9)) for number in range(20)]
    assert reads_per_partition(in_order, BY_DAY) == 1.0
    assert reads_per_partition([*in_order, manifest(20, "0", "199")], BY_DAY) == pytest.approx(2.0, abs=0.1)


def test_the_manifests_of_one_large_partition_are_not_scattered():
    divided = state_with(manifest(0, "1", "6"), *(manifest(number, "7", "7") for number in range(1, 30)))
    assert not would_help(divided, rules(100), BY_DAY)


def test_manifests_without_bounds_that_readers_trust_overlap_with_all():
    """Other writers compare numbers as text, so the bounds prove nothing."""
    foreign = state_with(*(manifest(number, "1", "19", typed=False) for number in range(10)))
    assert "a query of one partition reads 10 of them" in str(
        why_compaction_is_due(foreign, rules(100), BY_DAY)
    )


def test_a_few_overlapping_manifests_are_tolerated():
    few = state_with(*(manifest(number, "0", "99") for number in range(4)))
    assert why_compaction_is_due(few, rules(100), BY_DAY) is None


# --- no endless rewriting -----------------------------------------------------------------------------


def compacted(
    partitions: list[tuple[str | None, str | None]], shape: TableShape, limit: int
) -> StateManifest:
    """The state that a compaction leaves for files in these partitions."""
    rows = [
        {
            "path": f"{number}.split",
            "partitionValues": [
                (name, value)
                for name, value in zip(shape.partition_columns, values, strict=False)
                if value is not None
            ],
            "size": 1,
            "modificationTime": 1,
            "dataChange": True,
            "hasFooterOffsets": False,
            "addedAtVersion": 1,
            "addedAtTimestamp": 1,
        }
        for number, values in enumerate(partitions)
    ]
    entries = pa.Table.from_pylist(rows, schema=FILE_ENTRY_SCHEMA)
    target = target_entries(len(rows), limit, is_partitioned=True)
    pieces = [entries.take(places) for places in layout(entries, shape, target)]
    return state_with(
        *(
            ManifestInfo(
                f"manifests/manifest-{number:08x}.avro",
                piece.num_rows,
                1,
                1,
                partition_bounds=partition_bounds(piece["partitionValues"], shape),
                live_entry_count=piece.num_rows,
                has_typed_bounds=True,
            )
            for number, piece in enumerate(pieces)
        )
    )


VALUES = st.one_of(st.none(), st.integers(0, 12).map(str), st.sampled_from(["01", "007", "nine"]))


@settings(deadline=None, max_examples=300)
@given(
    partitions=st.lists(st.tuples(VALUES, VALUES, st.integers(1, 12)), min_size=1, max_size=60),
    columns=st.sampled_from([("day",), ("day", "hour")]),
    limit=st.integers(1, 12),
)
def test_after_a_compaction_of_any_partitions_there_is_nothing_to_do(partitions, columns, limit):
    shape = TableShape(pa.schema([("day", pa.int32()), ("hour", pa.int32()), ("id", pa.int64())]), columns)
    files = [(day, hour) for day, hour, count in partitions for _ in range(count)]
    state = compacted(files, shape, limit)
    assert not would_help(state, rules(limit), shape)
    assert why_compaction_is_due(state, rules(limit), shape) is None
