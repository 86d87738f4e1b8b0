"""Entries on their way to another process: an Arrow stream, compressed, and of a slice no more than the slice."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from indextables.state.state_manifest import ManifestInfo
from indextables.storage import ObjectStore

if TYPE_CHECKING:
    # Readers need no writer.
    from indextables.state.manifest_writer import ManifestForm, ManifestGroup, NewManifest


def to_stream(table: pa.Table) -> bytes:
    """A table as bytes."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(stream: bytes) -> pa.Table:
    """The table of `to_stream`."""
    return pa.ipc.open_stream(stream).read_all()


# Small things are done several at a time, because to begin costs as much as a thousand entries.


T = TypeVar("T")


def portions(items: Iterable[T], entries_of: Callable[[T], int], min_entries: int) -> Iterator[list[T]]:
    """The items in order, as many at a time as it takes for so many entries."""
    portion: list[T] = []
    entries = 0
    for item in items:
        portion.append(item)
        entries += entries_of(item)
        if entries >= min_entries:
            yield portion
            portion, entries = [], 0
    if portion:
        yield portion


# Who reads and writes manifests: this process, unless somebody else was asked to within a block.


class ManifestWork(Protocol):
    """Reads and writes manifests by other means. None leaves it to this process."""

    def read(
        self,
        store: ObjectStore,
        state_version: int,
        manifests: Sequence[ManifestInfo],
        columns: Sequence[str] | None,
    ) -> list[pa.Table] | None:
        """The entries of each manifest, in order, dead ones included; without `columns`, foreign columns too."""

    def write(
        self, store: ObjectStore, form: "ManifestForm", groups: "Sequence[ManifestGroup]"
    ) -> "list[NewManifest] | None":
        """Upload the manifests of all groups, in order."""


_ELSEWHERE: ContextVar[ManifestWork | None] = ContextVar("indextables_manifest_work", default=None)


def work_elsewhere() -> ManifestWork | None:
    """Whoever was asked to work on manifests for this thread."""
    return _ELSEWHERE.get()


@contextmanager
def manifests_by(work: ManifestWork) -> Iterator[None]:
    """Let somebody else work on the manifests of this thread within the block."""
    token = _ELSEWHERE.set(work)
    try:
        yield
    finally:
        _ELSEWHERE.reset(token)
