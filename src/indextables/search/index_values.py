"""From what an index holds back to values of a column's type."""

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from indextables.split.doc_mapping import FieldKind, FieldMapping

# The order keys of big decimals: 128 bits, shifted so that they sort like the numbers.
_BIG_DECIMAL_ZERO: Final = 1 << 127

# More digits than any decimal has.
EXACT: Final = Context(prec=50)


def decode(field: FieldMapping, terms: Iterable[Any], data_type: pa.DataType) -> pa.Array:
    """The values that a field's terms stand for; None is null."""
    from_term = _FROM_TERM.get(field.kind)
    if from_term is None:
        return pa.array(terms, _PLAIN.get(field.kind, pa.string())).cast(data_type)
    return pa.array([None if term is None else from_term(field, term) for term in terms], data_type)


def decimal_value(unscaled: int, scale: int) -> Decimal:
    """The number with `scale` digits after the point."""
    return Decimal(unscaled).scaleb(-scale, EXACT)


def _boolean(_: FieldMapping, term: int) -> bool:
    return bool(term)


def _decimal(field: FieldMapping, term: int) -> Decimal:
    return decimal_value(term, field.scale)


def _big_decimal(field: FieldMapping, term: str) -> Decimal:
    return decimal_value(int(term, 16) - _BIG_DECIMAL_ZERO, field.scale)


_PLAIN: Final = {
    FieldKind.I64: pa.int64(),
    FieldKind.F64: pa.float64(),
    FieldKind.DATE: pa.int32(),
    FieldKind.TIMESTAMP: pa.int64(),
    FieldKind.TIMESTAMP_NTZ: pa.int64(),
}

_FROM_TERM: Final[dict[FieldKind, Callable[[FieldMapping, Any], Any]]] = {
    FieldKind.BOOL: _boolean,
    FieldKind.DECIMAL: _decimal,
    FieldKind.BIG_DECIMAL: _big_decimal,
}
