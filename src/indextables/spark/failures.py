"""Errors of our own that Spark reports: raised in a planning process or in a task, and wrapped in Spark's text.

Spark passes an error of Python on as the text of its traceback. On the driver, `raise_own_errors` turns that text back
into the error that was raised, for every call of Spark: loading, saving, SQL and actions such as `count()`.
"""

import functools
import inspect
import logging
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from pyspark.errors import StreamingQueryException

from indextables import errors
from indextables.errors import CleanupFailedError, IndexTablesError, SparkUnavailableError
from indextables.spark.releases import HAS_SOURCES
from indextables.spark.source import FORMATS
from indextables.spark.without_sources import NO_SQL_SOURCE

logger = logging.getLogger(__name__)

# Where Spark converts the errors of the JVM and of a Connect server. It looks this name up in these modules.
_CONVERT: Final = "convert_exception"
_MODULES: Final = ("pyspark.errors.exceptions.captured", "pyspark.sql.connect.client.core")
_PATCHED: Final = "_indextables_patched"

_OWN_ERROR: Final = re.compile(rf"^{re.escape(errors.__name__)}\.(\w+): ", re.MULTILINE)
# What follows a Python error in a message of Spark: its SQL state, and frames of the JVM.
_END: Final = re.compile(r"^(?:\s*SQLSTATE: .*|\s+at [\w.$/]+\(.*\).*|\s*)$", re.MULTILINE)
_UNKNOWN_SOURCE: Final = re.compile(r"\[DATA_SOURCE_NOT_FOUND\].*? data source: (\S+?)\.?\s")
_TRACEBACK: Final = "Traceback (most recent call last):"

# A text has the message alone, and this error needs the version whose commit stands.
_NOT_FROM_TEXT: Final = CleanupFailedError

_CLASSES: Final = {
    name: found
    for name, found in vars(errors).items()
    if inspect.isclass(found) and issubclass(found, IndexTablesError) and found is not _NOT_FROM_TEXT
}


def raise_own_errors() -> None:
    """Make Spark's calls in this process raise our errors as such. Doing so again has no effect."""
    for name in _MODULES:
        module = sys.modules.get(name)
        convert = getattr(module, _CONVERT, None)
        if convert is not None and not hasattr(convert, _PATCHED):
            setattr(module, _CONVERT, _converting(convert))


def own_error(text: str) -> IndexTablesError | None:
    """The error of ours that a message of Spark ends with; None if there is none.

    An error of ours that another error replaced is not the reason of the failure.
    """
    unknown = _UNKNOWN_SOURCE.search(text)
    if unknown is not None and not HAS_SOURCES and unknown[1].lower() in FORMATS:
        return SparkUnavailableError(NO_SQL_SOURCE)
    found = list(_OWN_ERROR.finditer(text))
    if not found or _TRACEBACK in text[found[-1].end() :]:
        return None
    error_class = _CLASSES.get(found[-1][1])
    if error_class is None:
        return None
    message = text[found[-1].end() :]
    end = _END.search(message)
    return error_class(message[: end.start()].rstrip() if end else message.rstrip())


def _converting(convert: Callable[..., BaseException]) -> Callable[..., BaseException]:
    @functools.wraps(convert)
    def convert_exception(*args: Any, **kwargs: Any) -> BaseException:
        converted = convert(*args, **kwargs)
        if isinstance(converted, StreamingQueryException):
            # Callers that restart queries wait for this class, which names the query.
            return converted
        text = str(converted)
        own = own_error(text)
        if own is None:
            return converted
        logger.debug("Spark reported: %s", text)
        return own

    setattr(convert_exception, _PATCHED, True)
    return convert_exception
