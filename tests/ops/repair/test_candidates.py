"""The rules for splits that no readable log file mentions, one by one."""

import pyarrow as pa

from indextables.config import Settings
from indextables.ops.repair.damaged_files import whole_lines
from indextables.ops.repair.plan import KnownPaths, LostWindow, select_splits
from indextables.ops.repair.splits import FoundSplit, OwnDescription, values_of_path
from indextables.schema import TableShape
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.storage import partition_path
from support.tables import add

HOUR = 3_600_000
MAPPING = mapping_from_settings(TableShape(pa.schema([("id", pa.int64())])), Settings())
ANY_TIME = LostWindow(None, None)


def split(path: str, *merged_from: str, written: int = 1) -> FoundSplit:
    own = OwnDescription("{}", (), MAPPING, written, merged_from)
    return FoundSplit(add(path, modified=written), own)


def jvm_split(path: str, *, written: int = 1) -> FoundSplit:
    return FoundSplit(add(path, modified=written))


def decide(*splits: FoundSplit, live=(), removed=(), removed_by_damaged=(), window=ANY_TIME):
    known = KnownPaths(frozenset(live), frozenset(removed), frozenset(removed_by_damaged))
    selection = select_splits({each.path: each for each in splits}, known, window)
    return (
        {each.path for each in selection.taken},
        {problem.path for problem in selection.left_out},
        set(selection.superseded or {}),
    )


def test_unmentioned_splits_are_taken_and_known_ones_are_not():
    assert decide(split("a"), split("b"), split("c"), live=["b"], removed=["c"]) == ({"a"}, set(), set())


def test_merged_split_supersedes_its_sources():
    assert decide(split("a"), split("b"), split("ab", "a", "b")) == ({"ab"}, {"a", "b"}, set())


def test_merge_of_a_merge_supersedes_all_of_its_sources():
    found = [split("a"), split("b"), split("ab", "a", "b"), split("c"), split("abc", "ab", "c")]
    assert decide(*found) == ({"abc"}, {"a", "b", "ab", "c"}, set())


def test_merged_split_with_a_missing_source_supersedes_its_live_sources():
    assert decide(split("a"), split("ab", "a", "b"), live=["a"]) == ({"ab"}, set(), {"a"})


def test_merged_split_whose_sources_are_all_live_is_left_out():
    assert decide(split("a"), split("b"), split("ab", "a", "b"), live=["a", "b"]) == (set(), {"ab"}, set())


def test_merged_split_of_a_removed_source_was_never_committed():
    assert decide(split("ab", "a", "b"), removed=["a"]) == (set(), {"ab"}, set())


def test_merged_split_whose_sources_a_damaged_version_removed_is_taken():
    found = decide(split("ab", "a", "b"), removed=["a", "b"], removed_by_damaged=["a", "b"])
    assert found == ({"ab"}, set(), set())


def test_sources_of_a_merge_that_was_removed_later_stay_removed():
    assert decide(split("a"), split("b"), split("ab", "a", "b"), removed=["ab"]) == (set(), {"a", "b"}, set())


def test_splits_written_outside_of_the_lost_window_are_left_out():
    window = LostWindow(10 * HOUR, 20 * HOUR)
    found = [split("old", written=9 * HOUR), split("in", written=15 * HOUR), split("new", written=21 * HOUR)]
    assert decide(*found, window=window) == ({"in"}, {"old", "new"}, set())


def test_foreign_splits_may_be_copies_and_are_never_too_new():
    window = LostWindow(10 * HOUR, 20 * HOUR)
    found = [jvm_split("old", written=9 * HOUR), jvm_split("new", written=21 * HOUR)]
    assert decide(*found, window=window) == ({"new"}, {"old"}, set())


def test_jvm_merges_are_recognized_by_name():
    assert jvm_split("date=x/0f9e.split").is_merged_on_the_jvm
    assert not jvm_split("date=x/part-0f9e.split").is_merged_on_the_jvm
    assert not split("0f9e.split").is_merged_on_the_jvm


def test_partition_values_are_read_from_paths():
    values = {"a": "A/A", "b%": "%", "c": "é", "d": None, "e": "x=y"}
    assert values_of_path(f"{partition_path(values.items())}/part-1.split") == values
    assert values_of_path("part-1.split") == {}
    assert values_of_path("folder/part-1.split") == {}


def test_whole_lines_of_a_damaged_file_are_kept():
    good = b'{"remove":{"path":"a","dataChange":true}}\n'
    assert whole_lines(good + b'{"add":{"path":\n' + good + b'{"add":{"pa', "x") == good + good
    assert whole_lines(b"\x01\x01", "x") == b""
    assert whole_lines(b"\x01\x01\x1f\x8b nothing", "x") == b""
    assert whole_lines(b"", "x") == b""
