"""The files of a Tantivy index, and `translating`, which turns Tantivy's errors and panics into ours."""

from types import TracebackType
from typing import Final

from indextables.errors import IndexTablesError

META_FILE: Final = "meta.json"
META_LOCK_FILE: Final = ".tantivy-meta.lock"

# Rust panics arrive as this class, which derives from BaseException and cannot be imported.
_PANIC: Final = "PanicException"


class translating:  # noqa: N801  # read as a statement
    """Raise `error_type` for anything that Tantivy raises in the block; `what` starts the message.

    Interrupts and our own errors pass unchanged. A class instead of a generator, because every search enters it.
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
            raise self._error_type(f"{self._what}: Tantivy panicked: {error}") from error
