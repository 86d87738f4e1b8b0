"""Local disk: links, special files, operating system errors, and file systems without hard links."""

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from indextables.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    StorageError,
    TransientStorageError,
    UnsafePathError,
    UnsupportedStoreError,
)
from indextables.storage import KeyRange, LocalStore, PutOutcome, local, parse_root
from support.clock import VirtualClock


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def store(root) -> LocalStore:
    return LocalStore(parse_root(root), VirtualClock())


def keys(store: LocalStore, prefix: str = "") -> list[str]:
    return [meta.key for meta in store.list(prefix)]


def temporary_files(root: Path) -> list[Path]:
    return list(root.rglob(".tmp-*"))


def failing(code: int):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_objects_are_plain_files_and_writes_leave_nothing_else(store, root):
    store.put("a/b", b"one")
    store.put("a/b", b"two")
    store.put_if_absent("a/c", b"three")
    store.put_if_absent("a/c", b"four")
    assert (root / "a/b").read_bytes() == b"two"
    assert (root / "a/c").read_bytes() == b"three"
    assert sorted(path.name for path in (root / "a").iterdir()) == ["b", "c"]


def test_left_over_temporary_files_are_not_listed_and_cannot_be_addressed(store, root):
    store.put("a/b", b"")
    (root / "a/.tmp-0123").write_bytes(b"torn")
    assert keys(store) == ["a/b"]
    for operation in (
        store.get,
        store.head,
        lambda key: store.put(key, b""),
        lambda key: store.delete_many([key]),
    ):
        with pytest.raises(UnsafePathError, match="reserved"):
            operation("a/.tmp-0123")


class TestLinks:
    @pytest.fixture
    def outside(self, tmp_path) -> Path:
        folder = tmp_path / "outside"
        folder.mkdir()
        (folder / "secret").write_bytes(b"secret")
        return folder

    def test_link_out_of_the_root_is_neither_read_nor_written(self, store, root, outside):
        store.put("inside", b"x")
        (root / "folder").symlink_to(outside)
        (root / "file").symlink_to(outside / "secret")
        operations = (
            store.get,
            store.head,
            lambda key: store.get_range(key, 0, 1),
            lambda key: store.get_ranges(key, [(0, 1)]),
            lambda key: store.put(key, b"overwritten"),
            lambda key: store.put_if_absent(key, b"new"),
            lambda key: store.delete_many([key]),
        )
        for key in ("folder/secret", "file", "folder/new"):
            for operation in operations:
                with pytest.raises(UnsafePathError, match="symbolic link"):
                    operation(key)
        with pytest.raises(UnsafePathError):
            list(store.list("folder/"))
        assert [path.name for path in outside.iterdir()] == ["secret"]
        assert (outside / "secret").read_bytes() == b"secret"

    def test_links_are_not_listed(self, store, root, outside):
        store.put("a/b", b"x")
        (root / "out").symlink_to(outside)
        (root / "file-out").symlink_to(outside / "secret")
        (root / "in").symlink_to(root / "a")
        (root / "dangling").symlink_to(root / "nothing")
        assert keys(store) == ["a/b"]
        assert keys(store, "in/") == []

    def test_link_that_stays_inside_can_be_read(self, store, root):
        store.put("a/b", b"x")
        (root / "in").symlink_to(root / "a")
        assert store.get("in/b") == b"x"

    def test_link_in_a_circle_is_refused(self, store, root):
        store.put("a", b"x")
        (root / "circle").symlink_to(root / "circle")
        with pytest.raises(StorageError):
            store.get("circle/x")
        assert keys(store) == ["a"]

    def test_root_may_itself_be_reached_by_a_link(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "alias").symlink_to(tmp_path / "real")
        store = LocalStore(parse_root(tmp_path / "alias"), VirtualClock())
        store.put("a/b", b"x")
        assert store.get("a/b") == b"x"
        assert keys(store, "a/") == ["a/b"]
        assert (tmp_path / "real/a/b").exists()


