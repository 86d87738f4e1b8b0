"""What an add action must be before it may be committed."""

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import msgspec

from indextables.errors import InvalidActionError, UnsafePathError
from indextables.log.actions import AddAction
from indextables.log.paths import LOG_PREFIX
from indextables.storage import validate_key
from indextables.table.snapshot import Snapshot


def check_adds(adds: Sequence[AddAction], snapshot: Snapshot) -> None:
    """Raises InvalidActionError, naming the path, for an add that does not fit the table."""
    url, partition_columns = snapshot.context.url, frozenset(snapshot.partition_columns)
    _check_types(adds, url)
    seen: set[str] = set()
    for add in adds:
        problem = _problem(add, partition_columns)
        if problem is None and add.path in seen:
            problem = "it is added twice in the same commit"
        if problem is not None:
            raise InvalidActionError(f"{url}: cannot add {add.path!r}: {problem}")
        seen.add(add.path)


def _check_types(adds: Sequence[AddAction], url: str) -> None:
    """Nobody checks the fields of an action when it is made, and a wrong one would be unreadable for everybody."""
    try:
        msgspec.convert(msgspec.to_builtins(adds, builtin_types=_NOT_CONVERTED), list[AddAction])
        msgspec.json.encode(adds)
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError, TypeError) as error:
        raise InvalidActionError(
            f"{url}: an add action has a field that is not of its type: {error}"
        ) from error


# These would otherwise pass for texts.
_NOT_CONVERTED = (bytes, bytearray, datetime, date, UUID, Decimal)


def _problem(add: AddAction, partition_columns: frozenset[str]) -> str | None:
    try:
        validate_key(add.path)
    except UnsafePathError as error:
        return f"{error}; paths are relative to the table's root"
    if f"{add.path}/".startswith(LOG_PREFIX):
        return f"{LOG_PREFIX} belongs to the log"
    if add.size < 0 or add.modification_time < 0:
        return "its size or its modification time is negative"
    foreign = sorted(set(add.partition_values) - partition_columns)
    if foreign:
        return (
            f"it has values for {', '.join(foreign)}, but the table is "
            f"{'partitioned by ' + ', '.join(sorted(partition_columns)) if partition_columns else 'not partitioned'}"
        )
    return None
