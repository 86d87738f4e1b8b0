"""Merge planning: which splits are grouped, within the limits."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.fields import DELETION_VECTOR, STRING_MAP
from indextables.ops.merge.plan import MergeRules, plan_groups

PARTITION_COLUMNS = ("day", "hour")
NONE = frozenset()


def entries(*sizes, partitions=None, times=None, deleted=None):
    """Entries with these sizes. Partitions are (day, hour) pairs; None is null. `deleted` is out of 100 rows each."""
    partitions = partitions or [("a", "1")] * len(sizes)
    values = [
        [(name, value) for name, value in zip(PARTITION_COLUMNS, each, strict=True) if value is not None]
        for each in partitions
    ]
    return pa.table(
        {
            "path": pa.array([f"{number:04d}.split" for number in range(len(sizes))], pa.string()),
            "partitionValues": pa.array(values, STRING_MAP),
            "size": pa.array(sizes, pa.int64()),
            "modificationTime": pa.array(times or range(len(sizes)), pa.int64()),
            "numRecords": pa.array([100] * len(sizes), pa.int64()),
            "deletionVector": pa.array(
                [{"cardinality": count} if count else None for count in deleted or [0] * len(sizes)],
                DELETION_VECTOR,
            ),
        }
    )


def planned(table, rules, resting=NONE):
    return [sorted(group.tolist()) for group in plan_groups(table, PARTITION_COLUMNS, rules, resting)]


def rules(target=100, **others):
    return MergeRules(target, **{"max_sources": 1000, **others})


def test_small_splits_of_a_partition_go_together():
    assert planned(entries(10, 20, 30), rules()) == [[0, 1, 2]]


def test_splits_that_have_reached_the_target_are_left_alone():
    assert planned(entries(10, 100, 20, 250), rules()) == [[0, 2]]


def test_a_single_small_split_is_no_group():
    assert planned(entries(10, 100), rules()) == []
    assert planned(entries(), rules()) == []


def test_partitions_are_never_mixed():
    partitions = [("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")]
    assert planned(entries(1, 1, 1, 1, partitions=partitions), rules()) == [[0, 3]]


def test_null_and_the_empty_text_are_different_partitions():
    partitions = [("a", None), ("a", ""), ("a", None), ("a", "null"), (None, "a"), (None, None)]
    assert planned(entries(*[1] * 6, partitions=partitions), rules()) == [[0, 2]]


def test_splits_are_grouped_in_the_order_in_which_they_were_written():
    table = entries(50, 50, 50, 50, times=[4, 1, 3, 2])
    assert planned(table, rules()) == [[1, 3], [0, 2]]


def test_splits_without_a_neighbour_that_fits_find_partners_by_size():
    assert planned(entries(90, 10, 90, 10, 95), rules()) == [[0, 1], [2, 3]]
    assert planned(entries(60, 50, 60, 40), rules()) == [[2, 3]]
    assert planned(entries(40, 70, 60), rules()) == [[0, 2]]


def test_resting_splits_are_left_alone():
    assert planned(entries(1, 1, 1), rules(), frozenset({"0001.split"})) == [[0, 2]]


def test_most_sources_come_first_where_the_number_of_new_splits_is_limited():
    partitions = [("a", "1")] * 2 + [("b", "1")] * 3 + [("c", "1")] * 2
    assert planned(entries(*[1] * 7, partitions=partitions), rules(max_groups=1)) == [[2, 3, 4]]


def test_sources_of_one_group_are_limited():
    assert planned(entries(*[1] * 5), rules(max_sources=2)) == [[0, 1], [2, 3]]


def test_a_large_split_is_not_rewritten_for_a_few_small_ones():
    tiered = rules(target=1000, max_share_of_largest=0.5)
    assert planned(entries(400, 1, 1), tiered) == [[1, 2]]
    assert planned(entries(400, 1), tiered) == []
    assert planned(entries(2, 1, 1), tiered) == [[0, 1, 2]]


def test_rows_are_copied_a_logarithmic_number_of_times_over_many_writes():
    tiered = rules(target=10_000, max_share_of_largest=0.5)
    sizes, copied, writes = [], 0, 256
    for _ in range(writes):
        sizes.append(1)
        groups = plan_groups(entries(*sizes), PARTITION_COLUMNS, tiered, NONE)
        for group in groups:
            copied += sum(sizes[position] for position in group)
        gone = {int(position) for group in groups for position in group}
        merged = [sum(sizes[position] for position in group) for group in groups]
        sizes = [size for position, size in enumerate(sizes) if position not in gone] + merged
    assert sum(sizes) == writes
    assert len(sizes) <= 9
    assert copied <= writes * 9


PARTITIONS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from(["1", "", None]))
SPLITS = st.lists(st.tuples(st.integers(0, 120), PARTITIONS, st.integers(0, 5)), max_size=40)
RULES = st.builds(
    MergeRules,
    target_bytes=st.integers(1, 150),
    max_sources=st.integers(2, 10),
    max_groups=st.none() | st.integers(1, 5),
    max_share_of_largest=st.sampled_from([0.5, 1.0]),
)


@settings(max_examples=200)
@given(splits=SPLITS, limits=RULES, resting=st.frozensets(st.integers(0, 39), max_size=5))
def test_plans_keep_to_the_limits(splits, limits, resting):
    sizes, partitions, times = [list(each) for each in zip(*splits, strict=True)] if splits else ([], [], [])
    resting_paths = frozenset(f"{number:04d}.split" for number in resting)
    table = entries(*sizes, partitions=partitions, times=times)
    groups = plan_groups(table, PARTITION_COLUMNS, limits, resting_paths)
    everything = np.concatenate([np.empty(0, np.int64), *groups])
    assert len(set(everything.tolist())) == len(everything)
    assert limits.max_groups is None or len(groups) <= limits.max_groups
    for group in groups:
        members = group.tolist()
        total = sum(sizes[member] for member in members)
        assert 2 <= len(members) <= limits.max_sources
        assert total <= limits.target_bytes
        assert len({partitions[member] for member in members}) == 1
        assert resting.isdisjoint(members)
        assert all(sizes[member] < limits.target_bytes for member in members)
        assert max(sizes[member] for member in members) <= limits.max_share_of_largest * total


@settings(max_examples=100)
@given(splits=SPLITS, target=st.integers(1, 150))
def test_what_is_left_alone_in_a_partition_would_not_fit_together(splits, target):
    sizes, partitions, times = [list(each) for each in zip(*splits, strict=True)] if splits else ([], [], [])
    table = entries(*sizes, partitions=partitions, times=times)
    groups = plan_groups(table, PARTITION_COLUMNS, rules(target), NONE)
    grouped = {int(member) for group in groups for member in group}
    alone = [number for number, size in enumerate(sizes) if number not in grouped and size < target]
    for partition in set(partitions):
        left = sorted(sizes[number] for number in alone if partitions[number] == partition)
        assert len(left) < 2 or left[0] + left[1] > target


def test_a_split_with_many_deleted_rows_is_rewritten_alone():
    table = entries(500, 600, 700, deleted=[30, 31, 0])
    assert planned(table, rules(max_deleted_share=0.3)) == [[1]]


def test_a_small_split_with_many_deleted_rows_is_merged_with_the_others():
    table = entries(10, 10, 500, deleted=[90, 0, 90])
    assert planned(table, rules(max_deleted_share=0.3)) == [[0, 1], [2]]


def test_a_resting_split_is_not_rewritten():
    table = entries(500, deleted=[90])
    assert planned(table, rules(max_deleted_share=0.3), frozenset({"0000.split"})) == []
