"""How the process ends: its exit code, and Ctrl-C even while a native library blocks the interpreter.

Python raises KeyboardInterrupt only between two bytecode instructions. A call into a library, such as a store's client
that waits for a response, can delay it until the library's timeouts expire; so can threads that must be joined. A
watcher thread therefore receives the signal too, gives the command a moment to end, and then ends the process. The log
tolerates writers that disappear at any point.
"""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from indextables.cli.new_file import delete_unfinished_files
from indextables.cli.output import print_interrupted
from indextables.cli.progress import stop_progress

INTERRUPTED = 130

_GRACE_SECONDS = 2.0

_print_lock = threading.Lock()
_is_announced = threading.Event()


def end_process(code: int) -> NoReturn:
    """End the process with this exit code, after Python's own exit handlers.

    Skips the unloading of native libraries: one of their threads may still be running then, and abort the process with
    an exit code that hides a command's success.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads, as the interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # The reader may have closed the pipe.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def prompt_interrupts() -> Iterator[None]:
    """Make Ctrl-C end the process soon, and a second Ctrl-C immediately, from here until the process ends.

    Only for the main thread of our own process.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    previous = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_after_interrupt, args=(receiver,), name="interrupts", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        sender.close()


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C caused an error, perhaps by interrupting a library."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def announce_interrupt() -> None:
    """Print that the command was interrupted. The watcher thread then prints nothing."""
    with _print_lock:
        print_interrupted()
        _is_announced.set()


def _end_after_interrupt(receiver: socket.socket) -> None:
    while (signals := receiver.recv(1)) and signals[0] != signal.SIGINT:
        pass
    if not signals:
        return
    _give_time_to_end(receiver)
    with _print_lock:
        if not _is_announced.is_set():
            stop_progress()
            print_interrupted()
    delete_unfinished_files()
    os._exit(INTERRUPTED)


def _give_time_to_end(receiver: socket.socket) -> None:
    receiver.settimeout(_GRACE_SECONDS)
    with contextlib.suppress(TimeoutError):
        while (signals := receiver.recv(1)) and signals[0] != signal.SIGINT:
            pass
        if not signals:
            # The command has ended, and the interpreter is shutting down.
            threading.Event().wait(_GRACE_SECONDS)
