"""Tantivy panics, prefetching, and directories that processes leave behind."""

import threading

import pytest
import tantivy

from indextables.errors import SplitCorruptedError, SplitWriteError
from indextables.split.byte_ranges import prefetched
from indextables.split.index_cache import new_guarded_directory, sweep_abandoned
from indextables.split.index_files import translating


def test_a_tantivy_panic_becomes_a_typed_error():
    with (
        pytest.raises(SplitWriteError, match="building: Tantivy panicked"),
        translating("building", SplitWriteError),
    ):
        tantivy.SchemaBuilder().add_text_field("-invalid")


def test_errors_are_translated_once_and_interrupts_pass():
    with pytest.raises(SplitWriteError, match="building: no"), translating("building", SplitWriteError):
        raise ValueError("no")
    with pytest.raises(SplitCorruptedError), translating("building", SplitWriteError):
        raise SplitCorruptedError("already ours")
    with pytest.raises(KeyboardInterrupt), translating("building", SplitWriteError):
        raise KeyboardInterrupt


@pytest.mark.parametrize("depth", [1, 3, 10])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_prefetched_items_come_in_order(depth, count):
    items = list(range(count))
    assert list(prefetched(lambda item: item * 2, items, depth)) == [(item, item * 2) for item in items]


def test_prefetching_is_bounded_by_its_depth():
    fetched: list[int] = []
    lock = threading.Lock()

    def fetch(item: int) -> int:
        with lock:
            fetched.append(item)
        return item

    pieces = prefetched(fetch, range(100), depth=2)
    for _ in range(3):
        next(pieces)
    pieces.close()
    assert max(fetched) <= 5


def test_a_failed_fetch_is_raised_where_it_is_needed():
    def fetch(item: int) -> int:
        if item == 2:
            raise SplitCorruptedError("broken")
        return item

    pieces = prefetched(fetch, range(5), depth=3)
    assert [next(pieces), next(pieces)] == [(0, 0), (1, 1)]
    with pytest.raises(SplitCorruptedError):
        next(pieces)


def test_directories_in_use_and_other_users_files_are_not_swept(tmp_path):
    held = new_guarded_directory(tmp_path, "work-")
    (tmp_path / "work-abandoned").mkdir()
    (tmp_path / "work-file").write_bytes(b"")
    (tmp_path / "other").mkdir()
    (tmp_path / "work-link").symlink_to(tmp_path / "other")
    sweep_abandoned(tmp_path, "work-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [held.path.name, "work-file", "other", "work-link"]
    )
    held.close()
    assert not held.path.exists()
    sweep_abandoned(tmp_path / "missing", "work-")
