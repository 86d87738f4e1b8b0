"""Real processes that die by SIGKILL while they write: no torn file, nothing lost that was acknowledged.

The package is loaded once, in a process that forks a writer for each test.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextables.storage import PutOutcome, open_store

NURSERY = """
import hashlib, os, signal, sys
from indextables.storage import open_store

SYSTEM = {name: getattr(os, name) for name in ("write", "fsync", "link", "replace", "unlink")}

def say(text):
    SYSTEM["write"](1, f"{text}\\n".encode())

def stop():
    say("reached")
    while True:
        signal.pause()

def stopping(name):
    def call(*args, **kwargs):
        SYSTEM[name](*args, **kwargs)
        stop()
    return call

def half_a_write(descriptor, data):
    SYSTEM["write"](descriptor, bytes(data[: len(data) // 2]))
    stop()

def write_and_stop(store, operation, point):
    store.put("log/ready", b"")
    if point == "half a write":
        os.write = half_a_write
    elif point == "before fsync":
        os.fsync = lambda descriptor: stop()
    else:
        setattr(os, point, stopping(point))
    getattr(store, operation)("log/0", b"x" * 100_000)

def write_for_ever(store):
    for number in range(1_000_000):
        body = number.to_bytes(8, "big") * 8_000
        store.put_if_absent(f"log/{number:08d}", hashlib.sha256(body).digest() + body)
        say(number)

for line in sys.stdin:
    root, *what = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        say(os.getpid())
        write_and_stop(open_store(root), *what) if what else write_for_ever(open_store(root))
        os._exit(0)
    say(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
"""


class Nursery:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @contextlib.contextmanager
    def writer(self, root: Path, *what: str) -> Iterator["Nursery"]:
        """A writer at work. It is killed at the end of the block, and is gone when that is left."""
        self._process.stdin.write("\t".join((str(root), *what)) + "\n")
        self._process.stdin.flush()
        pid = int(self.hear())
        try:
            yield self
        finally:
            os.kill(pid, signal.SIGKILL)
            while not (words := self.hear()).startswith("ended"):
                pass
        assert words == f"ended {-signal.SIGKILL}"

    def hear(self) -> str:
        line = self._process.stdout.readline()
        assert line, "the process that starts writers has ended"
        return line.rstrip("\n")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-W", "ignore", "-c", NURSERY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        process.stdin.close()


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("point", ["half a write", "before fsync", "fsync", "replace"])
def test_put_killed_at_any_point_leaves_the_old_object_or_the_new(nursery, tmp_path, point, old):
    store = open_store(tmp_path)
    if old is not None:
        store.put("log/0", old)
    with nursery.writer(tmp_path, "put", point) as writer:
        assert writer.hear() == "reached"
    expected = b"x" * 100_000 if point == "replace" else old
    found = [meta.key for meta in store.list("log/")]
    assert found == (["log/0", "log/ready"] if expected is not None else ["log/ready"])
    assert expected is None or store.get("log/0") == expected


@pytest.mark.parametrize("point", ["half a write", "before fsync", "fsync", "link", "unlink"])
def test_put_if_absent_killed_at_any_point_leaves_all_or_nothing(nursery, tmp_path, point):
    with nursery.writer(tmp_path, "put_if_absent", point) as writer:
        assert writer.hear() == "reached"
    store = open_store(tmp_path)
    written = point in ("link", "unlink")
    assert store.put_if_absent("log/0", b"theirs") is (PutOutcome.EXISTS if written else PutOutcome.WRITTEN)
    assert store.get("log/0") == (b"x" * 100_000 if written else b"theirs")
    assert [meta.key for meta in store.list("log/")] == ["log/0", "log/ready"]


@pytest.mark.parametrize("acknowledged", [1, 7, 30])
def test_writer_killed_among_many_puts_leaves_no_torn_file(nursery, tmp_path, acknowledged):
    with nursery.writer(tmp_path) as writer:
        last = [int(writer.hear()) for _ in range(acknowledged)][-1]
    store = open_store(tmp_path)
    found = [meta.key for meta in store.list("log/")]
    assert found == [f"log/{number:08d}" for number in range(len(found))]
    assert len(found) > last
    for key in found:
        data = store.get(key)
        assert hashlib.sha256(data[32:]).digest() == data[:32]
    names = {name for _, _, files in os.walk(tmp_path) for name in files}
    assert all(name.startswith(".tmp-") for name in names - {Path(key).name for key in found})
