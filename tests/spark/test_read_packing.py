"""Packing splits into tasks: every split once, and no task over its limits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.spark.read import OPEN_COST_BYTES, pack

MEGABYTE = 1024**2


@settings(max_examples=100)
@given(
    sizes=st.lists(st.integers(0, 300 * MEGABYTE), max_size=60),
    min_tasks=st.integers(1, 8),
    max_splits=st.integers(1, 10),
)
def test_every_split_is_in_one_task_that_keeps_its_bounds(
    sizes: list[int], min_tasks: int, max_splits: int
) -> None:
    groups = pack(sizes, 128 * MEGABYTE, min_tasks, max_splits)
    assert sorted(position for group in groups for position in group) == list(range(len(sizes)))
    for group in groups:
        assert 1 <= len(group) <= max_splits
        assert len(group) == 1 or sum(sizes[position] for position in group) <= 128 * MEGABYTE


def test_many_small_splits_share_tasks_and_use_all_cores() -> None:
    assert len(pack([10_000] * 1000, 128 * MEGABYTE, 2, 1000)) == 33
    assert len(pack([10_000] * 8, 128 * MEGABYTE, 4, 1000)) == 4
    assert len(pack([OPEN_COST_BYTES], 128 * MEGABYTE, 4, 1000)) == 1


def test_tasks_are_about_as_large_as_each_other() -> None:
    sizes = [(100 + number) * MEGABYTE for number in range(8)]
    groups = pack(sizes, 1024 * MEGABYTE, 4, 1000)
    assert [sum(sizes[position] for position in group) // MEGABYTE for group in groups] == [207] * 4
