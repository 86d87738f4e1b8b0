"""Rows by number, as a query: for what the rows themselves had to decide."""

import numpy as np
from numpy.typing import NDArray
from tantivy import FieldType, Query

from indextables.search.exact import any_query
from indextables.split.mapping import ROW_FIELD, DocMapping


def rows_query(mapping: DocMapping, rows: NDArray[np.int64]) -> Query:
    """The query that matches exactly these rows, which are ascending. Neighbours are asked for together."""
    if not len(rows):
        return Query.empty_query()
    schema = mapping.tantivy_schema()
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate([[0], breaks + 1])]
    lasts = rows[np.concatenate([breaks, [len(rows) - 1]])]
    return any_query(
        [
            Query.range_query(schema, ROW_FIELD, FieldType.Integer, int(first), int(last))
            for first, last in zip(firsts, lasts, strict=True)
        ]
    )
