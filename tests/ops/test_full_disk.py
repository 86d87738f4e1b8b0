"""Tables on a full disk, and in read-only folders.

An operation succeeds or raises a typed error that names the path. The table is as before or as after, to the last row.
Once there is space or permission, the same operation succeeds.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from indextables import IndexTable
from indextables.errors import CheckpointWriteError, IndexTablesError, SplitWriteError, StorageError
from support.row_tables import SCHEMA, ids, rows

PAGE = os.sysconf("SC_PAGE_SIZE")
MOUNT_BYTES = 8 << 20
NOBODY = 65534


@dataclass(frozen=True)
class Work:
    """An operation on a table that holds [0, 1, 2, 3], and what the table holds afterwards."""

    run: Callable[[IndexTable], object]
    after: tuple[int, ...] = (0, 1, 2, 3)


OPERATIONS = {
    "append": Work(lambda table: table.append(rows(4, day="c")), (0, 1, 2, 3, 4)),
    "overwrite": Work(lambda table: table.overwrite(rows(7, 8, day="c")), (7, 8)),
    "checkpoint": Work(lambda table: table.checkpoint()),
    "compact": Work(lambda table: table.compact()),
    "merge": Work(lambda table: table.merge_splits()),
    "drop partitions": Work(lambda table: table.drop_partitions("day = 'b'"), (0, 1)),
    "restore": Work(lambda table: table.restore(1), (0,)),
    "truncate": Work(lambda table: table.truncate_time_travel(dry_run=False)),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """A table with two splits in each of two partitions, a state with a tombstone, and later versions."""
    path = tmp_path_factory.mktemp("full-disk") / "template"
    table = IndexTable.create(path, SCHEMA, partition_by=["day"])
    table.append(rows(0, day="a"))
    table.append(rows(1, day="a"))
    table.append(rows(9, day="z"))
    table.checkpoint()
    table.drop_partitions("day = 'z'")
    table.checkpoint()
    table.append(rows(2, day="b"))
    table.append(rows(3, day="b"))
    return path


def assert_before_or_after(path: Path, work: Work) -> None:
    table = IndexTable(path)
    assert ids(table) in ([0, 1, 2, 3], list(work.after))
    report = table.fsck(deep=True)
    assert not report.errors, report.findings


def assert_goes_through(path: Path, work: Work) -> None:
    work.run(IndexTable(path))
    table = IndexTable(path)
    assert ids(table) == list(work.after)
    assert not table.fsck(deep=True).errors


# --- a full disk ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory) -> Iterator[Path]:
    """A file system of a few megabytes."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small file system; run as root to see a disk that is really full")
    place = tmp_path_factory.mktemp("small-disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, room: int) -> Path:
    """Fill the disk up to the given number of free bytes."""
    filler = disk / "filler"
    status = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - room)
    return filler


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_on_a_full_disk_changes_nothing_until_there_is_space(small_disk, template, name):
    work, failures = OPERATIONS[name], 0
    for pages in (0, 1, 3, 7, 20):
        path = small_disk / f"{name}-{pages}"
        shutil.copytree(template, path)
        filler = fill(small_disk, pages * PAGE)
        try:
            work.run(IndexTable(path))
        except StorageError as error:
            failures += 1
            assert path.as_uri() in str(error), error  # noqa: PT017  # an operation that finds room is as good
            assert_before_or_after(path, work)
            assert not list(path.rglob(".tmp-*"))
            filler.unlink()
            assert_goes_through(path, work)
        else:
            filler.unlink()
            assert ids(IndexTable(path)) == list(work.after)
            assert_before_or_after(path, work)
        shutil.rmtree(path)
    assert failures


# --- limits of a process ----------------------------------------------------------------------------


def errors_and_rows_of_child(template: Path, folder: Path, limit: str) -> dict[str, dict[str, str]]:
    """Run each operation in a child process under a limit, and return the errors and rows that it reports.

    Each operation has its own table, `folder / name`.
    """
    for name in OPERATIONS:
        shutil.copytree(template, folder / name)
    shutil.copytree(template, folder / "spare")
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, limit, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    reported: dict[str, dict[str, str]] = json.loads(finished.stdout)
    return reported


FULL_DISK_ERRORS = {error.__name__ for error in (StorageError, SplitWriteError, CheckpointWriteError)}


def test_operations_under_a_file_size_limit_change_nothing(template, tmp_path):
    """The operating system limits the size of files to a few bytes, as under a quota."""
    reported = errors_and_rows_of_child(template, tmp_path, "file size")
    for name, work in OPERATIONS.items():
        answer = reported[name]
        assert answer["error"] in (
            StorageError.__name__,
            SplitWriteError.__name__,
            CheckpointWriteError.__name__,
        ), (name, answer)
        if answer["error"] == StorageError.__name__:
            assert (tmp_path / name).as_uri() in answer["message"]
        assert answer["ids"] == "[0, 1, 2, 3]", name
        assert_before_or_after(tmp_path / name, work)
        assert_goes_through(tmp_path / name, work)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_operations_on_read_only_tables_raise_and_change_nothing(template, open_folder):
    reported = errors_and_rows_of_child(template, open_folder, "read only")
    for name, work in OPERATIONS.items():
        answer = reported[name]
        assert answer["error"] == "AccessDeniedError", (name, answer)
        assert (open_folder / name).as_uri() in answer["message"]
        assert "check the owner and the permissions" in answer["message"]
        assert answer["ids"] == "[0, 1, 2, 3]", name
        make_writable(open_folder / name)
        assert_before_or_after(open_folder / name, work)
        assert_goes_through(open_folder / name, work)


def limit_file_size(folder: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))


def forbid_to_write(folder: Path) -> None:
    """Make the tables read-only and become the user nobody, because root could still write."""
    for found in [*folder.rglob("*")]:
        if found.is_dir():
            found.chmod(0o555)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()


def make_writable(path: Path) -> None:
    path.chmod(0o755)
    for found in path.rglob("*"):
        if found.is_dir():
            found.chmod(0o755)


LIMITS = {"file size": limit_file_size, "read only": forbid_to_write}


def work_under_limit(limit: str, folder: Path) -> None:
    # Fill caches and trigger lazy imports before the limit applies: the test is about writing.
    for name, work in OPERATIONS.items():
        work.run(IndexTable(folder / "spare"))
        ids(IndexTable(folder / name))
    LIMITS[limit](folder)
    errors: dict[str, Exception | None] = dict.fromkeys(OPERATIONS)
    for name, work in OPERATIONS.items():
        try:
            work.run(IndexTable(folder / name))
        except IndexTablesError as error:
            errors[name] = error
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    reported = {
        name: {
            "error": type(error).__name__,
            "message": str(error),
            "ids": str(ids(IndexTable(folder / name))),
        }
        for name, error in errors.items()
    }
    sys.stdout.write(json.dumps(reported))


if __name__ == "__main__":
    work_under_limit(sys.argv[1], Path(sys.argv[2]))
