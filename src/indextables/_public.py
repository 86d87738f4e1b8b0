"""Public calls: their arguments are checked, and their errors are short.

An error of ours shows the caller's code and one frame of ours, not how we came upon it.

Our messages name the thing, the place and the remedy, so the frames and the causes behind them are noise to users. They
are logged at the level DEBUG. Any other error is a bug, and keeps all its frames.
"""

import functools
import inspect
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from indextables._arguments import checker_of
from indextables.errors import IndexTablesError

logger = logging.getLogger("indextables")

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=type)

_SPECIAL_METHODS = frozenset({"__init__", "__len__", "__arrow_c_stream__", "__arrow_c_schema__"})


def public_call(function: Callable[P, T]) -> Callable[P, T]:
    """A public function that checks its arguments, and raises our errors without its frames and without their causes.

    Raises InvalidOptionError for an argument of the wrong kind.
    """
    check = checker_of(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            check(args, kwargs)
            return function(*args, **kwargs)
        except IndexTablesError as error:
            logger.debug("%s failed", function.__qualname__, exc_info=True)
            # `from None` hides the cause. Debuggers find it in the context.
            error.__context__ = error.__context__ or error.__cause__
            raise error.with_traceback(None) from None

    return call


def public_methods(kind: K) -> K:
    """A class whose public methods, class methods and constructor are public calls."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name not in _SPECIAL_METHODS:
            continue
        if isinstance(member, classmethod):
            setattr(kind, name, classmethod(public_call(member.__func__)))
        elif inspect.isfunction(member):
            setattr(kind, name, public_call(member))
    return kind
