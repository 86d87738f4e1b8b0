"""The public API: what `indextables` exports, and the examples of its docstrings."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import indextables
from indextables import IndexTable
from indextables._results import Result, schema_of
from indextables.errors import IndexTablesError

SCHEMA = pa.schema([("date", pa.string()), ("level", pa.string()), ("message", pa.string())])
ROWS = [
    {"date": "2026-01-30", "level": "ERROR", "message": "connection timeout"},
    {"date": "2026-01-30", "level": "INFO", "message": "connected"},
    {"date": "2026-01-31", "level": "ERROR", "message": "request timeout"},
    {"date": "2026-01-31", "level": "INFO", "message": "request done"},
]
EXPORTS = [getattr(indextables, name) for name in indextables.__all__]
RESULTS = [each for each in EXPORTS if isinstance(each, type) and issubclass(each, Result)]
CLASSES = [each for each in IndexTable.__mro__ if each.__module__.startswith("indextables.")]
METHODS = {
    f"{kind.__name__}.{name}": inspect.unwrap(getattr(member, "__func__", member))
    for kind in CLASSES
    for name, member in vars(kind).items()
    if not name.startswith("_") and (callable(member) or isinstance(member, classmethod))
}
DOCUMENTED = {
    "indextables": indextables,
    "IndexTable": IndexTable,
    **METHODS,
    **{name: inspect.unwrap(getattr(indextables, name)) for name in ("expr", "repair_table", "sql", "write")},
}
EXAMPLES = [
    example
    for name, each in DOCUMENTED.items()
    for example in doctest.DocTestFinder(recurse=False).find(each, name, globs={})
    if example.examples
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexTable:
    """The table `logs` of the examples: version 1 adds January 30, version 2 adds January 31."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    table = IndexTable.create("logs", SCHEMA, partition_by=["date"], text=["message"])
    for rows in (ROWS[:2], ROWS[2:]):
        table.append(pa.Table.from_pylist(rows, SCHEMA))
    return table


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_of_a_docstring_runs(example, table):
    example.globs.update(table=table, IndexTable=IndexTable, pa=pa)
    report = []
    doctest.DocTestRunner().run(example, out=report.append)
    assert "".join(report) == ""


def test_every_method_of_a_table_has_an_example():
    assert METHODS.keys() <= {example.name for example in EXAMPLES}


def test_names_are_listed_and_importable():
    assert dir(indextables) == sorted(indextables.__all__)
    assert all(hasattr(indextables, name) for name in indextables.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = indextables.nonsense


def test_requests_and_results_are_frozen_and_documented():
    structs = [each for each in EXPORTS if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    assert all(each.__struct_config__.frozen and each.__doc__ for each in structs)
    named = {name for name in indextables.__all__ if name.endswith("Result")}
    assert named == {each.__name__ for each in RESULTS}


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_every_column_of_a_result_is_an_attribute(kind):
    row = getattr(kind, "row", kind)  # a result of several rows says what a row is
    assert all(column.name in row.__struct_fields__ or hasattr(row, column.name) for column in kind.columns)
    assert all(column.meaning for column in kind.columns)


def test_a_result_has_the_same_names_in_python_in_arrow_and_as_a_dict(table):
    table.drop_partitions("date = '2026-01-30'")
    for result in (table.checkpoint(), table.fsck(), table.purge(), table.truncate_time_travel()):
        names = [column.name for column in result.columns]
        answer = result.to_arrow()
        assert answer.schema == schema_of(result.columns)
        assert list(result.to_dict()) == answer.column_names == names
        assert result.to_dict()["status"] == result.status.value
        assert result.to_dict()["table_path"] == table.snapshot.context.url


def test_a_result_shows_its_columns(table):
    shown = repr(table.truncate_time_travel())
    assert shown.startswith("TruncateResult(table_path='file://")
    assert shown.endswith("files=<2 rows>)")


def test_restore_needs_a_version_or_a_timestamp(table):
    with pytest.raises(IndexTablesError, match="either a version or a timestamp"):
        table.restore()


def test_import_is_light():
    code = (
        "import sys, indextables; "
        "heavy = {'pyarrow', 'msgspec', 'numpy', 'tantivy', 'indextables.statements', 'indextables.ops'}; "
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
