"""Text that is a number, a boolean, a date or a timestamp: how it is recognised, and how it is read.

Recognition is strict, because a type is guessed: a column is numeric only if its text loses nothing as a number ("007"
does). Reading is for a type that is known, and accepts every text of that type.
"""

import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema.conversion import LossyConversionError
from indextables.schema.spark_json import TIMESTAMP, TIMESTAMP_NTZ

# How a value is written that is recognised without being told so.
_WHOLE_NUMBER: Final = r"^(0|-?[1-9][0-9]*)$"
_NUMBER: Final = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_BOOLEAN: Final = r"^(true|false|True|False|TRUE|FALSE)$"
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6}0*)?)?"
_ZONE: Final = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_RECOGNISED: Final = (
    (_WHOLE_NUMBER, pa.int64()),
    (_NUMBER, pa.float64()),
    (_BOOLEAN, pa.bool_()),
    (_DATE, pa.date32()),
    (f"{_MOMENT}$", TIMESTAMP_NTZ),
    (_MOMENT + _ZONE, TIMESTAMP),
)
_TIMES: Final = _RECOGNISED[3:]

# How a value may be written if its type is known.
_ANY_INTEGER: Final = r"^[+-]?[0-9]+(\.0*)?$"
_ANY_NUMBER: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_NOT_FINITE: Final = r"^[+-]?(?i:nan|inf|infinity)$"
_LONG_FRACTION: Final = r"(\.[0-9]{6})0+"

# Beyond them, not every integer is a double, or a float.
_EXACT_IN_DOUBLES: Final = 2**53
_EXACT_IN_FLOATS: Final = 2**24
_FIRST_YEAR_US: Final = -62_135_596_800_000_000


def recognised_type(values: pa.ChunkedArray, *, only_times: bool = False) -> pa.DataType:
    """The type of a column of text: null without values, a string unless all of them are of one other type."""
    texts = values.drop_null()
    if not len(texts):
        return pa.null()
    first = texts[:1]
    for pattern, data_type in _TIMES if only_times else _RECOGNISED:
        if _all_match(first, pattern) and _all_match(texts, pattern):
            return data_type if _reads(texts, data_type) else pa.string()
    if not only_times and _all_match(first, _NUMBER) and _all_match(texts, _NUMBER):
        # Whole numbers first, others later.
        return pa.float64() if _reads(texts, pa.float64()) else pa.string()
    if _all_match(first, _DATE) and _all_match(texts, f"{_MOMENT}$|{_DATE}"):
        return TIMESTAMP_NTZ if _reads(texts, TIMESTAMP_NTZ) else pa.string()
    return pa.string()


def read_text(texts: Any, wanted: pa.DataType) -> Any:
    """Read a column of text as a type. Raises LossyConversionError for text that is not of that type."""
    if pa.types.is_string(wanted):
        return texts
    if pa.types.is_boolean(wanted):
        _require(texts, _BOOLEAN, "true or false")
        return pc.equal(pc.utf8_lower(texts), "true")
    if pa.types.is_integer(wanted):
        return _read_integers(texts, wanted)
    if pa.types.is_floating(wanted):
        return _read_floats(texts, wanted)
    if pa.types.is_decimal(wanted):
        _require(texts, _ANY_NUMBER, "a number")
        return _cast(_cast(_without_plus(texts), pa.decimal128(38, wanted.scale)), wanted)
    if pa.types.is_date(wanted):
        _require(texts, _DATE, "a date such as 2026-01-31")
        return _cast(texts, wanted)
    if pa.types.is_timestamp(wanted):
        return _read_timestamps(texts, wanted)
    raise LossyConversionError(f"text cannot be read as {wanted}")


def _read_integers(texts: Any, wanted: pa.DataType) -> Any:
    _require(texts, _ANY_INTEGER, "a whole number")
    return _cast(pc.replace_substring_regex(_without_plus(texts), r"\.0*$", ""), wanted)


def _read_floats(texts: Any, wanted: pa.DataType) -> Any:
    _require(texts, f"{_ANY_NUMBER}|{_NOT_FINITE}", "a number")
    numbers = _cast(_cast(texts, pa.float64()), wanted)
    large = pc.greater_equal(pc.abs(numbers), exact_integers(wanted))
    if pc.any(large, min_count=0).as_py():
        # NaN is not among them.
        for text, number in zip(texts.filter(large), numbers.filter(large), strict=True):
            _check_large(text.as_py(), number.as_py(), wanted)
    return numbers


def exact_integers(wanted: pa.DataType) -> float:
    """The end of the integers that are all exact in a floating-point type."""
    return float(_EXACT_IN_DOUBLES if pa.types.is_float64(wanted) else _EXACT_IN_FLOATS)


def _check_large(text: str, number: float, wanted: pa.DataType) -> None:
    if math.isinf(number):
        if text.strip("+-").isalpha():
            return
        raise LossyConversionError(f"{text} is too large for a {wanted}")
    if text.lstrip("+-").isdigit() and int(text) != int(number):
        raise LossyConversionError(f"{text} is not exact as a {wanted}")


def _read_timestamps(texts: Any, wanted: pa.DataType) -> Any:
    kind = (
        "a timestamp with a zone, such as 2026-01-31T12:00:00Z" if wanted.tz else "a timestamp without a zone"
    )
    _require(texts, _MOMENT + _ZONE if wanted.tz else f"{_MOMENT}$|{_DATE}", kind)
    times = _cast(pc.replace_substring_regex(texts, _LONG_FRACTION, r"\1"), wanted)
    smallest = pc.min(times.cast(pa.int64())).as_py()
    if smallest is not None and smallest < _FIRST_YEAR_US:
        raise LossyConversionError("the year is before 1")
    return times


def _without_plus(texts: Any) -> Any:
    return pc.replace_substring_regex(texts, r"^\+", "")


def _all_match(texts: Any, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py())


def _require(texts: Any, pattern: str, kind: str) -> None:
    matches = pc.match_substring_regex(texts, pattern)
    if not pc.all(matches, min_count=0).as_py():
        first = next(
            text.as_py() for text, is_match in zip(texts, matches, strict=True) if is_match.as_py() is False
        )
        shown = first if len(first) <= 40 else f"{first[:40]}…"
        raise LossyConversionError(f"{shown!r} is not {kind}")


def _reads(texts: Any, data_type: pa.DataType) -> bool:
    try:
        read_text(texts, data_type)
    except LossyConversionError:
        return False
    return True


def _cast(texts: Any, wanted: pa.DataType) -> Any:
    try:
        return texts.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LossyConversionError(str(error).split(" as a scalar")[0].removesuffix(".")) from error
