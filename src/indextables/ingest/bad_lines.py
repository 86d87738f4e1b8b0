"""Where a row comes from, and what becomes of lines that cannot be read."""

from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from indextables.errors import InvalidOptionError, InvalidValueError

FAIL: Final = "fail"
SKIP: Final = "skip"

_SHOWN_CHARACTERS: Final = 80


class Place(msgspec.Struct, frozen=True):
    """A line, or a row, of an input; both count from 1."""

    input: str
    number: int
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.input}, {self.unit} {self.number:,}"


class BadLines:
    """Fails at the first bad line, or counts bad lines and writes them to a file.

    A bad line cannot be parsed, or holds a value that does not fit the type that the table or the caller gives its
    column. The file has the lines as they were, so that they can be corrected and indexed.
    """

    def __init__(self, policy: str = FAIL) -> None:
        if not policy:
            raise InvalidOptionError(
                "bad lines are to fail, to be skipped, or to go to a file; name one of them"
            )
        if policy not in (FAIL, SKIP) and Path(policy).exists() and Path(policy).stat().st_size:
            raise InvalidOptionError(
                f"the file {policy} for bad lines exists; name another one, or remove it"
            )
        self._policy = policy
        self._file: BinaryIO | None = None
        self._header: bytes = b""
        self.count = 0
        self.first: str | None = None

    @property
    def fails(self) -> bool:
        return self._policy == FAIL

    @property
    def path(self) -> str | None:
        """The file that bad lines are written to."""
        return None if self._policy in (FAIL, SKIP) else self._policy

    def add(self, place: Place, reason: str, line: bytes, *, remedy: str = "", header: bytes = b"") -> None:
        """Record a bad line. Raises InvalidValueError if bad lines are failures."""
        if self.fails:
            advice = f"{remedy}, " if remedy else ""
            raise InvalidValueError(
                f"{place}: {reason}{_quoted(line)}; {advice}correct it, or pass --bad-lines skip, or a file for bad "
                f"lines. Nothing was committed"
            )
        self.count += 1
        self.first = self.first or f"{place}: {reason}"
        if self.path is not None:
            self._write(line, header)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: bytes, header: bytes) -> None:
        try:
            if self._file is None:
                self._file = Path(self._policy).open("wb")  # noqa: SIM115  # `close` closes it
            if header and header != self._header:
                self._file.write(header.rstrip(b"\r\n") + b"\n")
                self._header = header
            self._file.write(line.rstrip(b"\r\n") + b"\n")
        except OSError as error:
            raise InvalidOptionError(f"bad lines cannot be written to {self._policy}: {error}") from error


def _quoted(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace").strip()
    if not text:
        return ""
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return f" ({shown})"
