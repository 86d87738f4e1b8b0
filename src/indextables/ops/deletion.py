"""Deleting many objects: in batches, a bounded number of them at once, patiently."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from indextables.config.registry import PURGE_DELETE_RETRIES
from indextables.errors import StorageError
from indextables.ops.runner import Failed, Interruption, Runner, Task
from indextables.ops.task_store import TaskStore
from indextables.storage import RetryingStore, RetryPolicy
from indextables.table import TableContext

# What the stores take in one request.
BATCH_KEYS: Final = 1000

# A store that asks for fewer requests wants seconds, not milliseconds.
_BASE_SECONDS: Final = 0.5
_CAP_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class DeleteBatch(Task[None]):
    """Deletes objects. An absent one is no error, so that it may run again."""

    store: TaskStore
    keys: tuple[str, ...]
    retries: int

    def run(self, interruption: Interruption) -> None:
        """Delete all of them, or raise a StorageError: then some may be gone."""
        interruption.check()
        policy = RetryPolicy(1 + self.retries, _BASE_SECONDS, _CAP_SECONDS)
        RetryingStore(self.store.store, policy).delete_many(self.keys)


class Deletion(msgspec.Struct, frozen=True):
    """What became of a sequence of keys: which are gone for certain, and why others may not be."""

    is_deleted: npt.NDArray[np.bool_]
    errors: tuple[str | None, ...]

    @property
    def first_error(self) -> str | None:
        """Why a key could not be deleted, if there is one."""
        return next((error for error in self.errors if error is not None), None)


def delete_keys(context: TableContext, keys: Sequence[str], runner: Runner, description: str) -> Deletion:
    """Delete objects, going on after a batch that fails in spite of all retries.

    Raises what is no failure of the store.
    """
    store, retries = TaskStore.of(context), context.settings[PURGE_DELETE_RETRIES]
    starts = range(0, len(keys), BATCH_KEYS)
    tasks = [DeleteBatch(store, tuple(keys[start : start + BATCH_KEYS]), retries) for start in starts]
    is_deleted = np.zeros(len(keys), dtype=np.bool_)
    errors: list[str | None] = [None] * len(keys)
    for outcome in runner.run(description, tasks):
        start, count = starts[outcome.index], len(tasks[outcome.index].keys)
        if not isinstance(outcome, Failed):
            is_deleted[start : start + count] = True
        elif isinstance(outcome.error, StorageError):
            errors[start : start + count] = [str(outcome.error)] * count
        else:
            raise outcome.error
    return Deletion(is_deleted, tuple(errors))
