"""LIKE patterns: % is any text, _ is one character, and a backslash takes the next character literally."""

from indextables.errors import InvalidPredicateError
from indextables.predicates.tree import Comparison, Like, Operator, Predicate, StartsWith

ESCAPE = "\\"
WILDCARDS = "%_"

# Patterns become regular expressions, whose compiled size is bounded by the matching library.
MAX_PATTERN_LENGTH = 4096


def like(column: str, pattern: str) -> Predicate:
    """Return the simplest predicate that says `column LIKE pattern`.

    A pattern without wildcards is an equality, and text followed by one % is a prefix: both can be answered
    from a minimum and a maximum. Raises InvalidPredicateError for a pattern that Spark refuses as well.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InvalidPredicateError(
            f"the LIKE pattern for column {column!r} has {len(pattern)} characters; "
            f"{MAX_PATTERN_LENGTH} are allowed"
        )
    check_pattern(column, pattern)
    prefix, rest = _split(pattern)
    if not rest:
        return Comparison(column, Operator.EQ, prefix)
    return StartsWith(column, prefix) if not rest.strip("%") else Like(column, pattern)


def check_pattern(column: str, pattern: str) -> None:
    """Raise InvalidPredicateError where a backslash stands before anything but %, _ or a backslash."""
    index = pattern.find(ESCAPE)
    while index >= 0:
        escaped = pattern[index + 1 : index + 2]
        if not escaped or escaped not in WILDCARDS + ESCAPE:
            raise InvalidPredicateError(
                f"the LIKE pattern {pattern!r} for column {column!r} has a backslash before "
                f"{escaped or 'its end'!r}; only %, _ and the backslash itself are escaped"
            )
        index = pattern.find(ESCAPE, index + 2)


def literal_prefix(pattern: str) -> str:
    """Return the text that everything matching the pattern begins with; it may be empty."""
    return _split(pattern)[0]


def _split(pattern: str) -> tuple[str, str]:
    """Return the literal text before the first wildcard, and the pattern from there on."""
    prefix: list[str] = []
    index = 0
    while index < len(pattern) and pattern[index] not in WILDCARDS:
        index += pattern[index] == ESCAPE
        prefix.append(pattern[index : index + 1])
        index += 1
    return "".join(prefix), pattern[index:]
