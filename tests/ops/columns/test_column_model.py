"""A table whose columns change against a dictionary of rows and a list of columns, at every version."""

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indextables import IndexTable
from indextables.errors import InvalidSchemaError

NAMES = ("a", "b", "c", "d")
WORDS = ("red", "green", "blue")

TYPES = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "decimal(22,2)": pa.decimal128(22, 2),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
WIDER = {
    "int": ("bigint", "double", "decimal(22,2)"),
    "bigint": ("double", "decimal(22,2)"),
    "date": ("timestamp",),
}
# From a small number, which the strategies draw, to a value of a type.
VALUES = {
    "int": int,
    "bigint": int,
    "double": lambda number: number / 2,
    "decimal(22,2)": lambda number: Decimal(number) / 4,
    "string": lambda number: WORDS[number % 3],
    "date": lambda number: date(2024, 1, 1 + number),
    "timestamp": lambda number: datetime(2024, 1, 1 + number // 2, 12 * (number % 2), tzinfo=UTC),
}
LITERALS = {
    "string": lambda value: f"'{value}'",
    "date": lambda value: f"'{value}'",
    "timestamp": lambda value: f"'{value:%Y-%m-%dT%H:%M:%SZ}'",
}


@dataclass(frozen=True)
class Column:
    """A column of the model; `key` stays the same when it is renamed."""

    key: int
    name: str
    type: str
    default: Any = None

    def value(self, row: dict[int, Any]) -> Any:
        """The value in a row, in the type that the column has now."""
        value = row.get(self.key, self.default)
        if value is None:
            return None
        if self.type == "double":
            return float(value)
        if self.type.startswith("decimal"):
            return Decimal(value).quantize(Decimal("0.01"))
        if self.type == "timestamp" and not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        return value

    def literal(self, value: Any) -> str:
        return LITERALS.get(self.type, str)(value)


Rows = dict[int, dict[int, Any]]
ID, BODY = Column(0, "id", "bigint"), Column(1, "body", "string")
_NUMBERS = st.none() | st.integers(0, 7)


class ColumnModel(RuleBasedStateMachine):
    """Every version has the columns and the rows that the model had."""

    @initialize(form=st.sampled_from(["avro", "json", "parquet"]))
    def create(self, form):
        self.folder = tempfile.mkdtemp(prefix="column-model-")
        schema = pa.schema([("id", pa.int64()), ("body", pa.string())])
        self.table = IndexTable.create(
            self.path, schema, text=["body"], options={"spark.indextables.state.format": form}
        )
        self.columns, self.rows = [ID, BODY], {}
        self.next_id, self.next_key = 0, 2
        self.versions = {0: (list(self.columns), {})}

    @property
    def path(self) -> str:
        return str(Path(self.folder) / "t")

    @rule(numbers=st.lists(st.lists(_NUMBERS, min_size=8, max_size=8), min_size=1, max_size=6))
    def append(self, numbers):
        new: Rows = {}
        for drawn in numbers:
            row: dict[int, Any] = {ID.key: self.next_id}
            for column, number in zip(self.columns, drawn, strict=False):
                if column.key != ID.key:
                    row[column.key] = None if number is None else VALUES[column.type](number)
            new[self.next_id] = row
            self.next_id += 1
        columns = {
            column.name: pa.array([column.value(row) for row in new.values()], TYPES[column.type])
            for column in self.columns
        }
        self.table.append(pa.table(columns))
        self._now(rows={**self.rows, **new})

    @precondition(lambda self: len(self.columns) < 7)
    @rule(
        name=st.sampled_from(NAMES),
        type_=st.sampled_from(sorted(TYPES)),
        default=_NUMBERS,
        first=st.booleans(),
    )
    def add(self, name, type_, default, first):
        value = None if default is None else VALUES[type_](default)
        position = "first" if first else None
        if self._has(name):
            with pytest.raises(InvalidSchemaError, match="already"):
                self.table.add_column(name, type_, value)
            return
        self.table.add_column(name, type_, value, position=position)
        column = Column(self.next_key, name, type_, value)
        # Rows written later have null where the data lacks the column; the model always writes all columns.
        self.next_key += 1
        self._now([column, *self.columns] if first else [*self.columns, column])

    @precondition(lambda self: len(self.columns) < 7)
    @rule(name=st.sampled_from(NAMES), type_=st.sampled_from(sorted(TYPES)), number=st.integers(0, 7))
    def append_with_a_new_column(self, name, type_, number):
        if self._has(name):
            return
        column, value = Column(self.next_key, name, type_), VALUES[type_](number)
        rows = pa.table({"id": [self.next_id], name: pa.array([value], TYPES[type_])})
        self.table.append(rows, merge_schema=True)
        row = {each.key: None for each in self.columns} | {ID.key: self.next_id, column.key: value}
        self.next_key, self.next_id = self.next_key + 1, self.next_id + 1
        self._now([*self.columns, column], {**self.rows, row[ID.key]: row})

    @rule(data=st.data())
    def drop(self, data):
        column = self._draw(data)
        if column is not None:
            self.table.drop_column(column.name)
            self._now([each for each in self.columns if each is not column])

    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def rename(self, data, name):
        column = self._draw(data, with_body=True)
        if column is not None and not self._has(name):
            self.table.rename_column(column.name, name)
            self._replace(column, replace(column, name=name))

    @rule(data=st.data())
    def widen(self, data):
        column = self._draw(data)
        if column is None or column.type not in WIDER:
            return
        type_ = data.draw(st.sampled_from(WIDER[column.type]))
        self.table.alter_column(column.name, type_)
        self._replace(column, replace(column, type=type_))

    @rule(data=st.data())
    def move(self, data):
        column = self._draw(data, with_body=True)
        if column is not None:
            self.table.alter_column(column.name, position="after id", comment="moved")
            others = [each for each in self.columns if each is not column]
            place = others.index(ID) + 1
            self._now([*others[:place], column, *others[place:]])

    @rule(data=st.data(), number=st.integers(0, 7))
    def delete(self, data, number):
        column = data.draw(st.sampled_from([each for each in self.columns if each is not ID]))
        value = VALUES[column.type](number)
        self.table.delete(where=f"{column.name} = {column.literal(value)}")
        self._now(rows={key: row for key, row in self.rows.items() if column.value(row) != value})

    @rule()
    def merge(self):
        self.table.merge_splits()
        self._now()

    @rule()
    def checkpoint(self):
        self.table.checkpoint()

    @rule()
    def purge(self):
        self.table.purge(dry_run=False)

    @rule(data=st.data())
    def restore(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.table.restore(version=version)
        columns, rows = self.versions[version]
        self._now(list(columns), rows)

    @rule(data=st.data())
    def travel(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        _check(IndexTable(self.path, version=version), *self.versions[version])

    @invariant()
    def the_newest_version_is_that_of_the_model(self):
        _check(self.table, self.columns, self.rows)

    def teardown(self):
        table = IndexTable(self.path)
        _check(table, self.columns, self.rows)
        assert table.fsck(deep=True).is_clean
        shutil.rmtree(self.folder)

    def _draw(self, data, *, with_body: bool = False) -> Column | None:
        fixed = {ID.key} if with_body else {ID.key, BODY.key}
        found = [column for column in self.columns if column.key not in fixed]
        return data.draw(st.sampled_from(found)) if found else None

    def _has(self, name: str) -> bool:
        return any(column.name == name for column in self.columns)

    def _replace(self, column: Column, other: Column) -> None:
        self._now([other if each is column else each for each in self.columns])

    def _now(self, columns: list[Column] | None = None, rows: Rows | None = None) -> None:
        self.columns = self.columns if columns is None else columns
        self.rows = self.rows if rows is None else dict(rows)
        self.versions[self.table.version] = (list(self.columns), dict(self.rows))


def _check(table: IndexTable, columns: list[Column], rows: Rows) -> None:
    """Compare rows, counts, searches and aggregates with those of the model."""
    assert table.schema.names == [column.name for column in columns]
    assert [field.type for field in table.schema] == [TYPES[column.type] for column in columns]
    expected = [tuple(column.value(row) for column in columns) for row in rows.values()]
    found = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, expected)))
    for column in columns:
        _check_column(table, column, {key: column.value(row) for key, row in rows.items()})


