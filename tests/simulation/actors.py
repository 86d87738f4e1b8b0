"""The actors of a simulation and their tasks: the real operations, on a few prebuilt splits."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from indextables.config import Settings
from indextables.errors import ConcurrentMaintenanceError, VersionNotFoundError
from indextables.ops import columns
from indextables.ops.after_commit import after_commit
from indextables.ops.checkpoint.with_cleanup import checkpoint_with_cleanup, compact_with_cleanup
from indextables.ops.merge import MergeRequest, merge_splits
from indextables.ops.purge.garbage import collect_garbage
from indextables.ops.purge.operation import purge
from indextables.ops.purge.report import PurgeRequest
from indextables.ops.restore import RestoreRequest, restore
from indextables.ops.runner import LocalRunner
from indextables.ops.truncate import truncate_time_travel
from indextables.ops.write import (
    add_of,
    check_uploads,
    deleting_unless_landed,
    drop_partitions,
    set_properties,
)
from indextables.predicates import parse_predicate
from indextables.storage import ObjectStore, RetryingStore
from indextables.table import Operation, Snapshot, TableContext, changes_since, commit, load_snapshot
from indextables.table.intent import Append, Intent, Overwrite
from indextables.table.load import catch_up
from simulation.scheduler import BatonStore
from simulation.witness import Author, InvariantError, WitnessStore
from support.purge_tables import SAMPLES, sample_split
from support.tables import options

DATES = ("2024-01-01", "2024-01-02")

# No threads inside an operation: only the scheduler decides which process runs next.
SINGLE_THREADED = {
    "checkpoint.parallelism": "1",
    "state.read.parallelism": "1",
    "read.parallelism": "1",
    "merge.parallelism": "1",
    "purge.parallelism": "1",
    "checkpoint.async.enabled": "false",
    "indexWriter.heapSize": "32M",
    "purge.deleteRetries": "1",
}


@dataclass
class Actor:
    """A client of the table with its own store and settings. `handle` is its last snapshot."""

    name: str
    store: BatonStore
    context: TableContext
    dice: random.Random
    witness: WitnessStore
    handle: Snapshot | None = None
    followed: "Followed | None" = None
    uploads: int = 0

    @classmethod
    def new(
        cls,
        name: str,
        store: BatonStore,
        dice: random.Random,
        witness: WitnessStore,
        settings: dict[str, str],
    ) -> "Actor":
        own_store: ObjectStore = RetryingStore(store) if dice.random() < 0.5 else store
        resolved = Settings.resolve(options({**SINGLE_THREADED, **settings}))
        return cls(name, store, TableContext(own_store, resolved), dice, witness)

    def snapshot(self) -> Snapshot:
        """The last snapshot, however stale, or the newest one."""
        if self.handle is None or self.dice.random() < 0.6:
            self.handle = load_snapshot(self.context)
        return self.handle


@dataclass
class Followed:
    """The position of a stream in the log, and the live files by the changes that it has seen."""

    version: int
    files: dict[str, int]


@dataclass(frozen=True)
class Acknowledged:
    """The version that an operation reports as committed, or None if there was nothing to commit."""

    version: int | None


@dataclass(frozen=True)
class Task:
    """A task of an actor. Writers return an `Acknowledged`. Maintenance may commit a COMPACT or a PURGE version."""

    name: str
    run: Callable[[Actor], Any]
    weight: float
    split_hours: float | None = field(default=None)


# --- writers ----------------------------------------------------------------------------------------


def append(actor: Actor) -> Acknowledged:
    snapshot = actor.snapshot()
    adds = _uploaded(actor, actor.dice.randint(1, 2))
    return _write(actor, snapshot, Append(adds, has_new_paths=True), Operation("WRITE"))


def overwrite(actor: Actor) -> Acknowledged:
    snapshot = actor.snapshot()
    return _write(actor, snapshot, Overwrite(_uploaded(actor, 1)), Operation("OVERWRITE"))


def overwrite_partition(actor: Actor) -> Acknowledged:
    snapshot = actor.snapshot()
    adds = _uploaded(actor, 1)
    where = f"date = '{adds[0].partition_values['date']}'"
    intent = Overwrite(adds, parse_predicate(where))
    return _write(actor, snapshot, intent, Operation("OVERWRITE", {"predicate": where}))


def drop(actor: Actor) -> Acknowledged:
    result = drop_partitions(actor.snapshot(), f"date = '{actor.dice.choice(DATES)}'")
    actor.handle = result.snapshot
    return Acknowledged(result.version if result.is_committed else None)


def change_properties(actor: Actor) -> Acknowledged:
    result = set_properties(actor.snapshot(), {"owner": str(actor.dice.randrange(4))})
    actor.handle = result.snapshot
    return Acknowledged(result.version if result.is_committed else None)


def change_columns(actor: Actor) -> Acknowledged:
    """Add, rename or drop one of the columns that only this task has made."""
    snapshot, name = actor.snapshot(), f"extra{actor.dice.randrange(3)}"
    extras = [known for known in snapshot.schema.names if known.startswith("extra")]
    if name not in extras:
        old = actor.dice.choice([None, *extras])
        change = (
            columns.add_column(
                snapshot, name, actor.dice.choice(["int", "string"]), actor.dice.choice([None, "7"])
            )
            if old is None
            else columns.rename_column(snapshot, old, name)
        )
    else:
        change = columns.drop_column(snapshot, name)
    result = columns.change_columns(snapshot, [change])
    actor.handle = result.snapshot
    return Acknowledged(result.version if result.is_committed else None)


def restore_older(actor: Actor) -> Acknowledged:
    """Restore one of the last versions: files become live again under their old paths."""
    snapshot = actor.snapshot()
    older = max(snapshot.version - actor.dice.randint(1, 6), 0)
    result = restore(snapshot, RestoreRequest(older))
    actor.handle = result.snapshot
    return Acknowledged(result.version if result.is_committed else None)


def merge(actor: Actor) -> Acknowledged:
    result = merge_splits(actor.snapshot(), MergeRequest(max_source_splits_per_merge=4), LocalRunner(1))
    actor.handle = result.snapshot
    return Acknowledged(result.version)


def _uploaded(actor: Actor, count: int) -> tuple:
    store, adds = actor.context.store, []
    for _ in range(count):
        actor.uploads += 1
        number, date = actor.dice.randrange(SAMPLES), actor.dice.choice(DATES)
        data, file = sample_split(number)
        path = f"date={date}/{actor.name}-{actor.uploads}.split"
        actor.witness.sample_of[path] = number
        store.put(path, data)
        adds.append(
            msgspec.structs.replace(
                add_of(file),
                path=path,
                partition_values={"date": date},
                modification_time=store.clock.now_ms(),
            )
        )
    return tuple(adds)


def _write(actor: Actor, snapshot: Snapshot, intent: Intent, operation: Operation) -> Acknowledged:
    """Commit uploaded splits as `ops.write.append` does."""
    uploaded_ms = {add.path: add.modification_time for add in intent.adds}
    with deleting_unless_landed(actor.context.store, list(uploaded_ms)):
        result = commit(snapshot, intent, operation, before_each_try=partial(check_uploads, uploaded_ms))
    actor.handle = after_commit(result.snapshot) if result.is_committed else result.snapshot
    return Acknowledged(result.version if result.is_committed else None)


# --- maintenance ------------------------------------------------------------------------------------


def checkpoint(actor: Actor) -> None:
    checkpoint_with_cleanup(actor.snapshot())


def compaction(actor: Actor) -> None:
    compact_with_cleanup(actor.snapshot())


def garbage(actor: Actor) -> None:
    collect_garbage(load_snapshot(actor.context), dry_run=False)


def purge_for(hours: int, log_hours: int | None) -> Callable[[Actor], None]:
    def run(actor: Actor) -> None:
        purge(load_snapshot(actor.context), PurgeRequest(hours, log_hours, dry_run=False), LocalRunner(1))

    return run


def truncate(actor: Actor) -> None:
    truncate_time_travel(load_snapshot(actor.context), LocalRunner(1), dry_run=False)


# --- readers ----------------------------------------------------------------------------------------


def read(actor: Actor) -> None:
    actor.handle = load_snapshot(actor.context)
    _compare(actor, actor.handle)


def read_again(actor: Actor) -> None:
    """Read a snapshot that may be stale: it shows its version, unless maintenance removed the files."""
    snapshot = actor.handle or load_snapshot(actor.context)
    try:
        _compare(actor, snapshot)
    except ConcurrentMaintenanceError:
        actor.handle = None


def refresh(actor: Actor) -> None:
    actor.handle = catch_up(actor.handle or load_snapshot(actor.context)).snapshot
    _compare(actor, actor.handle)


def follow(actor: Actor) -> None:
    """Follow the table as a stream: the changes since the last position lead to the newest version."""
    snapshot = load_snapshot(actor.context)
    if actor.followed is None:
        actor.followed = Followed(snapshot.version, _sizes(snapshot))
        return
    try:
        changes = changes_since(snapshot, actor.followed.version)
    except (VersionNotFoundError, ConcurrentMaintenanceError):
        actor.followed = None
        return
    files = dict(actor.followed.files)
    for path in changes.removes["path"].to_pylist():
        del files[path]
    files |= zip(changes.adds["path"].to_pylist(), changes.adds["size"].to_pylist(), strict=True)
    _expect(actor, snapshot.version, files, f"the changes since version {actor.followed.version}")
    actor.followed = Followed(snapshot.version, files)


def _compare(actor: Actor, snapshot: Snapshot) -> None:
    _expect(actor, snapshot.version, _sizes(snapshot), "a snapshot")
    if (snapshot.num_files, snapshot.total_bytes) != (len(_sizes(snapshot)), sum(_sizes(snapshot).values())):
        raise InvariantError(f"the counts of version {snapshot.version} are wrong")


def _sizes(snapshot: Snapshot) -> dict[str, int]:
    entries = snapshot.entries
    return dict(zip(entries["path"].to_pylist(), entries["size"].to_pylist(), strict=True))


def _expect(actor: Actor, version: int, found: dict[str, int], what: str) -> None:
    files = actor.witness.history[version].files.values()
    expected = {file.path: file.size for file in files}
    if found != expected:
        raise InvariantError(
            f"{what} of version {version} shows {sorted(found)}, but {sorted(expected)} was committed"
        )


TASKS = (
    Task("append", append, 30),
    Task("overwrite", overwrite, 3),
    Task("overwrite a partition", overwrite_partition, 4),
    Task("drop a partition", drop, 3),
    Task("set a property", change_properties, 2),
    Task("change columns", change_columns, 4),
    Task("merge", merge, 5),
    Task("restore", restore_older, 4),
    Task("checkpoint", checkpoint, 6),
    Task("compact", compaction, 4),
    Task("collect garbage", garbage, 4),
    Task("purge", purge_for(24, None), 4, split_hours=24),
    Task("purge all of the log", purge_for(48, 0), 4, split_hours=48),
    Task("truncate", truncate, 3),
    Task("read", read, 6),
    Task("read again", read_again, 6),
    Task("refresh", refresh, 4),
    Task("follow", follow, 8),
)


def author_of(actor: Actor, task: Task, number: int) -> Author:
    return Author(f"{actor.name}#{number} {task.name}", task.split_hours)
