"""Reads and writes the manifests of very large states with the tasks of a runner."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.config.registry import STATE_MANIFESTS_PER_DRIVER
from indextables.ops.runner import Failed, Interruption, Runner, Task, TaskStore
from indextables.ops.write import delete_quietly
from indextables.state.manifest_executor import batches, from_stream, to_stream
from indextables.state.manifest_writer import ManifestForm, ManifestGroup, NewManifest, write_group
from indextables.state.source import StateSource
from indextables.state.state_manifest import ManifestInfo
from indextables.table import TableContext

T = TypeVar("T")

# The minimum number of entries per task: fewer are not worth the overhead.
_ENTRIES_PER_TASK: Final = 200_000


def with_manifests_by(context: TableContext, runner: Runner | None) -> TableContext:
    """Return a context whose manifests `runner` reads and writes; without a runner, the context itself.

    This process still handles states with no more manifests than `state.manifestsPerDriver`, because that is faster.
    """
    if runner is None:
        return context
    limit = context.settings[STATE_MANIFESTS_PER_DRIVER]
    return replace(context, manifest_executor=_RunnerExecutor(TaskStore.of(context), limit, runner))


@dataclass(frozen=True, slots=True)
class ReadManifests(Task[tuple[bytes, ...]]):
    """Decodes manifests of one state. The result has an Arrow stream for each manifest."""

    store: TaskStore
    state_version: int
    manifests: tuple[ManifestInfo, ...]
    columns: tuple[str, ...] | None

    def run(self, interruption: Interruption) -> tuple[bytes, ...]:
        """Return the entries of all manifests, in order. Raises ManifestCorruptedError and storage errors."""
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
        """Upload the manifests under new names.

        Raises the errors of `write_group`. PURGE garbage-collects the manifests of a failed attempt.
        """
        interruption.check()
        return write_group(self.store.store, self.form, self.group)

    def discard(self, result: tuple[NewManifest, ...]) -> None:
        delete_quietly(self.store.store, [manifest.key for manifest in result])


class _RunnerExecutor(msgspec.Struct, frozen=True):
    """A `ManifestExecutor` that hands the work to a runner if there are more than `max_manifests_here` manifests.

    A `max_manifests_here` of 0 turns it off.
    """

    store: TaskStore
    max_manifests_here: int
    runner: Runner

    def read(
        self, state_version: int, manifests: Sequence[ManifestInfo], columns: Sequence[str] | None
    ) -> list[pa.Table] | None:
        if not self._takes(len(manifests)):
            return None
        names = None if columns is None else tuple(columns)
        streams = self._run(
            "reading the table's state",
            [
                ReadManifests(self.store, state_version, tuple(batch), names)
                for batch in batches(manifests, attrgetter("num_entries"), _ENTRIES_PER_TASK)
            ],
        )
        return [from_stream(stream) for batch in streams for stream in batch]

    def write(self, form: ManifestForm, groups: Sequence[ManifestGroup]) -> list[NewManifest] | None:
        if not self._takes(sum(len(group.counts) for group in groups)):
            return None
        written = self._run(
            "writing the table's state", [WriteManifests(self.store, form, group) for group in groups]
        )
        return [manifest for group in written for manifest in group]

    def _takes(self, num_manifests: int) -> bool:
        return 0 < self.max_manifests_here < num_manifests

    def _run(self, description: str, tasks: Sequence[Task[T]]) -> list[T]:
        """Return the results of all tasks, in order. If a task fails, discard the other results and raise its error."""
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
