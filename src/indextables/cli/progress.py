"""Progress on the terminal for operations that take longer than a moment: a spinner, or a bar."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from indextables.cli.formatting import visible
from indextables.cli.output import takes_style

if TYPE_CHECKING:
    from indextables.ingest.operation import IngestProgress
    from indextables.ops.runner import Progress


_DELAY_SECONDS = 0.4


class _Display(Protocol):
    def stop(self) -> None: ...


_displays: list[_Display] = []


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show `what` with a spinner on stderr after a delay, if stderr takes escapes. Erases it at the end."""
    if not takes_style(sys.stderr):
        yield
        return
    # rich is slow to import, and only a terminal needs it.
    from rich.status import Status

    from indextables.cli.terminal import console_for

    spinner = Status(visible(what), console=console_for(sys.stderr))
    timer = threading.Timer(_DELAY_SECONDS, spinner.start)
    timer.daemon = True
    _displays.append(spinner)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()
        _displays.remove(spinner)


@contextmanager
def progressing() -> Iterator[Callable[["Progress"], None]]:
    """A callback that shows progress as a bar on stderr, if stderr takes escapes. Erases it at the end."""
    if not takes_style(sys.stderr):
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

    _displays.append(bar)
    bar.start()
    try:
        yield show
    finally:
        bar.stop()
        _displays.remove(bar)


@contextmanager
def progressing_rows() -> Iterator[Callable[["IngestProgress"], None]]:
    """A callback that shows rows, rate, share and time left as a bar on stderr, if stderr takes escapes."""
    if not takes_style(sys.stderr):
        yield lambda _: None
        return
    from indextables._row_progress import RowBar
    from indextables.cli.terminal import console_for

    bar = RowBar(console_for(sys.stderr))
    _displays.append(bar)

    def show(progress: "IngestProgress") -> None:
        bar.show(visible(progress.description), progress.rows, progress.done_bytes, progress.total_bytes)

    try:
        yield show
    finally:
        bar.stop()
        _displays.remove(bar)


def stop_progress() -> None:
    """Erase all progress displays, for a process that ends in the middle of an operation."""
    for display in _displays:
        display.stop()
