"""The edge to Tantivy: its errors, and the panics of its Rust code, become ours."""

import contextlib
from collections.abc import Iterator

from indextables.errors import IndexTablesError

# Rust panics arrive as this class, which derives from BaseException and cannot be imported.
_PANIC = "PanicException"


@contextlib.contextmanager
def translating(what: str, error_type: type[IndexTablesError]) -> Iterator[None]:
    """Raise `error_type` for what Tantivy raises, or panics with, inside the block; `what` begins its message.

    Interrupts pass, and so do our own errors.
    """
    try:
        yield
    except IndexTablesError:
        raise
    except Exception as error:
        raise error_type(f"{what}: {error}") from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise error_type(f"{what}: the index library gave up: {error}") from error
