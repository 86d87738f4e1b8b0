"""Maintenance that is killed with SIGKILL right after it created or deleted any file.

Every row still exists, every readable version is intact, and the next attempt completes the operation.
"""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextables import IndexTable
from support.row_tables import SCHEMA, ids, rows

NURSERY = """
import os, signal, sys
from indextables import IndexTable

OPTIONS = {"spark.indextables.purge.retentionCheckEnabled": "false"}
SYSTEM = {name: getattr(os, name) for name in ("write", "link", "replace", "unlink")}

def say(text):
    SYSTEM["write"](1, f"{text}\\n".encode())

def stop_after(number):
    calls = [0]
    def stopping(name):
        def call(path, *args, **kwargs):
            SYSTEM[name](path, *args, **kwargs)
            # Temporary names of our own come and go without meaning anything.
            if name == "unlink" and ".tmp-" in os.fspath(path):
                return
            calls[0] += 1
            if calls[0] == number:
                say("reached")
                signal.pause()
        return call
    for name in ("link", "replace", "unlink"):
        setattr(os, name, stopping(name))

def work(path, operation, number):
    table = IndexTable(path, options=OPTIONS)
    stop_after(int(number))
    {
        "checkpoint": table.checkpoint,
        "compact": table.compact,
        "purge": lambda: table.purge("0 hours", "0 hours", dry_run=False),
        "truncate": lambda: table.truncate_time_travel(dry_run=False),
        "drop partitions": lambda: table.drop_partitions("day = 'c'"),
    }[operation]()
    say("done")

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        say(os.getpid())
        try:
            work(*line.rstrip("\\n").split("\\t"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    say("ended")
"""

DAY_SECONDS = 86_400


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A table with history, tombstones, states and an orphan. All its files are old."""
    path = tmp_path_factory.mktemp("killed") / "template"
    table = IndexTable.create(path, SCHEMA, partition_by=["day"])
    for number, day in enumerate("abc"):
        table.append(rows(number, day=day))
    table.checkpoint()
    table.drop_partitions("day = 'b'")
    table.checkpoint()
    table.append(rows(3, day="a"))
    split = next(path.rglob("*.split"))
    shutil.copy(split, split.with_name("part-of-a-crash.split"))
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 30 * DAY_SECONDS))
    return path


@pytest.fixture(scope="module")
def nursery() -> Iterator["subprocess.Popen[str]"]:
    """A process with the package loaded that forks a worker for each input line."""
    command = [sys.executable, "-W", "ignore", "-c", NURSERY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()


def killed(nursery, path: Path, operation: str, number: int) -> bool:
    """Kill a worker at the given point. False if it ended before."""
    nursery.stdin.write(f"{path}\t{operation}\t{number}\n")
    nursery.stdin.flush()
    pid, word = int(nursery.stdout.readline()), nursery.stdout.readline()
    if word == "reached\n":
        os.kill(pid, signal.SIGKILL)
    assert word in ("reached\n", "done\n")
    assert nursery.stdout.readline() == "ended\n"
    return word == "reached\n"


# The rows after each operation. Before it, every table holds [0, 2, 3].
OPERATIONS = {
    "checkpoint": [0, 2, 3],
    "compact": [0, 2, 3],
    "purge": [0, 2, 3],
    "truncate": [0, 2, 3],
    "drop partitions": [0, 3],
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_table_is_intact_after_a_kill_at_any_change_on_disk(nursery, template, tmp_path, operation):
    points = 0
    for number in itertools.count(1):
        path = tmp_path / f"{number}"
        shutil.copytree(template, path)
        if not killed(nursery, path, operation, number):
            break
        points += 1
        table = IndexTable(path)
        assert ids(table) in ([0, 2, 3], OPERATIONS[operation]), number
        report = table.fsck()
        assert not report.errors, (number, report.findings)
        assert not killed(nursery, path, operation, 1_000_000)
        table = IndexTable(path)
        assert ids(table) == OPERATIONS[operation]
        assert table.fsck(deep=True).is_clean
        shutil.rmtree(path)
    assert points >= (1 if operation == "drop partitions" else 2)  # a drop is one commit
