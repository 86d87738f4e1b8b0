import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.decode import Tail, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA, empty_entries
from indextables.log.replay import removed_paths, replay_entries
from support.log_samples import add, json_lines, log_bytes, log_file, paths, remove, rows, versions_of

# Few paths, so that they repeat often; sizes distinguish the adds.
some_paths = st.sampled_from(["a", "b", "c", "ü/😀"])
some_actions = st.builds(add, some_paths, size=st.integers(0, 1000)) | st.builds(remove, some_paths)
some_versions = versions_of(some_actions, max_versions=6, max_actions=6)


def tail_of(versions, first_version: int = 0) -> Tail:
    return decode_tail(
        [log_file(first_version + number, *actions) for number, actions in enumerate(versions)]
    )


def model_of(versions, first_version: int = 0, live: dict | None = None) -> dict[str, tuple[int, int]]:
    """The expected result, by a dictionary: the size of each live path, and the version that added it."""
    live = dict(live or {})
    for version, actions in enumerate(versions, start=first_version):
        for action in actions:
            if "add" in action:
                live[action["add"]["path"]] = (action["add"]["size"], version)
            else:
                live.pop(action["remove"]["path"], None)
    return live


def as_model(entries: pa.Table) -> dict[str, tuple[int, int]]:
    found = rows(entries.select(["path", "size", "addedAtVersion"]))
    assert len({row["path"] for row in found}) == len(found)
    return {row["path"]: (row["size"], row["addedAtVersion"]) for row in found}


@settings(max_examples=80)
@given(some_versions)
def test_replay_agrees_with_a_dictionary(versions):
    entries, model = replay_entries(empty_entries(), tail_of(versions)), model_of(versions)
    assert as_model(entries) == model
    assert entries.num_rows == len(model)
    assert (pc.sum(entries["size"]).as_py() or 0) == sum(size for size, _ in model.values())
    assert entries.schema == FILE_ENTRY_SCHEMA
    entries.validate(full=True)


@settings(max_examples=60)
@given(some_versions, some_versions)
def test_replay_in_two_steps_is_replay_in_one(before, after):
    base = replay_entries(empty_entries(), tail_of(before))
    stepwise = replay_entries(base, tail_of(after, first_version=len(before)))
    at_once = replay_entries(empty_entries(), tail_of([*before, *after]))
    assert as_model(stepwise) == as_model(at_once)


@settings(max_examples=50)
@given(some_versions, some_versions)
def test_columns_of_other_writers_stay_with_their_rows(before, after):
    base = replay_entries(empty_entries(), tail_of(before))
    marked = base.append_column("foreign", pc.binary_join_element_wise("of ", base["path"], ""))
    replayed = replay_entries(marked, tail_of(after, first_version=len(before)))
    assert as_model(replayed) == model_of([*before, *after])
    if "foreign" in replayed.column_names:
        survivors = replayed.filter(pc.less(replayed["addedAtVersion"], len(before)))
        assert survivors["foreign"].to_pylist() == [f"of {path}" for path in paths(survivors)]


def test_a_path_that_is_removed_and_added_again_in_one_version_is_live_with_its_new_entry():
    base = replay_entries(empty_entries(), tail_of([[add("a", size=1), add("b", size=2)]]))
    replayed = replay_entries(base, tail_of([[remove("a"), add("a", size=5)]], first_version=1))
    assert as_model(replayed) == {"a": (5, 1), "b": (2, 0)}


def test_a_path_that_is_added_and_removed_in_one_version_is_not_live():
    assert replay_entries(empty_entries(), tail_of([[add("a"), remove("a")]])).num_rows == 0


def test_removing_a_path_that_is_not_live_changes_nothing():
    base = replay_entries(empty_entries(), tail_of([[add("a")]]))
    assert replay_entries(base, tail_of([[remove("b"), remove("b")]], first_version=1)) == base


def test_adding_a_live_path_replaces_its_entry():
    replayed = replay_entries(
        empty_entries(), tail_of([[add("a", size=1)], [add("a", size=2)], [add("a", size=3)]])
    )
    assert as_model(replayed) == {"a": (3, 2)}


def test_a_tail_without_adds_and_removes_gives_the_base_itself():
    base = replay_entries(empty_entries(), tail_of([[add("a")]]))
    assert replay_entries(base, tail_of([[], []], first_version=1)) is base


def test_an_overwrite_of_many_files_leaves_only_the_new_one():
    count = 5_000
    base = replay_entries(empty_entries(), tail_of([[add(f"part-{number}") for number in range(count)]]))
    overwrite = json_lines(*(remove(f"part-{number}") for number in range(count)), add("new", size=9))
    assert as_model(replay_entries(base, decode_tail([log_bytes(1, overwrite)]))) == {"new": (9, 1)}


def test_new_paths_do_not_copy_the_base():
    base = replay_entries(empty_entries(), tail_of([[add("a"), add("b")]]))
    replayed = replay_entries(base, tail_of([[add("c")]], first_version=1))
    addresses = [table["path"].chunk(0).buffers()[2].address for table in (base, replayed)]
    assert addresses[0] == addresses[1]


@settings(max_examples=50)
@given(some_versions)
def test_removed_paths_have_their_last_version(versions):
    expected = {
        action["remove"]["path"]: version
        for version, actions in enumerate(versions)
        for action in actions
        if "remove" in action
    }
    assert removed_paths(tail_of(versions)) == expected
