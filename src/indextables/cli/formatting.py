"""Formats sizes, counts, durations, timestamps and untrusted text for display."""

import unicodedata

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
    """Format a number of bytes: 1.2 MiB."""
    amount = float(number_of_bytes)
    for unit in _UNITS[:-1]:
        # A value that rounds to 1024.0 belongs to the next unit.
        if abs(amount) < 1023.95:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def count(number: int, noun: str) -> str:
    """Format a count: 1 file, 1,234 files."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Format a duration: 12 ms, 3.4 s."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def ago(time_ms: int, now_ms: int) -> str:
    """Format a relative time: 3 minutes ago, in 2 hours, just now."""
    seconds = abs(now_ms - time_ms) // 1000
    for unit, length in _SECONDS_PER:
        if seconds >= length:
            distance = count(seconds // length, unit)
            return f"{distance} ago" if time_ms < now_ms else f"in {distance}"
    return "just now"


def when(time_ms: int, now_ms: int) -> str:
    """Format a relative and an absolute time: 3 minutes ago (2026-01-31T12:00:00.000Z)."""
    from indextables._results import iso  # it imports pyarrow, for which help texts should not wait

    return f"{ago(time_ms, now_ms)} ({iso(time_ms)})"


def visible(text: str) -> str:
    """Escape control characters and line breaks: content of a table must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    # Cc controls terminals, Cf reorders text. The stream's error handler escapes lone surrogates (Cs).
    if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character