def test_pipes_and_sockets_are_no_objects(store, root):
    store.put("a", b"x")
    os.mkfifo(root / "pipe")
    assert keys(store) == ["a"]
    for read in (store.get, store.head, store.open_local):
        with pytest.raises(ObjectNotFoundError):
            read("pipe")


def test_object_can_be_opened_as_the_file_that_it_is(store, root):
    store.put("folder/a", b"hello")
    with store.open_local("folder/a") as file:
        file.seek(1)
        assert file.read() == b"ello"
    with pytest.raises(ObjectNotFoundError):
        store.open_local("folder/b")
    (root / "folder" / "out").symlink_to("/etc/hostname")
    with pytest.raises(UnsafePathError):
        store.open_local("folder/out")


def test_names_that_cannot_be_keys_are_not_listed(store, root):
    store.put("good", b"x")
    (root / "back\\slash").touch()
    (root / "line\nbreak").touch()
    Path(os.fsdecode(bytes(root) + b"/not-utf8-\xff")).touch()
    assert keys(store) == ["good"]


def test_folders_can_be_nested_more_deeply_than_calls(store, root):
    levels = 150
    key = "/".join("d" * levels) + "/object"
    store.put(key, b"x")
    limit = sys.getrecursionlimit()
    # Low, instead of deep folders: those could not be deleted by those who clean up after tests.
    sys.setrecursionlimit(_stack_depth() + levels // 2)
    try:
        assert keys(store) == [key]
    finally:
        sys.setrecursionlimit(limit)


def _stack_depth() -> int:
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def test_listing_survives_a_file_that_disappears(store, root):
    for name in "abc":
        store.put(f"log/{name}", b"")
    listing = store.list("")
    assert next(listing).key == "log/a"
    (root / "log/b").unlink()
    assert [meta.key for meta in listing] == ["log/c"]


def test_put_works_after_the_table_was_dropped(store, root):
    store.put("a/b", b"one")
    (root / "a/b").unlink()
    (root / "a").rmdir()
    root.rmdir()
    assert store.put_if_absent("a/b", b"two") is PutOutcome.WRITTEN
    assert store.get("a/b") == b"two"


def test_file_where_a_folder_should_be_is_a_clear_error(store):
    store.put("a/b", b"x")
    for key in ("a", "a/b/c"):
        for write in (store.put, store.put_if_absent):
            with pytest.raises(StorageError) as caught:
                write(key, b"y")
            assert type(caught.value) is StorageError
    assert store.get("a/b") == b"x"


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (errno.ENOSPC, StorageError, "free some space"),
        (errno.EDQUOT, StorageError, "quota"),
        (errno.EIO, StorageError, ""),
        (errno.EACCES, AccessDeniedError, "permissions"),
        (errno.EROFS, AccessDeniedError, "permissions"),
        (errno.ESTALE, TransientStorageError, ""),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_failing_disk_is_a_typed_error_and_leaves_the_old_object(
    store, root, monkeypatch, code, expected, words, call
):
    store.put("log/0", b"old")
    monkeypatch.setattr(os, call, failing(code))
    for write in (lambda: store.put("log/0", b"new"), lambda: store.put_if_absent("log/1", b"new")):
        with pytest.raises(expected) as caught:
            write()
        assert type(caught.value) is expected
        assert words in str(caught.value).lower()
        assert store.url in str(caught.value)
    monkeypatch.undo()
    assert store.get("log/0") == b"old"
    assert keys(store) == ["log/0"]
    assert temporary_files(root) == []


def test_forbidden_folder_is_access_denied(store, monkeypatch):
    store.put("a", b"x")
    monkeypatch.setattr(os, "open", failing(errno.EACCES))
    for operation in (lambda: store.get("a"), lambda: store.put("b", b""), store.now_ms):
        with pytest.raises(AccessDeniedError):
            operation()
    monkeypatch.setattr(os, "scandir", failing(errno.EACCES))
    with pytest.raises(AccessDeniedError):
        keys(store)


def test_name_that_is_too_long_cannot_be_a_key(store):
    store.put("short", b"")
    for operation in (store.get, store.head, lambda key: store.put(key, b"")):
        with pytest.raises(UnsafePathError, match="is not a valid key"):
            operation("x" * 300)


def test_short_writes_of_the_system_are_completed(store, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    store.put("a", b"0123456789" * 20)
    monkeypatch.undo()
    assert store.get("a") == b"0123456789" * 20


class TestWithoutHardLinks:
    @pytest.fixture(params=[errno.EPERM, errno.ENOTSUP])
    def no_links(self, request, monkeypatch) -> None:
        monkeypatch.setattr(os, "link", failing(request.param))

    @pytest.mark.usefixtures("no_links")
    def test_object_is_renamed_without_replacing(self, store, root):
        if local._renameat2() is None:
            pytest.skip("this system has no renameat2")
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN
        assert store.put_if_absent("log/0", b"theirs") is PutOutcome.EXISTS
        assert store.get("log/0") == b"ours"
        assert temporary_files(root) == []

    @pytest.mark.usefixtures("no_links")
    def test_writer_that_was_overtaken_does_not_replace(self, store, root, monkeypatch):
        if local._renameat2() is None:
            pytest.skip("this system has no renameat2")
        # Somebody writes between the first look and the rename.
        (root / "log").mkdir(parents=True)
        fsync = os.fsync

        def overtaken(descriptor: int) -> None:
            fsync(descriptor)
            (root / "log/0").write_bytes(b"theirs")

        monkeypatch.setattr(os, "fsync", overtaken)
        assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
        assert store.get("log/0") == b"theirs"
        assert temporary_files(root) == []

    @pytest.mark.usefixtures("no_links")
    def test_file_system_that_can_do_neither_is_refused(self, store, root, monkeypatch):
        monkeypatch.setattr(local, "_renameat2", lambda: None)
        with pytest.raises(UnsupportedStoreError, match="another file system"):
            store.put_if_absent("log/0", b"ours")
        monkeypatch.setattr(local, "_renameat2", lambda: failing(errno.EINVAL))
        with pytest.raises(UnsupportedStoreError, match="another file system"):
            store.put_if_absent("log/0", b"ours")
        assert keys(store) == []
        assert temporary_files(root) == []


def test_writer_that_was_overtaken_by_a_link_does_not_replace(store, root, monkeypatch):
    (root / "log").mkdir(parents=True)
    link = os.link

    def overtaken(*args: object, **kwargs: object) -> None:
        (root / "log/0").write_bytes(b"theirs")
        link(*args, **kwargs)

    monkeypatch.setattr(os, "link", overtaken)
    assert store.put_if_absent("log/0", b"ours") is PutOutcome.EXISTS
    assert store.get("log/0") == b"theirs"


def test_link_whose_answer_was_lost_is_recognised_as_ours(store, monkeypatch):
    link = os.link

    def answer_lost(*args: object, **kwargs: object) -> None:
        link(*args, **kwargs)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", answer_lost)
    assert store.put_if_absent("log/0", b"ours") is PutOutcome.WRITTEN


def test_everything_is_flushed_before_a_write_returns(store, root, monkeypatch):
    flushed: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    store.put_if_absent("a/b/object", b"x")
    # New folders from the top down, then the file, then its name.
    folders, file, name = flushed[:-2], flushed[-2], flushed[-1]
    assert {str(root.parent), str(root), str(root / "a")} <= set(folders)
    assert Path(file).parent == root / "a/b"
    assert name == str(root / "a/b")
    flushed.clear()
    store.put_if_absent("a/b/other", b"x")
    assert len(flushed) == 2
    flushed.clear()
    store.delete_many(["a/b/object", "a/b/other", "a/absent"])
    assert flushed == [str(root / "a/b")]


def test_clock_of_a_table_that_does_not_exist_creates_nothing(store, root, tmp_path):
    assert store.now_ms() > 1_600_000_000_000
    assert not root.exists()
    assert list(tmp_path.iterdir()) == []


# --- what a listing costs -----------------------------------------------------------------------------


def test_a_listing_costs_the_same_however_many_keys_it_skips(store, monkeypatch):
    calls: list[str] = []

    def counted(name: str):
        function = getattr(os, name)

        def call(*args, **kwargs):
            calls.append(name)
            return function(*args, **kwargs)

        return call

    def newer_keys() -> list[str]:
        skip = KeyRange("log/manifests/", "log/state-100")
        return [meta.key for meta in store.list("log/", start_after="log/100", skip=skip)]

    for number in range(100, 103):
        store.put(f"log/{number:03d}", b"")
        store.put(f"log/state-{number:03d}/a", b"")
    for name in ("scandir", "stat", "lstat"):
        monkeypatch.setattr(os, name, counted(name))
    costs = []
    for older in (range(5), range(5, 60)):
        for number in older:
            store.put(f"log/manifests/{number:03d}", b"")
            store.put(f"log/state-{number:03d}/a", b"")
        calls.clear()
        assert newer_keys() == [
            "log/101",
            "log/102",
            "log/state-100/a",
            "log/state-101/a",
            "log/state-102/a",
        ]
        costs.append(sorted(calls))
    assert costs[0] == costs[1]
    assert costs[0].count("scandir") == 1 + 3


# --- empty folders ------------------------------------------------------------------------------------


def test_empty_folder_that_disappears_under_a_writer_is_created_again(store, root, monkeypatch):
    """Another process removes the folder between its creation and the first file in it."""
    make, removals = local.make_directories, []

    def interrupted(path: Path) -> None:
        make(path)
        if len(removals) < 2 and path.name == "state-1":
            removals.append(path)
            assert LocalStore(parse_root(root), VirtualClock()).remove_empty_folders("log/state-") == (
                "log/state-1",
            )

    monkeypatch.setattr(local, "make_directories", interrupted)
    assert store.put_if_absent("log/state-1/a", b"x") is PutOutcome.WRITTEN
    assert len(removals) == 2
    assert store.get("log/state-1/a") == b"x"


def test_folders_with_temporary_files_and_links_are_not_removed(store, root):
    store.put("log/a", b"x")
    (root / "log/state-1").mkdir()
    (root / "log/state-1/.tmp-1").write_bytes(b"in progress")
    (root / "log/state-2").mkdir()
    (root / "elsewhere").mkdir()
    (root / "log/state-3").symlink_to(root / "elsewhere")
    assert store.remove_empty_folders("log/state-") == ("log/state-2",)
    assert sorted(path.name for path in (root / "log").iterdir()) == ["a", "state-1", "state-3"]


# --- compare and set ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF])
def test_file_system_without_locks_still_compares(store, monkeypatch, code):
    store.put("hint", b"old")
    monkeypatch.setattr(fcntl, "flock", failing(code))
    assert store.put_if_unchanged("hint", b"new", b"other") is PutOutcome.CHANGED
    assert store.put_if_unchanged("hint", b"new", b"old") is PutOutcome.WRITTEN


def test_lock_that_is_never_released_is_a_transient_error(store, root, monkeypatch):
    store.put("log/hint", b"old")
    monkeypatch.setattr(local, "_LOCK_ATTEMPTS", 3)
    holder = os.open(root / "log", os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(TransientStorageError, match="log/hint"):
            store.put_if_unchanged("log/hint", b"new", b"old")
    finally:
        os.close(holder)
    assert store.get("log/hint") == b"old"
    assert temporary_files(root) == []
    assert store.put_if_unchanged("log/hint", b"new", b"old") is PutOutcome.WRITTEN
