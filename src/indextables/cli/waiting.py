"""A sign of life on the terminal while something takes longer than people like to wait."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.status import Status

from indextables.cli.output import console_for
from indextables.cli.people import visible

_PATIENCE_SECONDS = 0.4

_signs: list[Status] = []


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` on stderr if it takes long, and only there if it is a terminal. Nothing of it stays."""
    if not sys.stderr.isatty():
        yield
        return
    sign = Status(visible(what), console=console_for(sys.stderr))
    # What is done sooner leaves the screen alone.
    timer = threading.Timer(_PATIENCE_SECONDS, sign.start)
    timer.daemon = True
    _signs.append(sign)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        sign.stop()
        _signs.remove(sign)


def stop_waiting() -> None:
    """Take every sign of life off the screen, for a process that ends in the middle of its work."""
    for sign in _signs:
        sign.stop()
