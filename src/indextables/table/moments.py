"""Moments in time as users write them."""

from datetime import UTC, datetime, timedelta

from indextables.errors import InvalidOptionError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_ms(moment: str | datetime) -> int:
    """Epoch milliseconds of an ISO 8601 text or a datetime; without a zone it is UTC.

    Raises InvalidOptionError if it is neither.
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
    # In whole numbers: the seconds as a floating point number would lose a millisecond now and then.
    return (moment - _EPOCH) // timedelta(milliseconds=1)
