"""The manifests of a gigantic state, read and written by the tasks of a runner, each of them a portion."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from indextables.config.registry import STATE_MANIFESTS_PER_DRIVER
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore
from indextables.ops.uploads import delete_quietly
from indextables.state.manifest_work import from_stream, manifests_by, portions, to_stream
from indextables.state.manifest_writer import ManifestForm, ManifestGroup, NewManifest, write_group
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.storage import ObjectStore
from indextables.table import TableContext

T = TypeVar("T")

# Entries that one task decodes, if a manifest does not have more: less is not worth a job.
_ENTRIES_PER_TASK: Final = 200_000


def manifests_by_runner(context: TableContext, runner: Runner | None) -> AbstractContextManager[None]:
    """Let a runner, if there is one, work on the manifests of a table within the block.

    Where there are no more of them than the settings say, this process does it, which is faster then.
    """
    return nullcontext() if runner is None else manifests_by(_ManifestsByRunner(context, runner))


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
        return tuple(to_stream(table) for table in tables)


@dataclass(frozen=True, slots=True)
class WriteManifests(Task[tuple[NewManifest, ...]]):
    """Uploads manifests that no state refers to yet."""

    store: TaskStore
    form: ManifestForm
    group: ManifestGroup

    def run(self, interruption: Interruption) -> tuple[NewManifest, ...]:
        """Upload them under new names. Raises what `write_group` raises; what it left is for a garbage collection."""
        interruption.check()
        return write_group(self.store.store, self.form, self.group)

    def discard(self, result: tuple[NewManifest, ...]) -> None:
        """Delete them."""
        delete_quietly(self.store.store, [manifest.key for manifest in result])


class _ManifestsByRunner(msgspec.Struct, frozen=True):
    context: TableContext
    runner: Runner

    def read(
        self,
        store: ObjectStore,
        state_version: int,
        manifests: Sequence[ManifestInfo],
        columns: Sequence[str] | None,
    ) -> list[pa.Table] | None:
        if not self._takes(store, len(manifests)):
            return None
        names = None if columns is None else tuple(columns)
        streams = self._run(
            "reading the table's state",
            [
                ReadManifests(TaskStore.of(self.context), state_version, tuple(portion), names)
                for portion in portions(manifests, attrgetter("num_entries"), _ENTRIES_PER_TASK)
            ],
        )
        return [from_stream(stream) for portion in streams for stream in portion]

    def write(
        self, store: ObjectStore, form: ManifestForm, groups: Sequence[ManifestGroup]
    ) -> list[NewManifest] | None:
        if not self._takes(store, sum(len(group.counts) for group in groups)):
            return None
        written = self._run(
            "writing the table's state",
            [WriteManifests(TaskStore.of(self.context), form, group) for group in groups],
        )
        return [manifest for group in written for manifest in group]

    def _takes(self, store: ObjectStore, num_manifests: int) -> bool:
        limit = self.context.settings[STATE_MANIFESTS_PER_DRIVER]
        return 0 < limit < num_manifests and store.identity == self.context.store.identity

    def _run(self, description: str, tasks: Sequence[Task[T]]) -> list[T]:
        """The results of all tasks, in order. Raises the first error, and takes back what the others have done."""
        results: dict[int, T] = {}
        is_done = False
        try:
            with closing(self.runner.run(description, tasks)) as outcomes:
                for outcome in outcomes:
                    if isinstance(outcome, Failed):
                        raise outcome.error
                    results[outcome.index] = outcome.result
            is_done = True
        finally:
            for index, result in () if is_done else results.items():
                tasks[index].discard(result)
        return [results[index] for index in range(len(tasks))]
