"""Random conditions of Spark SQL over the columns n, x, t, d, at, b and part."""

import random
from datetime import date, datetime

_COLUMNS = ("n", "x", "t", "d", "at", "b", "part")


def random_value(dice: random.Random, kind: str) -> object:
    """A value of a column, sometimes null."""
    if dice.random() < 0.15:
        return None
    match kind:
        case "n":
            return dice.randint(-3, 12)
        case "x":
            return dice.choice([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf")])
        case "t":
            return dice.choice(["", "a", "ab", "abc", "a%", "a_b", "B\n", "é", "10", "9", "\\"])
        case "d":
            return date(2026, 1, dice.randint(1, 28))
        case "at":
            return datetime(2026, 1, dice.randint(1, 28), 12, 30, 0, dice.randint(0, 999_999))
        case _:
            return dice.choice([True, False])


def _literal(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool() | int():
            return str(value).lower()
        case float():
            return f"double('{value}')"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case datetime():
            return f"timestamp'{value}'"
        case _:
            return f"date'{value}'"


def random_condition(dice: random.Random, depth: int = 0) -> str:
    """A condition of up to three levels."""
    choice = dice.random()
    if depth < 2 and choice < 0.35:
        how = dice.choice(["and", "and", "or"])
        return f"({random_condition(dice, depth + 1)} {how} {random_condition(dice, depth + 1)})"
    if choice < 0.5:
        return f"not ({random_condition(dice, depth + 1)})" if depth < 2 else "b"
    column = dice.choice(_COLUMNS)
    value = _literal(random_value(dice, "t" if column == "part" else column))
    forms = [f"{column} {operator} {value}" for operator in ("=", "<=>", "<", "<=", ">", ">=", "<>")]
    forms += [f"{column} is null", f"{column} is not null"]
    forms.append(
        f"{column} in ({value}, {_literal(random_value(dice, 't' if column == 'part' else column))})"
    )
    if column in ("t", "part") and value != "null":
        forms += [f"{function}({column}, {value})" for function in ("startswith", "endswith", "contains")]
    return dice.choice(forms)
