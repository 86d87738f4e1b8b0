"""Reading and writing manifests outside this process: the interface, and how work is batched and sent."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from indextables.state.state_manifest import ManifestInfo

if TYPE_CHECKING:
    # Readers do not import writers, which keeps start-up fast.
    from indextables.state.manifest_writer import ManifestForm, ManifestGroup, NewManifest

T = TypeVar("T")


class ManifestExecutor(Protocol):
    """Reads and writes the manifests of one table outside this process.

    Either method may return None: this process then does the work itself, which is faster for a few manifests.
    """

    def read(
        self, state_version: int, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None
    ) -> list[pa.Table] | None:
        """The entries of each manifest, in order, dead ones included; without `columns`, foreign columns too."""

    def write(self, form: "ManifestForm", groups: "Sequence[ManifestGroup]") -> "list[NewManifest] | None":
        """Upload the manifests of all groups, in order."""


def batches(items: Iterable[T], entries_of: Callable[[T], int], min_entries: int) -> Iterator[list[T]]:
    """The items, in order, in batches of at least `min_entries` entries; only the last one may have fewer.

    Starting a piece of work costs as much as processing a thousand entries.
    """
    batch: list[T] = []
    entries = 0
    for item in items:
        batch.append(item)
        entries += entries_of(item)
        if entries >= min_entries:
            yield batch
            batch, entries = [], 0
    if batch:
        yield batch


def to_stream(table: pa.Table) -> bytes:
    """A table as a compressed Arrow stream. Of a slice, only the rows of the slice are included."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_stream(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
