"""Warnings of Python and of the package's loggers, as lines that people understand."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from indextables.cli.output import print_warning
from indextables.config import SettingWarning

_PACKAGE_LOGGER = "indextables"


@contextmanager
def complaints_as_lines() -> Iterator[None]:
    """While it lasts, warnings go to stderr as "warning: …", each of them once."""
    shown: set[str] = set()

    def show_once(message: str) -> None:
        if message not in shown:
            shown.add(message)
            print_warning(message)

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        show_once(str(message))

    handler = _LineHandler(show_once)
    logger = logging.getLogger(_PACKAGE_LOGGER)
    with warnings.catch_warnings():
        warnings.simplefilter("always", SettingWarning)
        warnings.showwarning = show_warning
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


class _LineHandler(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())
