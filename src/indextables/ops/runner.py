"""Runners execute the tasks of an operation: in threads of this process, or anywhere else by the same protocol.

A task is a picklable value that opens its own stores, so it can run in another process or on another machine.
"""

import os
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from indextables.config.setting import Setting
from indextables.errors import InvalidOptionError, OperationInterruptedError
from indextables.split.index_cache import IndexCache
from indextables.storage import ObjectStore, StoreLocation
from indextables.table import TableContext

S = TypeVar("S")
T = TypeVar("T")

# How many items of one stream are produced ahead of the consumer.
_ITEMS_AHEAD: Final = 4


class Interruption:
    """Tells running tasks to stop. An interruption with an `outer` one is also set when that one is set."""

    def __init__(self, outer: "Interruption | None" = None) -> None:
        self._outer = outer
        self._is_set = threading.Event()

    def set(self) -> None:
        """Tell all tasks that share this interruption to stop."""
        self._is_set.set()

    @property
    def is_set(self) -> bool:
        return self._is_set.is_set() or (self._outer is not None and self._outer.is_set)

    def check(self) -> None:
        """Raise OperationInterruptedError if set. Tasks call this regularly."""
        if self.is_set:
            raise OperationInterruptedError("the operation was interrupted, and its changes were rolled back")


class Task(ABC, Generic[T]):
    """A picklable unit of work, independent of other tasks. It may run more than once.

    Tasks are dataclasses, because a msgspec Struct cannot have an abstract base class.
    """

    __slots__ = ()

    @abstractmethod
    def run(self, interruption: Interruption) -> T:
        """Do the work. After an error, the task has cleaned up after itself."""

    def discard(self, result: T) -> None:  # most tasks leave nothing behind
        """Undo the work of a result that never reached the caller. Never raises."""


class Succeeded(msgspec.Struct, Generic[T], frozen=True):
    """The result of the task at `index`."""

    index: int
    result: T


class Failed(msgspec.Struct, frozen=True):
    """The error of the task at `index`."""

    index: int
    error: Exception


TaskOutcome = Succeeded[T] | Failed


class HostTask(Task[T]):
    """A task that works on the index cache of the host that it runs on."""

    __slots__ = ()

    @abstractmethod
    def cache(self) -> IndexCache:
        """Return the cache. Processes that share it share the work."""


class Host(msgspec.Struct, frozen=True):
    """A machine or container with an index cache of its own. The `identity` is that of the cache."""

    name: str
    cache_path: str
    identity: str

    @classmethod
    def this(cls, cache: IndexCache) -> "Host":
        """This host, by a cache on it. Raises IndexCacheError."""
        return cls(socket.gethostname(), str(cache.root), cache.identity)


