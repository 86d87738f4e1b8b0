"""Numbers, times and texts as people read them."""

import unicodedata

from indextables._results import iso

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SECONDS_PER = (
    ("year", 365 * 86_400),
    ("month", 30 * 86_400),
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
    ("second", 1),
)


def size(number_of_bytes: int) -> str:
    """A number of bytes: 1.2 MiB."""
    amount = float(number_of_bytes)
    for unit in _UNITS[:-1]:
        # What would be rounded up to 1024.0 is one of the next unit.
        if abs(amount) < 1023.95:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def count(number: int, noun: str) -> str:
    """How many there are: 1 file, 1,234 files."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """How long something took: 12 ms, 3.4 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def ago(moment_ms: int, now_ms: int) -> str:
    """The distance of a moment from now: 3 minutes ago, in 2 hours, just now."""
    seconds = abs(now_ms - moment_ms) // 1000
    for unit, length in _SECONDS_PER:
        if seconds >= length:
            distance = count(seconds // length, unit)
            return f"{distance} ago" if moment_ms < now_ms else f"in {distance}"
    return "just now"


def when(moment_ms: int, now_ms: int) -> str:
    """A moment by its distance and by itself: 3 minutes ago (2026-01-31T12:00:00.000Z)."""
    return f"{ago(moment_ms, now_ms)} ({iso(moment_ms)})"


def visible(text: str) -> str:
    """A text on one line, without control characters: what a table holds must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    # Cc steers terminals, Cf reorders what is seen; lone surrogates (Cs) are left to the stream's error handler.
    if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character
