"""The net changes of a tail, computed in two ways that must agree."""

import orjson
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.decode import LogFile, decode_tail
from indextables.state.changes import is_exact, net_changes, net_changes_of_exact_tail

PATHS = ["a", "b", "c", "d"]


def add(path: str, size: int) -> dict:
    return {
        "add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    }


def remove(path: str, size: int) -> dict:
    return {"remove": {"path": path, "dataChange": True, "size": size}}


def commit_info(version: int, *, exact: bool) -> dict:
    return {
        "commitInfo": {"commitId": str(version), "timestamp": version, "operation": "WRITE", "isExact": exact}
    }


def tail_of(versions: list[list[dict]], *, exact: bool = True):
    return decode_tail(
        [
            LogFile(
                number,
                f"{number}.json",
                b"\n".join(map(orjson.dumps, [commit_info(number, exact=exact), *actions])),
                0,
            )
            for number, actions in enumerate(versions, start=1)
        ]
    )


def sizes(table: pa.Table) -> dict[str, int]:
    return dict(zip(table["path"].to_pylist(), table["size"].to_pylist(), strict=True))


@st.composite
def exact_histories(draw):
    """A base, and versions in which every remove is of a live path and no add is."""
    base = {path: 10 * index + 1 for index, path in enumerate(PATHS) if draw(st.booleans())}
    live, versions = dict(base), []
    for version in range(draw(st.integers(1, 4))):
        actions = []
        for path in draw(st.lists(st.sampled_from(PATHS), max_size=4)):
            if path in live:
                actions.append(remove(path, live.pop(path)))
            else:
                live[path] = 100 * (version + 1) + len(actions)
                actions.append(add(path, live[path]))
        versions.append(actions)
    return base, versions, live


@settings(max_examples=150)
@given(exact_histories())
def test_an_exact_tail_gives_the_same_changes_as_the_previous_entries(history):
    base, versions, live = history
    tail = tail_of(versions)
    assert is_exact(tail)
    entries = pa.table(
        {"path": pa.array(list(base), pa.string()), "size": pa.array(list(base.values()), pa.int64())}
    )
    from_tail = net_changes_of_exact_tail(tail)
    from_entries = net_changes(tail, entries)
    for changes in (from_tail, from_entries):
        after = dict(base)
        for path in [*sizes(changes.removed), *sizes(changes.replaced)]:
            del after[path]
        assert after | sizes(changes.adds) == live
        assert len(after) + changes.adds.num_rows == len(live)
    assert sizes(from_tail.removed) == sizes(from_entries.removed)
    assert sizes(from_tail.replaced) == sizes(from_entries.replaced)


def test_a_tail_is_exact_only_if_every_commit_is():
    assert not is_exact(tail_of([[add("a", 1)]], exact=False))
    foreign = decode_tail([LogFile(1, "1.json", orjson.dumps(add("a", 1)), 0)])
    assert not is_exact(foreign)


def test_removes_without_a_size_are_not_exact():
    assert not is_exact(tail_of([[{"remove": {"path": "a", "dataChange": True}}]]))


def test_removing_a_path_that_was_not_live_changes_nothing():
    entries = pa.table({"path": ["a"], "size": [1]})
    changes = net_changes(tail_of([[remove("zzz", 5)]], exact=False), entries)
    assert (changes.adds.num_rows, changes.removed.num_rows, changes.replaced.num_rows) == (0, 0, 0)
