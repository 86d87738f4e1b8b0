import numpy as np
import pyarrow as pa
import pytest

from indextables.log.entries import ADD_STRUCT, FILE_ENTRY_SCHEMA, empty_entries, entries_from_columns
from indextables.log.fields import STRING_MAP

MAPS = pa.array([[("a", "1")], None, [("b", None), ("c", "2")], [], [("d", None)]], STRING_MAP)


def columns(**values: list) -> dict[str, pa.ChunkedArray]:
    return {
        name: pa.chunked_array([pa.array(items, FILE_ENTRY_SCHEMA.field(name).type)])
        for name, items in values.items()
    }


def entries(found: dict[str, pa.ChunkedArray], count: int) -> pa.Table:
    numbers = np.arange(count, dtype=np.int64)
    table = entries_from_columns(found, numbers, numbers * 10)
    table.validate(full=True)
    return table


def test_missing_columns_are_null_or_take_their_default():
    table = entries(columns(path=["a", "b"], size=[1, 2]), 2)
    assert table.schema == FILE_ENTRY_SCHEMA
    assert table["partitionValues"].to_pylist() == [[], []]
    assert table["modificationTime"].to_pylist() == [0, 0]
    assert table["dataChange"].to_pylist() == [True, True]
    assert table["hasFooterOffsets"].to_pylist() == [False, False]
    assert table["addedAtVersion"].to_pylist() == [0, 1]
    assert table["addedAtTimestamp"].to_pylist() == [0, 10]
    nullable = [field.name for field in FILE_ENTRY_SCHEMA if field.nullable]
    assert all(table[name].null_count == 2 for name in nullable)


def test_the_version_and_time_of_an_entry_take_precedence():
    found = columns(path=["a", "b"], size=[1, 2], addedAtVersion=[7, None], addedAtTimestamp=[None, 70])
    table = entries(found, 2)
    assert table["addedAtVersion"].to_pylist() == [7, 1]
    assert table["addedAtTimestamp"].to_pylist() == [0, 70]


@pytest.mark.parametrize(
    "chunks",
    [[MAPS], [MAPS.slice(0, 2), MAPS.slice(2)], [MAPS.slice(0, 0), MAPS]],
    ids=["one chunk", "two chunks", "an empty chunk"],
)
def test_null_items_are_dropped_and_null_maps_of_required_fields_are_empty(chunks):
    maps = pa.chunked_array(chunks)
    found = columns(path=list("abcde"), size=[1] * 5) | {"partitionValues": maps, "minValues": maps}
    table = entries(found, 5)
    assert table["partitionValues"].to_pylist() == [[("a", "1")], [], [("c", "2")], [], []]
    assert table["minValues"].to_pylist() == [[("a", "1")], None, [("c", "2")], [], []]


def test_a_slice_of_maps_is_cleaned_like_a_whole_array():
    maps = pa.chunked_array([MAPS.slice(1, 3)])
    found = columns(path=list("abc"), size=[1] * 3) | {"partitionValues": maps, "tags": maps}
    table = entries(found, 3)
    assert table["partitionValues"].to_pylist() == [[], [("c", "2")], []]
    assert table["tags"].to_pylist() == [None, [("c", "2")], []]


@pytest.mark.parametrize("missing", ["path", "size"])
def test_an_entry_without_path_or_size_is_refused(missing):
    found = columns(path=["a", "b"], size=[1, 2]) | columns(**{missing: [None, None]})
    with pytest.raises(ValueError, match=f"no {missing}"):
        entries_from_columns(found, np.zeros(2, np.int64), np.zeros(2, np.int64))


def test_no_entries_have_the_schema_of_entries():
    assert empty_entries().schema == FILE_ENTRY_SCHEMA
    assert entries({}, 0) == empty_entries()


def test_an_add_cannot_set_unknown_fields_itself():
    assert "unknownFields" not in ADD_STRUCT.names
    assert {*ADD_STRUCT.names, "unknownFields"} == set(FILE_ENTRY_SCHEMA.names)
