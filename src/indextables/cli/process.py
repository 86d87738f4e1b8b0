"""The end of a process, without a chance for native libraries to spoil it."""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from indextables.cli.output import print_interrupted
from indextables.cli.progress import stop_waiting


def end_process(code: int) -> NoReturn:
    """End the process with this exit code, after everything that Python would do at its end.

    Threads of native libraries that are still at work while their libraries are unloaded abort the process at times,
    with an exit code that hides a command's success. So the libraries are not unloaded.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Who stopped reading has what they wanted.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


# Ctrl-C, also where the interpreter does not get to see it.
#
# Python raises KeyboardInterrupt between two of its own instructions. A call into a library, such as a
# store's client that waits for an answer, can keep it from getting there for as long as the library's time-
# outs allow; so can threads that have to be joined. A thread of our own therefore hears of the signal at the
# same time, gives the command a moment to end by itself, and then ends the process. The log is made for
# writers that vanish at any point.


INTERRUPTED = 130

_GRACE_SECONDS = 2.0

_saying = threading.Lock()
_is_said = threading.Event()


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """While it lasts, and while the process ends after it, Ctrl-C ends the process soon, and a second one at once.

    For the main thread of a process that is ours alone.
    """
    hearing, telling = socket.socketpair()
    telling.setblocking(False)
    previous = signal.set_wakeup_fd(telling.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after_interrupt, args=(hearing,), name="interrupts", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        telling.close()


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C, or what a library that was interrupted has made of it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def announce_interrupt() -> None:
    """Say that the command was interrupted; the process then has nothing more to say about it."""
    with _saying:
        print_interrupted()
        _is_said.set()


def _end_after_interrupt(hearing: socket.socket) -> None:
    while (signals := hearing.recv(1)) and signals[0] != signal.SIGINT:
        pass
    if not signals:
        return
    _give_time_to_end(hearing)
    with _saying:
        if not _is_said.is_set():
            stop_waiting()
            print_interrupted()
    os._exit(INTERRUPTED)


def _give_time_to_end(hearing: socket.socket) -> None:
    hearing.settimeout(_GRACE_SECONDS)
    with contextlib.suppress(TimeoutError):
        while (signals := hearing.recv(1)) and signals[0] != signal.SIGINT:
            pass
        if not signals:
            # The command is over; what is left is the end of the interpreter.
            threading.Event().wait(_GRACE_SECONDS)
