"""Where a log file is damaged. Looked for only once something is known to be wrong."""

import msgspec

from indextables.errors import LogCorruptedError


def not_json(name: str, lines: bytes, error: Exception) -> LogCorruptedError:
    """The error for a file that is not a sequence of JSON objects: it names the first line that is none."""
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            _COUNTER.decode_lines(line)
        except (msgspec.MsgspecError, RecursionError) as line_error:
            return _error(name, f"line {number}", line_error)
    return _error(name, "the file", error)


def not_text(name: str, lines: bytes, error: UnicodeDecodeError) -> LogCorruptedError:
    """The error for a file that is not UTF-8 throughout."""
    number = lines.count(b"\n", 0, error.start) + 1
    return _error(name, f"line {number}", error)


def not_an_action(name: str, lines: bytes, position: int, error: Exception) -> LogCorruptedError:
    """The error for the object at `position`, which is JSON, but not the action that it says it is."""
    return _error(name, _place(lines, position), error)


def _place(lines: bytes, position: int) -> str:
    """The line of an object; an object that spans lines has only its number."""
    seen = 0
    for number, line in enumerate(lines.split(b"\n"), start=1):
        try:
            seen += len(_COUNTER.decode_lines(line))
        except msgspec.MsgspecError:
            break
        if seen > position:
            return f"line {number}"
    return f"action {position + 1}"


def _error(name: str, place: str, error: Exception) -> LogCorruptedError:
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return LogCorruptedError(f"{name}: {place} is not a valid action ({reason})")


class _AnyObject(msgspec.Struct):
    """A JSON object, whatever it holds."""


_COUNTER = msgspec.json.Decoder(_AnyObject)
