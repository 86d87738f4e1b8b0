"""Parses dates, timestamps and numbers strictly: text that is not in exactly the expected form yields None."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation

from indextables.errors import InvalidOptionError

DATE_FORM = "2024-01-31"
TIMESTAMP_FORM = "2024-01-31 12:00:00"

DATE_LENGTH = len(DATE_FORM)

# Longer than any number that a column can hold, and short enough for exact arithmetic.
MAX_NUMBER_LENGTH = 1000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_date(text: str) -> date | None:
    """Parse YYYY-MM-DD. Neither 2024-9 nor 20260322 is a date."""
    if len(text) != DATE_LENGTH or not _begins_with_date(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def parse_timestamp(text: str) -> datetime | None:
    """Parse a date, or a date and time with or without a zone. Digits beyond microseconds are truncated."""
    if not _begins_with_date(text) or "," in text:
        return None
    if len(text) > DATE_LENGTH and text[DATE_LENGTH] not in " T":
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def parse_integer(text: str) -> int | None:
    """Parse a whole number, with or without a sign."""
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if len(digits) > MAX_NUMBER_LENGTH or not (digits.isascii() and digits.isdigit()):
        return None
    return int(stripped)


def parse_decimal(text: str) -> Decimal | None:
    """Parse a number in decimal notation, NaN or Infinity. The value is exact."""
    stripped = text.strip()
    if len(stripped) > MAX_NUMBER_LENGTH or "_" in stripped or not stripped.isascii():
        return None
    try:
        number = Decimal(stripped)
    except InvalidOperation:
        return None
    return None if number.is_snan() else number


def timestamp_ms(moment: str | datetime) -> int:
    """Return the epoch milliseconds of an ISO 8601 text or a datetime, in UTC unless it has a time zone.

    Raises InvalidOptionError for any other text.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise InvalidOptionError(
                f"{moment!r} is not a moment in time; write it as 2026-01-31T12:00:00Z"
            ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Integer arithmetic, because float seconds can be off by a millisecond.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _begins_with_date(text: str) -> bool:
    # `fromisoformat` also accepts basic and week dates (20240131, 2024-W05-3), which are not valid here.
    head = text[:DATE_LENGTH]
    digits = head[:4] + head[5:7] + head[8:]
    return text.isascii() and head[4:5] == head[7:8] == "-" and len(digits) == 8 and digits.isdigit()
