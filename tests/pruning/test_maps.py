"""Values of one key, against Arrow's own lookup."""

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.pruning import map_values

STRING_MAP = pa.map_(pa.string(), pa.string())
MAPS = st.lists(
    st.none() | st.dictionaries(st.sampled_from(["a", "b", "", "é"]), st.none() | st.text(max_size=2)),
    max_size=10,
)


@settings(max_examples=150)
@given(MAPS, st.sampled_from(["a", "b", "", "é", "c"]), st.integers(0, 5), st.integers(0, 5))
def test_values_are_those_of_map_lookup_also_in_slices_and_chunks(maps, key, start, cut):
    column = pa.array([None if m is None else list(m.items()) for m in maps], STRING_MAP)
    part = column.slice(start)
    assert map_values(part, key).equals(pc.map_lookup(part, key, "first"))
    chunked = pa.chunked_array([part.slice(0, cut), part.slice(cut)], STRING_MAP)
    assert map_values(chunked, key).equals(pc.map_lookup(part, key, "first"))


def test_map_that_is_null_hides_what_lies_under_it():
    offsets = pa.array([0, 1, 2], pa.int32())
    keys, items = pa.array(["a", "a"]), pa.array(["1", "2"])
    column = pa.MapArray.from_arrays(offsets, keys, items, mask=pa.array([True, False]))
    assert map_values(column, "a").to_pylist() == [None, "2"]


def test_no_maps_have_no_values():
    assert map_values(pa.chunked_array([], STRING_MAP), "a").to_pylist() == []
    assert map_values(pa.array([], STRING_MAP), "a").to_pylist() == []