def _check_column(table: IndexTable, column: Column, values: dict[int, Any]) -> None:
    name, known = column.name, [value for value in values.values() if value is not None]
    assert table.count(where=f"{name} IS NULL") == len(values) - len(known)
    [total] = table.aggregate([f"count({name})"]).to_pylist() if column.key != BODY.key else [{}]
    assert total.get(f"count({name})", len(known)) == len(known)
    if not known or column.key == ID.key:
        return
    value = max(known)
    literal = column.literal(value)
    equal = {key for key, each in values.items() if each == value}
    less = {key for key, each in values.items() if each is not None and each < value}
    assert _ids(table.to_arrow(where=f"{name} = {literal}", columns=["id"])) == equal
    assert table.count(where=f"{name} < {literal}") == len(less)
    query = f"{name}:{literal}".replace("'", '"')
    assert _ids(table.search(query, columns=["id"], limit=1000)) == equal
    if column.type != "string":
        query = f"{name}:<{literal}".replace("'", "")
        assert _ids(table.search(query, columns=["id"], limit=1000)) == less
        [found] = table.aggregate([f"max({name})", f"min({name})"]).to_pylist()
        assert (found[f"max({name})"], found[f"min({name})"]) == (value, min(known))
    else:
        assert _ids(table.search(f'"{value}"', columns=["id"], limit=1000)) >= equal
    if column.key != BODY.key:
        groups = {row[name]: row["count"] for row in table.aggregate(["count"], by=name).to_pylist()}
        assert groups == Counter(known)


def _ids(rows: pa.Table) -> set[int]:
    found = rows["id"].to_pylist()
    assert len(found) == len(set(found))
    return set(found)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.isoformat() if isinstance(value, datetime) else value for value in row)


ColumnModel.TestCase.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
test_columns_agree_with_a_list_and_a_dictionary = ColumnModel.TestCase
