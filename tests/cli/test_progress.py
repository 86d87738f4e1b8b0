"""Progress is shown on terminals that take escapes, and nowhere else."""

import io
import re
import sys
from collections.abc import Callable

import pytest

from indextables.cli import progress
from indextables.ingest.operation import IngestProgress
from indextables.ops.runner import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TimerWithoutDelay:
    """Calls the function at once, where a timer would call it if the operation took long enough."""

    daemon = False

    def __init__(self, seconds: float, function: Callable[[], None]) -> None:
        del seconds
        self._function = function

    def start(self) -> None:
        self._function()

    def cancel(self) -> None: ...

    def join(self) -> None: ...


def shown(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """What a spinner and a bar write to a terminal."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress.threading, "Timer", TimerWithoutDelay)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    with progress.working("listing"), progress.progressing() as show:
        show(Progress("merging", 1, 2))
    with progress.progressing_rows() as show_rows:
        show_rows(IngestProgress("indexing", 1234, 50, 100))
    return terminal.getvalue()


def test_a_spinner_and_bars_move_on_a_terminal(monkeypatch):
    written = shown(monkeypatch)
    assert "\x1b" in written
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"indexing .* 50% 1,234 rows, [0-9,]+/s .* left:", text)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_nothing_moves_on_a_terminal_where_escapes_are_turned_off(monkeypatch, environment):
    assert shown(monkeypatch, **environment) == ""
