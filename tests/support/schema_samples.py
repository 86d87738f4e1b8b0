"""Random schemas with nested columns."""

import pyarrow as pa
from hypothesis import strategies as st

_ATOMIC = st.sampled_from([pa.int64(), pa.string(), pa.float64(), pa.date32(), pa.decimal128(10, 2)])


def _struct(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return fields(children, max_size=3).map(pa.struct)


def _list(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return children.map(lambda element: pa.list_(pa.field("element", element)))


def _map(children: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.builds(
        lambda key, value: pa.map_(pa.field("key", key, nullable=False), pa.field("value", value)),
        children,
        children,
    )


def fields(types: st.SearchStrategy[pa.DataType], max_size: int) -> st.SearchStrategy[list[pa.Field]]:
    """Fields with names from a small set, so that two schemas share some of them."""
    names = st.sampled_from(["a", "b", "c", "d", "element", "key", "value", "x.element", "ß"])
    return st.dictionaries(names, types, min_size=1, max_size=max_size).map(
        lambda members: [pa.field(name, data_type) for name, data_type in members.items()]
    )


types: st.SearchStrategy[pa.DataType] = st.recursive(
    _ATOMIC, lambda children: st.one_of(_struct(children), _list(children), _map(children)), max_leaves=5
)

schemas: st.SearchStrategy[pa.Schema] = fields(types, max_size=5).map(pa.schema)


def clutter(data_type: pa.DataType) -> list[dict[bytes, bytes]]:
    """The metadata of the fields inside a type."""
    found = []
    for position in range(data_type.num_fields):
        child = data_type.field(position)
        found += [*([child.metadata] if child.metadata else []), *clutter(child.type)]
    return found
