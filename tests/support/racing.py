"""Real processes that race for one table.

They are forked from one process that has imported what they need of the package, but not used it: importing it in each
process would take longer than the race.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from indextables import IndexTable


def race(program: str, racers: int, **arguments: Any) -> list[Any]:
    """Run a Python program in several processes. Returns the results that they passed to `done`.

    The program finds its `number` and the arguments in `task`, prepares itself, calls `ready()`, which returns when all
    processes have called it, and ends with `done(result)`.
    """
    tasks = [{"number": number, **arguments} for number in range(racers)]
    finished = subprocess.run(
        [sys.executable, "-c", _STARTER],
        input=json.dumps({"program": program, "tasks": tasks}),
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def race_of_appends(path: str, storage_options: Mapping[str, str], *, racers: int, commits: int) -> None:
    """Let processes append to a new table, and check that each commit landed exactly once."""
    IndexTable.create(path, pa.schema([("id", pa.int64())]), storage_options=storage_options)
    reported = race(_APPENDING, racers, path=path, storage_options=dict(storage_options), commits=commits)
    landed = {
        f"{number}-{commit}.split": version
        for number, versions in enumerate(reported)
        for commit, version in enumerate(versions)
    }
    total = racers * commits
    assert sorted(landed.values()) == list(range(1, total + 1))
    table = IndexTable(path, storage_options=storage_options)
    history = table.history()
    assert history["version"].to_pylist() == list(range(total, -1, -1))
    assert set(Counter(history["commit_id"].to_pylist()).values()) == {1}
    files = table.files(columns=["path", "addedAtVersion"])
    assert dict(zip(*files.to_pydict().values(), strict=True)) == landed
    assert (table.num_files, table.total_bytes) == (total, racers * sum(range(1, commits + 1)))
    assert table._snapshot.gap is None


_APPENDING = """
from indextables import AddAction, IndexTable

table = IndexTable(task["path"], storage_options=task["storage_options"])

def split(commit):
    return AddAction(path=f"{task['number']}-{commit}.split", partition_values={}, size=commit + 1,
                     modification_time=0, data_change=True)

ready()
done([table.commit(adds=[split(commit)]) for commit in range(task["commits"])])
"""

_STARTER = """
import json, multiprocessing, sys
from indextables import AddAction, IndexTable
import indextables.ops.checkpoint, indextables.ops.write, indextables.storage.remote

given = json.load(sys.stdin)
context = multiprocessing.get_context("fork")
starting_line = context.Barrier(len(given["tasks"]))
results = context.SimpleQueue()

def run(task):
    names = {"task": task, "ready": starting_line.wait, "done": lambda result: results.put((task["number"], result))}
    try:
        exec(given["program"], names)
    except BaseException:
        starting_line.abort()
        results.put((task["number"], None))
        raise

racers = [context.Process(target=run, args=(task,)) for task in given["tasks"]]
for racer in racers:
    racer.start()
finished = dict(results.get() for _ in racers)
for racer in racers:
    racer.join()
print(json.dumps([finished[task["number"]] for task in given["tasks"]]), flush=True)
sys.exit(any(racer.exitcode for racer in racers))
"""
