"""Sixteen processes commit while others constantly write checkpoints, compact, truncate and collect garbage."""

from itertools import pairwise

import pyarrow as pa
import pytest

from indextables import IndexTable
from support.racing import race

WRITERS, COMMITS, MAINTAINERS = 16, 200, 2

WORK = """
import random, time
from indextables import AddAction, IndexTable
from indextables.errors import IndexTablesError

table = IndexTable(task["path"], options={"spark.indextables.state.retention.hours": "0"})
number, chance = task["number"], random.Random(task["number"])

def split(commit):
    return AddAction(path=f"{number}-{commit}.split", partition_values={}, size=commit + 1, modification_time=0,
                     data_change=True)

def write():
    landed = []
    for commit in range(task["commits"]):
        landed.append(table.commit(adds=[split(commit)]))
        if commit % 10 == 9:
            table.commit(removes=[f"{number}-{commit - 5}.split"])
    open(task["finished"] + str(number), "w").close()
    return landed

def maintain():
    import glob
    done = 0
    while len(glob.glob(task["finished"] + "*")) < task["writers"]:
        try:
            chance.choice([table.checkpoint, table.compact, lambda: table.truncate_time_travel(dry_run=False),
                           lambda: table.collect_garbage(dry_run=False)])()
        except IndexTablesError as error:
            # Two of them may take each other's files away; nothing may ever look damaged.
            assert type(error).__name__ in ("ConcurrentMaintenanceError", "ObjectNotFoundError"), repr(error)
        done += 1
    return [done]

ready()
done(write() if number < task["writers"] else maintain())
"""


def race_with_maintenance(folder, *, writers: int, commits: int, maintainers: int) -> int:
    path = folder / "table"
    IndexTable.create(str(path), pa.schema([("id", pa.int64())]))
    finished = f"{folder}/finished-"
    reported = race(
        WORK, writers + maintainers, path=str(path), commits=commits, writers=writers, finished=finished
    )
    landed = [version for versions in reported[:writers] for version in versions]
    assert len(set(landed)) == len(landed) == writers * commits
    table = IndexTable(str(path))
    removed = range(4, commits, 10) if commits >= 10 else ()
    expected = {
        f"{number}-{commit}.split": commit + 1
        for number in range(writers)
        for commit in range(commits)
        if commit not in removed
    }
    files = table.files(columns=["path", "size"])
    assert dict(zip(*files.to_pydict().values(), strict=True)) == expected
    assert (table.num_files, table.total_bytes) == (len(expected), sum(expected.values()))
    history = table.history()
    commit_ids = history["commit_id"].drop_null().to_pylist()
    assert len(set(commit_ids)) == len(commit_ids)
    versions = history["version"].to_pylist()
    assert versions[0] == table.version
    # A slow checkpoint may be finished after a truncation has passed it. Then the versions that follow it are gone.
    checkpoints = {
        int(state.name.removeprefix("state-v")) for state in path.glob("_transaction_log/state-v*")
    }
    assert all(
        newer - older == 1 or (newer > older and older in checkpoints) for newer, older in pairwise(versions)
    )
    return table.version


@pytest.mark.soak
def test_16_writers_of_200_commits_each_beside_maintenance(tmp_path, soak_report):
    newest = race_with_maintenance(tmp_path, writers=WRITERS, commits=COMMITS, maintainers=MAINTAINERS)
    soak_report["commits"] += newest
    soak_report["operations"] += newest
