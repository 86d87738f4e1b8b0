"""The manifests of a gigantic state, read by executors: each decodes a portion and sends the entries back."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec
import pyarrow as pa

from indextables.config.registry import STATE_READ_MANIFESTS_PER_DRIVER
from indextables.ops.runner import Failed, Interruption, Runner, Task
from indextables.ops.task_store import TaskStore
from indextables.state.portions import portions
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.table import TableContext

# Entries that one task decodes, if a manifest does not have more: less is not worth a job.
_ENTRIES_PER_TASK: Final = 200_000


@dataclass(frozen=True, slots=True)
class ReadManifests(Task[tuple[bytes, ...]]):
    """Decodes manifests of one state; the result is an Arrow stream for each."""

    store: TaskStore
    state_version: int
    manifests: tuple[ManifestInfo, ...]
    columns: tuple[str, ...] | None

    def run(self, interruption: Interruption) -> tuple[bytes, ...]:
        """The entries of all manifests, in order. Raises ManifestCorruptedError and storage errors."""
        interruption.check()
        tables = StateSource.read_files(self.store.store, self.state_version, self.manifests, self.columns)
        return tuple(_encoded(table) for table in tables)


class ManifestsOnExecutors(msgspec.Struct, frozen=True):
    """Reads the manifests of one table by a runner, where there are more of them than the settings allow here."""

    context: TableContext
    runner: Runner

    def __call__(
        self, source: StateSource, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None
    ) -> list[pa.Table] | None:
        """The entries of each manifest, in order; None leaves it to this process. Raises as a local read does."""
        limit = self.context.settings[STATE_READ_MANIFESTS_PER_DRIVER]
        is_ours = source.store.identity == self.context.store.identity
        if not limit or len(manifests) <= limit or not is_ours:
            return None
        tasks = [
            ReadManifests(
                TaskStore.of(self.context),
                source.manifest.state_version,
                tuple(portion),
                None if columns is None else tuple(columns),
            )
            for portion in portions(manifests, attrgetter("num_entries"), _ENTRIES_PER_TASK)
        ]
        results: dict[int, tuple[bytes, ...]] = {}
        with contextlib.closing(self.runner.run("reading the table's state", tasks)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Failed):
                    raise outcome.error
                results[outcome.index] = outcome.result
        return [_decoded(stream) for index in range(len(tasks)) for stream in results[index]]


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decoded(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
