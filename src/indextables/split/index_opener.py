"""Opens the index directories of any number of splits with few Tantivy indexes, and so with few threads.

Tantivy starts a thread for every index that Python opens. It watches for changes, and lives as long as the index and
all of its searchers. So one Tantivy index serves all directories of the same schema: its directory is a symbolic
link, which leads to the directory to open while the index is reloaded. A searcher keeps the files that it was opened
with. Where descriptors have names, the link names one, and never changes: a file system may take milliseconds to
replace a link to a long path.
"""

import contextlib
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import tantivy

from indextables._caching import LruCache, shared_cache
from indextables.errors import IndexCacheError, SplitCorruptedError
from indextables.split.deleted_rows import DeletedRows, link_index
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_cache import GuardedDirectory, new_guarded_directory, sweep_abandoned
from indextables.split.index_files import META_FILE, translating

# The next process that opens an index removes the scratch directories of killed ones.
_SCRATCH_PREFIX: Final = "indextables-open-"

_NO_FIELDS: Final = DocMapping(())

# Where the descriptors of this process can be opened by name, directories included.
_DESCRIPTORS: Final = Path("/proc/self/fd")


class _Kind(msgspec.Struct, frozen=True):
    """What the directories that share a Tantivy index have in common. A forked process has links of its own."""

    schema: bytes
    mapping: DocMapping
    process: int


def open_index(
    directory: Path, mapping: DocMapping | None, place: str, deleted: DeletedRows | None = None
) -> tantivy.Searcher:
    """Open the index in a directory for queries; without a mapping, for reading its documents.

    The searcher finds no deleted rows.

    The searcher keeps its files open, so the directory may be removed afterwards. Raises SplitCorruptedError if the
    directory holds no valid index, and IndexCacheError if there is no local directory for the link.
    """
    with translating(f"{place}: the index cannot be opened", SplitCorruptedError):
        meta = orjson.loads((directory / META_FILE).read_bytes())
        kind = _Kind(orjson.dumps(meta["schema"]), mapping or _NO_FIELDS, os.getpid())
        opener = _OPENERS.setdefault(kind, _Opener(kind.mapping))
        return opener.open(directory, meta, deleted)


class _Opener:
    """One Tantivy index, which reads one directory after another."""

    def __init__(self, mapping: DocMapping) -> None:
        self._mapping = mapping
        self._lock = threading.Lock()
        self._linked: _LinkedIndex | None = None

    def open(self, directory: Path, meta: dict[str, Any], deleted: DeletedRows | None) -> tantivy.Searcher:
        with self._lock:
            if deleted is None:
                return self._open(directory, meta)
            with _local_files(), tempfile.TemporaryDirectory(prefix="indextables-deleted-") as scratch:
                link_index(directory, Path(scratch), deleted)
                return self._open(Path(scratch), meta)

    def _open(self, directory: Path, meta: dict[str, Any]) -> tantivy.Searcher:
        # The directory for temporary files may have been cleaned up meanwhile.
        searcher = None if self._linked is None else self._linked.open(directory)
        if searcher is None:
            self._linked = _LinkedIndex(meta, self._mapping)
            searcher = self._linked.open(directory)
        if searcher is None:
            raise IndexCacheError(
                f"temporary files in {tempfile.gettempdir()} disappear while they are in use; set TMPDIR"
            )
        return searcher


_OPENERS: LruCache[_Kind, _Opener] = shared_cache(
    "split.index_opener.openers", "Tantivy indexes that open directories", max_entries=16
)


class _LinkedIndex:
    """A Tantivy index whose directory is a link, at first to an index without rows."""

    def __init__(self, meta: dict[str, Any], mapping: DocMapping) -> None:
        with _local_files():
            parent = Path(tempfile.gettempdir())
            sweep_abandoned(parent, _SCRATCH_PREFIX)
            scratch = new_guarded_directory(parent, _SCRATCH_PREFIX)
            weakref.finalize(self, _remove, scratch, os.getpid())
            # Tantivy resolves links in the path of an index when it opens it, so the link replaces a directory.
            self._link = scratch.path / "index"
            self._link.mkdir()
            (self._link / META_FILE).write_bytes(orjson.dumps({**meta, "segments": []}))
        self.index = tantivy.Index.open(str(self._link))
        mapping.register_tokenizers(self.index)
        # It must not read the directory at other times than `reload`.
        self.index.config_reader("manual")
        with _local_files():
            self._link.rename(scratch.path / "empty")
            self._idle = scratch.guard
            self._descriptor = os.dup(scratch.guard) if _DESCRIPTORS.is_dir() else None
            if self._descriptor is not None:
                weakref.finalize(self, _close, self._descriptor, os.getpid())
                self._link.symlink_to(_DESCRIPTORS / str(self._descriptor))

    def open(self, directory: Path) -> tantivy.Searcher | None:
        """Open the index in a directory; None if the directory of the link no longer exists."""
        with self._pointing_to(directory) as is_there:
            if not is_there:
                return None
            self.index.reload()
            return self.index.searcher()

    @contextlib.contextmanager
    def _pointing_to(self, directory: Path) -> Iterator[bool]:
        if self._descriptor is None:
            yield self._move(directory)
        elif not os.path.lexists(self._link):
            yield False
        else:
            wanted = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.dup2(wanted, self._descriptor, inheritable=False)
            finally:
                os.close(wanted)
            try:
                yield True
            finally:
                os.dup2(self._idle, self._descriptor, inheritable=False)

    def _move(self, directory: Path) -> bool:
        """Replace the link, and return whether its own directory still exists."""
        link = self._link.with_name("next")
        with _local_files():
            try:
                link.symlink_to(directory.absolute(), target_is_directory=True)
            except FileNotFoundError:
                return False
            link.replace(self._link)
        return True


@contextlib.contextmanager
def _local_files() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IndexCacheError(
            f"temporary files in {tempfile.gettempdir()} are unusable: {error}; free disk space, or set TMPDIR"
        ) from error


def _close(descriptor: int, process: int) -> None:
    if os.getpid() == process:
        os.close(descriptor)


def _remove(scratch: GuardedDirectory, process: int) -> None:
    # A forked process inherits the finalizer, but the directory belongs to its parent.
    if os.getpid() == process:
        scratch.close()
