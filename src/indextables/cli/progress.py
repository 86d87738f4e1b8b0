"""A sign of life on the terminal while something takes longer than people like to wait."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from indextables.cli.formatting import visible

if TYPE_CHECKING:
    from indextables.ops.runner import Progress


_PATIENCE_SECONDS = 0.4


class _Sign(Protocol):
    def stop(self) -> None: ...


_signs: list[_Sign] = []


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` on stderr if it takes long, and only there if it is a terminal. Nothing of it stays."""
    if not sys.stderr.isatty():
        yield
        return
    # Signs of life are for terminals, and what draws them takes its time to import.
    from rich.status import Status

    from indextables.cli.terminal import console_for

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


@contextmanager
def progressing() -> Iterator[Callable[["Progress"], None]]:
    """A function that shows how far a run has come, as a bar on stderr if that is a terminal. Nothing of it stays."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as ProgressBar

    from indextables.cli.terminal import console_for

    bar = ProgressBar(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console_for(sys.stderr),
        transient=True,
    )
    shown: dict[str, TaskID] = {}

    def show(progress: "Progress") -> None:
        if progress.description not in shown:
            shown[progress.description] = bar.add_task(visible(progress.description), total=progress.total)
        bar.update(shown[progress.description], completed=progress.done, total=progress.total)

    _signs.append(bar)
    bar.start()
    try:
        yield show
    finally:
        bar.stop()
        _signs.remove(bar)


def stop_waiting() -> None:
    """Take every sign of life off the screen, for a process that ends in the middle of its work."""
    for sign in _signs:
        sign.stop()
