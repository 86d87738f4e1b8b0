"""What a query of a table may name in one of its splits, which may have been written before columns changed."""

from collections.abc import Mapping

import pyarrow as pa

from indextables.config import Settings
from indextables.pruning import parse_values
from indextables.schema import TableShape
from indextables.search.aggregation import Aggregation
from indextables.search.compile import ConstantColumn, SearchScope, Target
from indextables.search.typed_query import is_narrow
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.split import Split


def split_scope(
    split: Split,
    shape: TableShape,
    fields: tuple[str, ...] = (),
    constants: Mapping[str, ConstantColumn] | None = None,
) -> SearchScope:
    """Return the scope of the queries of a split.

    `fields` are the columns for words without a field, and `constants` those of `constant_columns`.
    """
    return SearchScope(
        split.mapping,
        shape.schema,
        split.partition_row,
        fields,
        stored_schema=shape.stored.schema,
        constants=constants or {},
    )


def can_aggregate(aggregation: Aggregation, scope: SearchScope) -> bool:
    """Return whether the index of a split has the columns of an aggregation in the types that the table has."""
    columns = (*(by.column for by in aggregation.by), *aggregation.columns)
    targets = map(scope.find_column, columns)
    fields = (target.field for target in targets if isinstance(target, Target))
    return not any(is_narrow(field, scope.schema.field(field.name)) for field in fields)


def constant_columns(shape: TableShape, settings: Settings) -> Mapping[str, ConstantColumn]:
    """Return the columns with a default, which splits without them have in all rows."""
    if not shape.defaults:
        return {}
    mapping = mapping_from_settings(shape, settings)
    found = {}
    for name, text in shape.defaults.items():
        field = mapping.find(name)
        column = shape.schema.field(name)
        if field is not None:
            values = parse_values(pa.array([text], pa.string()), column.type).values
            row = pa.Table.from_arrays([values], schema=pa.schema([column]))
            found[name] = ConstantColumn(row, field)
    return found
