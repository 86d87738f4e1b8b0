"""Deterministic concurrency: each operation runs in its own thread, one at a time, and yields at every store call.

A seeded random generator decides which process continues, and whether its call succeeds, fails before or after its
effect, takes effect later, or is the last call of a process that crashes. The same seed gives the same run.
"""

import queue
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from indextables.errors import TransientStorageError
from simulation.witness import Author, WitnessStore
from support.faults import FaultStore, Moment

# Far more than any step takes: a thread that has not yielded by then hangs.
_STEP_TIMEOUT_SECONDS = 300


WRITES = ("put", "put_if_absent", "put_if_unchanged", "delete_many")


class CrashError(BaseException):
    """The process crashed: none of its later calls has any effect."""


class Kind(Enum):
    ERROR = "error"
    LATE = "late effect"
    CRASH = "crash"


@dataclass(frozen=True)
class Fate:
    """The fault that a call gets."""

    kind: Kind
    moment: Moment = Moment.BEFORE

    def __str__(self) -> str:
        return (
            self.kind.value if self.kind is Kind.LATE else f"{self.kind.value} {self.moment.value} its effect"
        )


@dataclass
class Call:
    """A store call that waits for the scheduler."""

    operation: str
    key: str
    reply: "queue.SimpleQueue[Fate | None]" = field(default_factory=queue.SimpleQueue)


@dataclass
class Done:
    """The end of an operation, with a result or an error."""

    result: Any = None
    error: BaseException | None = None


class Process:
    """One operation of an actor, in its own thread."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.is_dead = False
        self.asleep_until = 0
        self._events: queue.SimpleQueue[Call | Done] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True, name=name)

    def start(self) -> None:
        self._thread.start()
        self.pending = self._next()

    def resume(self, fate: Fate | None) -> None:
        """Release the waiting call with its fault. Returns at the next call, or at the end of the operation."""
        assert isinstance(self.pending, Call)
        self.pending.reply.put(fate)
        self.pending = self._next()

    def wait_for_turn(self, operation: str, key: str) -> Fate | None:
        """Called in the thread of the operation: wait for the scheduler."""
        call = Call(operation, key)
        self._events.put(call)
        return call.reply.get()

    def _next(self) -> Call | Done:
        event = self._events.get(timeout=_STEP_TIMEOUT_SECONDS)
        if isinstance(event, Done):
            self._thread.join()
        return event

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._events.put(Done(work()))
        except BaseException as error:  # noqa: BLE001  # the simulation checks every outcome
            self._events.put(Done(error=error))


@dataclass(frozen=True)
class LateCall:
    """A call of `author` that takes effect later."""

    author: Author
    text: str
    perform: Callable[[], object]


class BatonStore(FaultStore):
    """The store of an actor: every call waits for the scheduler and gets the fault that it drew."""

    def __init__(self, witness: WitnessStore, late: list["LateCall"], identity: str) -> None:
        super().__init__(witness)
        self.process: Process | None = None
        self._witness = witness
        self._late = late
        self._identity = identity

    @property
    def identity(self) -> str:
        return self._identity

    def _start(self, operation, key):
        super()._start(operation, key)
        assert self.process is not None
        if self.process.is_dead:
            raise CrashError
        return self.process.wait_for_turn(operation, key)

    def _perform(self, operation, key, call):
        fate = self._start(operation, key)
        if fate is not None and fate.kind is Kind.LATE:
            self._late.append(LateCall(self._witness.author, f"{operation} {key}", call))
            raise TransientStorageError(
                f"{operation} {key}: the answer was lost, and the call takes effect later"
            )
        self._fail_if(fate, Moment.BEFORE, operation, key)
        result = call()
        self._fail_if(fate, Moment.AFTER, operation, key)
        return result

    def _fail_if(self, planned, now, operation, key):
        if planned is None or planned.moment is not now:
            return
        if planned.kind is Kind.CRASH:
            self.process.is_dead = True
            raise CrashError
        raise TransientStorageError(f"{operation} {key}: failed on purpose, {now.value} its effect")


@dataclass(frozen=True)
class Odds:
    """The probability of each event, per call."""

    error: float = 0.01
    late: float = 0.002
    crash: float = 0.002
    nap: float = 0.01
    outage: float = 0.001
    jump: float = 0.004

    def fate(self, dice: random.Random, call: Call) -> Fate | None:
        draw, moment = dice.random(), dice.choice(tuple(Moment))
        if draw < self.crash:
            return Fate(Kind.CRASH, moment)
        if draw < self.crash + self.late and call.operation in WRITES:
            return Fate(Kind.LATE)
        if draw < self.crash + self.late + self.error:
            return Fate(Kind.ERROR, moment)
        return None
