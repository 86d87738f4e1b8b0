"""How long what is kept: retentions as users write them, and the time that ages are measured by."""

from datetime import timedelta
from typing import Final

from indextables.config.kinds import Hours
from indextables.errors import ClockSkewError, InvalidOptionError
from indextables.table import TableContext

MS_PER_HOUR: Final = 3_600_000

Retention = str | float | timedelta
"""A length of time: a timedelta, a text such as "7 days", or a number of hours."""

# Ages are differences of times by several clocks. A machine that is so far off cannot be trusted with a delete.
_MAX_SKEW_MS: Final = 15 * 60_000


def retention_hours(retention: Retention) -> float:
    """A retention in hours. Raises InvalidOptionError if it is no length of time, or a negative one."""
    if isinstance(retention, timedelta):
        hours = retention.total_seconds() / 3600
    else:
        try:
            hours = Hours().read(retention)
        except ValueError as error:
            raise _refused(retention) from error
    if hours < 0:
        raise _refused(retention)
    return hours


def store_now_ms(context: TableContext) -> int:
    """The store's clock, which the times of its files come from.

    Raises ClockSkewError if this machine's clock is far off: commits made here have wrong times then.
    """
    now_ms, local_ms = context.store.now_ms(), context.store.clock.now_ms()
    if abs(now_ms - local_ms) > _MAX_SKEW_MS:
        raise ClockSkewError(
            f"{context.url}: nothing was deleted, because this machine's clock differs from the store's by "
            f"{abs(now_ms - local_ms) / 60_000:.0f} minutes; set the clock, and try again"
        )
    return now_ms


def _refused(retention: Retention) -> InvalidOptionError:
    return InvalidOptionError(
        f"{retention!r} is not a retention; write it as '7 days', '12 hours' or a number of hours"
    )