class HostOutcome(NamedTuple, Generic[T]):
    """The outcome of a task on one host."""

    host: Host
    outcome: TaskOutcome[T]


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run, in tasks."""

    description: str
    done: int
    total: int


class Runner(Protocol):
    """Executes tasks. `LocalRunner` uses threads; Spark has a runner that uses executors."""

    def run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        """Yield the outcome of every task as it completes, in no particular order. Errors of tasks are outcomes, too.

        A caller that stops early must close the iterator. Closing starts no further tasks, waits for the running ones,
        and discards the results that the caller did not receive.
        """
        ...

    def run_on_hosts(
        self, description: str, tasks: Sequence[HostTask[T]]
    ) -> Generator[HostOutcome[T], None, None]:
        """Run every task on every host that the runner uses, as `run` does. A task may run on a host more than once."""
        ...


class LocalRunner:
    """Runs tasks in up to `parallelism` threads of this process; 0 means one for each processor.

    `progress` is called after each task. Another thread can stop a run through `interruption`: the run then ends with
    an OperationInterruptedError.
    """

    def __init__(
        self,
        parallelism: int = 0,
        progress: Callable[[Progress], None] | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        self._parallelism = parallelism or os.cpu_count() or 1
        self._progress = progress or (lambda _: None)
        self._interruption = interruption or Interruption()

    def run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        """See `Runner.run`."""
        self._progress(Progress(description, 0, len(tasks)))
        if tasks:
            yield from self._run(description, tasks)

    def run_on_hosts(
        self, description: str, tasks: Sequence[HostTask[T]]
    ) -> Generator[HostOutcome[T], None, None]:
        """See `Runner.run_on_hosts`: there is one host. Raises IndexCacheError."""
        with closing(self.run(description, tasks)) as outcomes:
            yield from on_this_host(tasks, outcomes)

    def _run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        # Closing this run must not stop another run of the same runner.
        stop = Interruption(self._interruption)
        pending = iter(enumerate(tasks))
        running: dict[Future[T], int] = {}
        done = 0
        with ThreadPoolExecutor(min(self._parallelism, len(tasks)), "indextables-task") as pool:
            try:
                while True:
                    stop.check()
                    # Submit no more tasks than can run at once, so that closing has nothing to cancel.
                    for index, task in islice(pending, self._parallelism - len(running)):
                        running[pool.submit(task.run, stop)] = index
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done += 1
                        self._progress(Progress(description, done, len(tasks)))
                        outcome = _outcome(future, running[future])
                        # If the progress callback raises, the result was not received and is discarded below.
                        del running[future]
                        yield outcome
            finally:
                stop.set()
                for future, index in running.items():
                    if future.exception() is None:
                        tasks[index].discard(future.result())


def on_this_host(
    tasks: Sequence[HostTask[T]], outcomes: Iterable[TaskOutcome[T]]
) -> Iterator[HostOutcome[T]]:
    """The outcomes of tasks on this host. Raises IndexCacheError."""
    for outcome in outcomes:
        yield HostOutcome(Host.this(tasks[outcome.index].cache()), outcome)


def local_runner(
    context: TableContext, parallelism: Setting[int], progress: Callable[[Progress], None] | None = None
) -> LocalRunner:
    """Threads of this process for an operation on a table, as many as its parallelism setting allows."""
    return LocalRunner(context.settings[parallelism], progress)


class TaskStore:
    """The store of a table inside a task. In this process it is the table's own store.

    Unpickling in another process opens the store from its location. Pickling raises InvalidOptionError for a table that
    was not opened by path.
    """

    __slots__ = ("_location", "store")

    def __init__(self, store: ObjectStore, location: StoreLocation | None) -> None:
        self.store = store
        self._location = location

    @classmethod
    def of(cls, context: TableContext) -> "TaskStore":
        return cls(context.store, context.location)

    def __reduce__(self) -> tuple[object, ...]:
        if self._location is None:
            raise InvalidOptionError(
                f"{self.store.url}: a store that was passed as an object cannot be sent to another process; open the "
                f"table by its path"
            )
        return (_open_task_store, (self._location,))


def results(runner: Runner, description: str, tasks: Sequence[Task[T]]) -> Iterator[T]:
    """Yield the results of all tasks, in no particular order. Raises the first error of a task."""
    with closing(runner.run(description, tasks)) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                raise outcome.error
            yield outcome.result


def parallel_map(function: Callable[[S], T], items: Sequence[S], parallelism: int) -> list[T]:
    """The results of a function, in the order of the items, computed in up to `parallelism` threads."""
    if len(items) <= 1 or parallelism <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(parallelism, len(items)), thread_name_prefix="indextables") as pool:
        return list(pool.map(function, items))


def ordered_streams(streams: Iterable[Callable[[], Iterator[T]]], parallelism: int) -> Iterator[T]:
    """The items of all streams, one stream after the other, while threads already produce the next streams.

    Memory is bounded: each stream is only a few items ahead. An error in a stream is raised in place of its next item.
    No thread ever blocks on the consumer, so a consumer that stops early or never returns cannot hang the process.
    """
    stop = threading.Event()
    pending = iter(streams)
    with ThreadPoolExecutor(parallelism, thread_name_prefix="indextables") as pool:
        started = deque(_Stream(pool, stream, stop) for stream in islice(pending, parallelism))
        try:
            while started:
                yield from started.popleft()
                started.extend(_Stream(pool, stream, stop) for stream in islice(pending, 1))
        finally:
            stop.set()


def _outcome(future: Future[T], index: int) -> TaskOutcome[T]:
    error = future.exception()
    if error is None:
        return Succeeded(index, future.result())
    if isinstance(error, Exception):
        return Failed(index, error)
    raise error


def _open_task_store(location: StoreLocation) -> TaskStore:
    return TaskStore(location.open(), location)


class _End(msgspec.Struct, frozen=True):
    """The end of a stream, with the error that ended it, if any."""

    error: BaseException | None = None


class _Stream(Generic[T]):
    """A stream with a few items ready. A thread produces more while there is room."""

    def __init__(
        self, pool: ThreadPoolExecutor, stream: Callable[[], Iterator[T]], stop: threading.Event
    ) -> None:
        self._pool = pool
        self._source = _opened_lazily(stream)
        self._stop = stop
        self._ready: deque[T | _End] = deque()
        self._changed = threading.Condition()
        self._is_producing = True
        pool.submit(self._produce)

    def __iter__(self) -> Iterator[T]:
        while True:
            item = self._take()
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return

    def _take(self) -> T | _End:
        with self._changed:
            while not self._ready:
                self._changed.wait()
            item = self._ready.popleft()
            if not self._is_producing:
                self._is_producing = True
                self._pool.submit(self._produce)
        return item

    def _produce(self) -> None:
        while True:
            item = self._next()
            with self._changed:
                self._ready.append(item)
                self._changed.notify()
                if isinstance(item, _End):
                    return
                if len(self._ready) >= _ITEMS_AHEAD or self._stop.is_set():
                    self._is_producing = False
                    return

    def _next(self) -> T | _End:
        try:
            return next(self._source, _End())
        except BaseException as error:  # noqa: BLE001  # raised in the consumer's thread
            return _End(error)


def _opened_lazily(stream: Callable[[], Iterator[T]]) -> Iterator[T]:
    """The items of a stream. The thread that takes the first item opens it."""
    yield from stream()
