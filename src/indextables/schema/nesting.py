"""Rules that hold at every level of a schema: names are unique without regard to case, depth is bounded."""

from collections.abc import Iterable

from indextables.errors import InvalidSchemaError

# Deeper than any schema that people write, and far from the depth at which recursion becomes a risk.
MAX_NESTING = 64


def check_depth(column: str, depth: int) -> None:
    """Raise InvalidSchemaError for types that are nested deeper than MAX_NESTING."""
    if depth > MAX_NESTING:
        top = column.partition(".")[0]
        raise InvalidSchemaError(f"column {top!r} is nested more than {MAX_NESTING} levels deep; flatten it")


def check_names(names: Iterable[str], place: str) -> None:
    """Raise InvalidSchemaError for empty names, and for names that Spark could not tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidSchemaError(f"{place} has a column without a name; name it")
        key = name.lower()
        if key in seen:
            raise InvalidSchemaError(
                f"{place} has the columns {seen[key]!r} and {name!r}, the same name to Spark; rename one"
            )
        seen[key] = name
