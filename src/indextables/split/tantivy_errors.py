"""The edge to Tantivy: its errors, and the panics of its Rust code, become ours."""

from types import TracebackType

from indextables.errors import IndexTablesError

# Rust panics arrive as this class, which derives from BaseException and cannot be imported.
_PANIC = "PanicException"


class translating:  # noqa: N801  # read as a statement
    """Raise `error_type` for what Tantivy raises, or panics with, inside the block; `what` begins its message.

    Interrupts pass, and so do our own errors. A class and no generator, because every search enters it.
    """

    __slots__ = ("_error_type", "_what")

    def __init__(self, what: str, error_type: type[IndexTablesError]) -> None:
        self._what = what
        self._error_type = error_type

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, IndexTablesError):
            return
        if isinstance(error, Exception):
            raise self._error_type(f"{self._what}: {error}") from error
        if type(error).__name__ == _PANIC:
            raise self._error_type(f"{self._what}: the index library gave up: {error}") from error
