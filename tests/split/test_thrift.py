"""Thrift's compact protocol: what Parquet writers write comes back as the same bytes, and damage is an error."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.split.thrift import Double, Int, Items, decode_struct, encode_struct

integers = st.builds(Int, st.sampled_from([4, 5, 6]), st.integers(-(2**63), 2**63 - 1))
scalars = st.one_of(
    integers,
    st.booleans(),
    st.binary(max_size=40),
    st.builds(Double, st.binary(min_size=8, max_size=8)),
    st.builds(Int, st.just(3), st.integers(0, 255)),
)


def lists(structs):
    """Lists and sets of one type of elements each."""
    kinds = {
        1: st.booleans(),
        3: st.builds(Int, st.just(3), st.integers(0, 255)),
        6: st.builds(Int, st.just(6), st.integers(-(2**63), 2**63 - 1)),
        7: st.builds(Double, st.binary(min_size=8, max_size=8)),
        8: st.binary(max_size=9),
        12: structs,
    }
    of_kind = [
        st.builds(Items, st.sampled_from([9, 10]), st.just(kind), st.lists(values, max_size=20))
        for kind, values in kinds.items()
    ]
    return st.one_of(of_kind)


structs = st.recursive(
    st.dictionaries(st.integers(1, 2000), scalars, max_size=5),
    lambda inner: st.dictionaries(st.integers(1, 40), scalars | inner | lists(inner), max_size=5),
    max_leaves=15,
)


@settings(max_examples=150)
@given(value=structs)
def test_a_struct_comes_back_as_it_was(value):
    data = encode_struct(value)
    assert decode_struct(data) == (value, len(data))
    assert decode_struct(b"\xaa" + data, 1) == (value, len(data) + 1)


def test_the_metadata_of_a_parquet_file_is_encoded_as_its_writer_did(tmp_path):
    table = pa.table(
        {"a": range(3000), "b": [[str(i)] for i in range(3000)], "c": [i / 7 for i in range(3000)]}
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1000, write_page_index=True)
    data = (tmp_path / "x.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    metadata = data[-8 - length : -8]
    decoded, end = decode_struct(metadata)
    assert end == length
    assert encode_struct(decoded) == metadata


@settings(max_examples=200)
@given(value=structs, cut=st.integers(1, 20))
def test_a_truncated_struct_is_an_error(value, cut):
    data = encode_struct(value)
    if cut <= len(data):
        with pytest.raises(ValueError, match=r"byte|struct"):
            decode_struct(data[: len(data) - cut])


@settings(max_examples=300)
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_are_a_struct_or_an_error(data):
    try:
        decode_struct(data)
    except ValueError:
        return


@pytest.mark.parametrize(
    "data",
    [
        b"\x1c" * 10_000,  # structs in structs
        b"\x19" + b"\x19" * 10_000,  # lists in lists
        b"\x19\xf8\xff\xff\xff\xff\x07",  # two billion texts
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # an endless text
        b"\x16" + b"\xff" * 30,  # an endless number
    ],
)
def test_bytes_that_would_exhaust_the_machine_are_refused(data):
    with pytest.raises(ValueError, match="byte"):
        decode_struct(data)
