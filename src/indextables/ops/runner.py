"""Who executes the tasks of an operation: threads here, or anybody else who keeps to the same protocol.

A task is a picklable value that opens its own stores, so that it can run in another process or on another machine.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Generic, Protocol, TypeVar

import msgspec

from indextables.config.setting import Setting
from indextables.errors import InvalidOptionError, OperationInterruptedError
from indextables.storage import ObjectStore, StoreLocation
from indextables.table import TableContext

T = TypeVar("T")


class Interruption:
    """Tells a running task that nobody waits for its result any more. One within another is set with it."""

    def __init__(self, outer: "Interruption | None" = None) -> None:
        self._outer = outer
        self._is_set = threading.Event()

    def set(self) -> None:
        """Ask all tasks that share this interruption to stop."""
        self._is_set.set()

    @property
    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self._is_set.is_set() or (self._outer is not None and self._outer.is_set)

    def check(self) -> None:
        """Raise OperationInterruptedError if somebody asked. For tasks, now and then."""
        if self.is_set:
            raise OperationInterruptedError("the operation was interrupted; what it had begun was taken back")


class Task(ABC, Generic[T]):
    """A picklable piece of work, independent of the others. It may run more than once.

    Tasks are dataclasses, since a Struct cannot have an abstract base.
    """

    __slots__ = ()

    @abstractmethod
    def run(self, interruption: Interruption) -> T:
        """Do the work. After an error nothing is left of it that anybody would have to take back."""

    def discard(self, result: T) -> None:  # most tasks leave nothing behind
        """Take back what was done: the result never reached whoever asked for it. Raises nothing."""


class Succeeded(msgspec.Struct, Generic[T], frozen=True):
    """The result of the task at `index` in the sequence that was run."""

    index: int
    result: T


class Failed(msgspec.Struct, frozen=True):
    """The error of the task at `index` in the sequence that was run."""

    index: int
    error: Exception


TaskOutcome = Succeeded[T] | Failed


class Progress(msgspec.Struct, frozen=True):
    """How far a run has come."""

    description: str
    done: int
    total: int


class Runner(Protocol):
    """Executes tasks."""

    def run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        """The outcome of every task, as they come, in no particular order; the error of a task is an outcome, too.

        Whoever stops early, by an error or an interruption, closes the iterator: no further task is started then,
        and it returns when the running ones have ended and the results that nobody received were discarded.
        """
        ...


class LocalRunner:
    """Runs tasks in up to `parallelism` threads of this process; 0 is one for each processor.

    `progress` is told whenever a task is done. Whoever keeps the `interruption` can stop a run from another thread:
    it then ends with an OperationInterruptedError.
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

    def _run(self, description: str, tasks: Sequence[Task[T]]) -> Generator[TaskOutcome[T], None, None]:
        # Closing this run must not stop another one of the same runner.
        closing = Interruption(self._interruption)
        waiting = iter(enumerate(tasks))
        running: dict[Future[T], int] = {}
        done = 0
        with ThreadPoolExecutor(min(self._parallelism, len(tasks)), "indextables-task") as pool:
            try:
                while True:
                    closing.check()
                    # No more are handed over than can run, so that closing has nothing to call off.
                    for index, task in islice(waiting, self._parallelism - len(running)):
                        running[pool.submit(task.run, closing)] = index
                    if not running:
                        return
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done += 1
                        self._progress(Progress(description, done, len(tasks)))
                        outcome = _outcome(future, running[future])
                        # Until it is handed over it counts as not received.
                        del running[future]
                        yield outcome
            finally:
                closing.set()
                for future, index in running.items():
                    if future.exception() is None:
                        tasks[index].discard(future.result())


def local_runner(
    context: TableContext, parallelism: Setting[int], progress: Callable[[Progress], None] | None = None
) -> LocalRunner:
    """Threads of this process for an operation on a table, as many as its parallelism setting allows."""
    return LocalRunner(context.settings[parallelism], progress)


def _outcome(future: Future[T], index: int) -> TaskOutcome[T]:
    error = future.exception()
    if error is None:
        return Succeeded(index, future.result())
    if isinstance(error, Exception):
        return Failed(index, error)
    raise error


# A table's store inside a task, which may be executed in another process.


class TaskStore:
    """The very store of a table in this process; unpickled in another one, it is opened there from its location.

    Pickling raises InvalidOptionError for a table that was not opened by a path.
    """

    __slots__ = ("_location", "store")

    def __init__(self, store: ObjectStore, location: StoreLocation | None) -> None:
        self.store = store
        self._location = location

    @classmethod
    def of(cls, context: TableContext) -> "TaskStore":
        """The store of a table."""
        return cls(context.store, context.location)

    def __reduce__(self) -> tuple[object, ...]:
        if self._location is None:
            raise InvalidOptionError(
                f"{self.store.url}: a store that was handed over as an object cannot go to another process; open "
                f"the table by its path"
            )
        return (_opened, (self._location,))


def _opened(location: StoreLocation) -> TaskStore:
    return TaskStore(location.open(), location)


# Streams produced by several threads, consumed in order, in bounded memory.


S = TypeVar("S")

# How many items of one stream wait for the consumer.
_ITEMS_AHEAD = 4


def parallel_map(function: Callable[[S], T], items: Sequence[S], parallelism: int) -> list[T]:
    """The results of a function, in the order of the items, computed by up to `parallelism` threads."""
    if len(items) <= 1 or parallelism <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(parallelism, len(items)), thread_name_prefix="indextables") as pool:
        return list(pool.map(function, items))


def ordered_streams(streams: Iterable[Callable[[], Iterator[T]]], parallelism: int) -> Iterator[T]:
    """The items of all streams, one stream after the other, while the next ones are being produced already.

    An error in a stream is raised where its next item would have come. No thread ever waits for the consumer: one
    that stops early, or just never comes back, keeps nobody from ending.
    """
    stop = threading.Event()
    waiting = iter(streams)
    with ThreadPoolExecutor(parallelism, thread_name_prefix="indextables") as pool:
        started = deque(_Stream(pool, stream, stop) for stream in islice(waiting, parallelism))
        try:
            while started:
                yield from started.popleft()
                started.extend(_Stream(pool, stream, stop) for stream in islice(waiting, 1))
        finally:
            stop.set()


class _End(msgspec.Struct, frozen=True):
    """The end of a stream, and why it ended if that was not its own doing."""

    error: BaseException | None = None


class _Stream(Generic[T]):
    """A stream of which some items are ready. A thread works on it as long as there is room for more."""

    def __init__(
        self, pool: ThreadPoolExecutor, stream: Callable[[], Iterator[T]], stop: threading.Event
    ) -> None:
        self._pool = pool
        self._source = _open_streams(stream)
        self._stop = stop
        self._ready: deque[T | _End] = deque()
        self._changed = threading.Condition()
        self._is_at_work = True
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
            if not self._is_at_work:
                self._is_at_work = True
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
                    self._is_at_work = False
                    return

    def _next(self) -> T | _End:
        try:
            return next(self._source, _End())
        except BaseException as error:  # noqa: BLE001  # handed to the consumer, whatever it is
            return _End(error)


def _open_streams(stream: Callable[[], Iterator[T]]) -> Iterator[T]:
    """The items of a stream, which is opened by the thread that asks for the first of them."""
    yield from stream()
