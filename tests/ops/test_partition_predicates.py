"""A predicate on partitions selects the same partitions in listing, reading, replacing, dropping and merging."""

from pathlib import Path

import pyarrow as pa
import pytest

from indextables import IndexTable

VALUES = [1, 2, 9, 10, 12]

# The partitions that each predicate selects: from numbers, and from the same digits as strings.
NUMBERS = {
    "part BETWEEN 2 AND 11": [2, 9, 10],
    "NOT (part < 10)": [10, 12],
}
TEXTS = {
    "part BETWEEN '10' AND '2'": [2, 10, 12],
    "part < '12'": [1, 10],
}
CASES = [(pa.int32(), where, parts) for where, parts in NUMBERS.items()]
CASES += [(pa.string(), where, parts) for where, parts in TEXTS.items()]


@pytest.fixture
def table_of(tmp_path: Path):
    def build(kind: pa.DataType) -> IndexTable:
        """Two splits in each partition. A row's id is the index of its partition."""
        table = IndexTable.create(
            str(tmp_path / "table"), pa.schema([("id", pa.int64()), ("part", kind)]), partition_by=["part"]
        )
        for _ in range(2):
            table.append(rows(kind, VALUES))
        return table

    return build


def rows(kind: pa.DataType, numbers: list[int], mark: int = 0) -> pa.Table:
    parts = pa.array([str(number) if kind == pa.string() else number for number in numbers], kind)
    return pa.table({"id": [number + mark for number in numbers], "part": parts})


def ids(table: IndexTable, where: str | None = None) -> list[int]:
    return sorted(table.to_arrow(where=where)["id"].to_pylist())


def twice(numbers: list[int]) -> list[int]:
    return sorted(numbers * 2)


@pytest.mark.parametrize(("kind", "where", "parts"), CASES, ids=lambda value: str(value))
def test_one_predicate_selects_the_same_partitions_everywhere(table_of, kind, where, parts):
    table = table_of(kind)
    others = [number for number in VALUES if number not in parts]
    assert ids(table, where) == twice(parts)
    assert table.count(where=where) == 2 * len(parts)
    assert table.files(where).num_rows == 2 * len(parts)

    report = table.merge_splits(where=where)
    assert (report.source_splits, report.new_splits) == (2 * len(parts), len(parts))
    assert table.num_files == len(parts) + 2 * len(others)
    assert ids(table) == twice(VALUES)

    table.overwrite(rows(kind, parts, mark=100), where=where)
    assert ids(table) == sorted([*twice(others), *(number + 100 for number in parts)])

    table.drop_partitions(where)
    assert ids(table) == twice(others)
    assert ids(table, where) == []
