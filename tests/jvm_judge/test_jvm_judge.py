"""IndexTables for Spark 0.5.5 judges: we read what it writes, it refuses our tables, and nothing of ours is lost."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from indextables import IndexTable, errors
from indextables.log.actions import TransactionAction
from indextables.table import Operation, commit
from indextables.table.commit import commit_purge_fence, purge_fence_ms
from indextables.table.intent import RecordTransaction
from support.jvm import Jvm, JvmRefusedError, truth

pytestmark = pytest.mark.jvm_judge

CONVERT = {"spark.indextables.protocol.convertJvmTables": "true"}
ROWS = "SELECT id, concat('word', id % 7, ' common') AS text, id % 3 = 0 AS flag FROM range({}, {})"
BY_MONTH = "SELECT id, concat('word', id) AS text, CAST(id % 12 + 1 AS INT) AS month FROM range({}, {})"

# A column of each type; the values include the ends of its range.
TYPES = {
    "string": "CASE id WHEN 0 THEN '' WHEN 1 THEN 'ünï 😀' WHEN 2 THEN NULL ELSE concat('s', id) END",
    "boolean": "CASE id WHEN 2 THEN NULL ELSE id % 2 = 0 END",
    "byte": "CAST(CASE id WHEN 0 THEN -128 WHEN 1 THEN 127 WHEN 2 THEN NULL ELSE id END AS TINYINT)",
    "short": "CAST(CASE id WHEN 0 THEN -32768 WHEN 1 THEN 32767 WHEN 2 THEN NULL ELSE id END AS SMALLINT)",
    "int": "CAST(CASE id WHEN 0 THEN -2147483648 WHEN 1 THEN 2147483647 WHEN 2 THEN NULL ELSE id END AS INT)",
    "long": "CASE id WHEN 0 THEN -9223372036854775807 WHEN 1 THEN 9223372036854775807 WHEN 2 THEN NULL ELSE id END",
    "float": "CAST(CASE id WHEN 2 THEN NULL ELSE id / 3 END AS FLOAT)",
    "double": "CASE id WHEN 0 THEN -1.7e308D WHEN 1 THEN 5e-324D WHEN 2 THEN NULL ELSE id / 3D END",
    "decimal": "CAST(CASE id WHEN 2 THEN NULL ELSE id / 4 END AS DECIMAL(10, 2))",
    "date": "CASE id WHEN 0 THEN DATE'1969-12-31' WHEN 2 THEN NULL "
    "ELSE date_add(DATE'2024-02-28', CAST(id AS INT)) END",
    "timestamp": "CASE id WHEN 0 THEN TIMESTAMP'1969-12-31 23:59:59.5' WHEN 2 THEN NULL "
    "ELSE timestamp_micros(1700000000000000 + id) END",
    "binary": "CASE id WHEN 2 THEN NULL ELSE CAST(concat('b', id) AS BINARY) END",
    "array": "CASE id WHEN 0 THEN array() WHEN 2 THEN NULL ELSE array(concat('a', id), 'b') END",
    "struct": "named_struct('a', id, 'b', concat('t', id))",
}


def written(path: Path, order: str = "id") -> pa.Table:
    """The rows that the JVM was told to write, from Parquet."""
    return pq.ParquetDataset(truth(path)).read().sort_by(order)


def read_here(path: Path) -> pa.Table:
    return IndexTable(path).to_arrow().sort_by("id")


def check_same_rows(path: Path, kept: Iterable[int] | None = None) -> None:
    """Our reader returns the rows that the JVM was told to write, or those with the ids in `kept`."""
    expected, found = written(path), read_here(path)
    if kept is not None:
        expected = expected.filter(pc.is_in(expected["id"], value_set=pa.array(list(kept), pa.int64())))
    assert found.select(expected.column_names).to_pylist() == expected.to_pylist()
    assert IndexTable(path).fsck(deep=True).is_clean


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table"


# --- we read what it writes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_read(jvm: Jvm, path: Path, name: str) -> None:
    try:
        jvm.write(f"SELECT id, {TYPES[name]} AS value FROM range(0, 50)", path)
    except JvmRefusedError as refusal:
        pytest.skip(f"the JVM does not write the type {name}: {str(refusal)[:200]}")
    check_same_rows(path)


def test_appends_are_read_and_searched(jvm: Jvm, path: Path) -> None:
    for first in (0, 100, 200):
        jvm.write(ROWS.format(first, first + 100), path, indexing__typemap__text="text")
    check_same_rows(path)
    table = IndexTable(path)
    assert table.count("text:word3") == sum(number % 7 == 3 for number in range(300))
    assert sorted(table.search("text:word3", limit=1000)["id"].to_pylist()) == [
        number for number in range(300) if number % 7 == 3
    ]


@pytest.mark.parametrize("column", ["flag", "text"])
def test_partitions_are_read(jvm: Jvm, path: Path, column: str) -> None:
    jvm.write(ROWS.format(0, 60), path, partition_by=[column])
    check_same_rows(path)
    where = {"flag": "flag = true", "text": "text = 'word3 common'"}[column]
    assert sorted(IndexTable(path).to_arrow(where=where)["id"].to_pylist()) == jvm.read(path, where)


def test_its_merges_drops_and_checkpoints_are_read(jvm: Jvm, path: Path) -> None:
    for first in (0, 100, 200):
        jvm.write(BY_MONTH.format(first, first + 100), path, partition_by=["month"])
    before = IndexTable(path).num_files
    jvm.sql(f"MERGE SPLITS '{path}' TARGET SIZE 100M")
    assert IndexTable(path).num_files < before
    check_same_rows(path)
    jvm.sql(f"DROP INDEXTABLES PARTITIONS FROM '{path}' WHERE month = '5'")
    kept = [number for number in range(300) if number % 12 + 1 != 5]
    check_same_rows(path, kept)
    jvm.sql(f"CHECKPOINT INDEXTABLES '{path}'")
    check_same_rows(path, kept)
    assert jvm.read(path) == kept


# --- it refuses our tables -----------------------------------------------------------------------------


def files(path: Path) -> dict[str, bytes]:
    # Hadoop leaves checksums beside the files that it writes.
    return {
        str(file): file.read_bytes() for file in path.rglob("*") if file.is_file() and file.suffix != ".crc"
    }


@pytest.mark.parametrize("has_state", [False, True])
def test_our_tables_are_refused_and_left_alone(jvm: Jvm, path: Path, has_state: bool) -> None:
    rows = pa.table({"id": [1, 2], "text": ["a", "b"], "flag": [True, False]})
    table = IndexTable.create(path, rows.schema)
    table.append(rows)
    if has_state:
        table.checkpoint()
    before = files(path)
    with pytest.raises(JvmRefusedError, match="version 5"):
        jvm.write(ROWS.format(10, 20), path)
    # It does not check the version before a query: the query itself fails.
    with pytest.raises(JvmRefusedError):
        jvm.read(path)
    assert {name: data for name, data in files(path).items() if name in before} == before
    assert IndexTable(path).to_arrow().sort_by("id").to_pylist() == rows.to_pylist()


def test_a_converted_table_is_refused(jvm: Jvm, path: Path) -> None:
    jvm.write(ROWS.format(0, 30), path)
    rows = read_here(path)
    with pytest.raises(errors.ProtocolUpgradeError):
        IndexTable(path).append(rows)
    assert jvm.read(path) == list(range(30))
    IndexTable(path, options=CONVERT).append(rows)
    with pytest.raises(JvmRefusedError, match="version 5"):
        jvm.write(ROWS.format(30, 40), path)
    assert IndexTable(path).num_rows == 60


# --- a shared table ------------------------------------------------------------------------------------


def test_nothing_of_ours_is_lost_after_it_wrote_states(jvm: Jvm, path: Path) -> None:
    jvm.write(ROWS.format(0, 20), path)
    IndexTable(path).set_properties({"owner": "search team"})
    snapshot = commit_purge_fence(IndexTable(path)._snapshot, 1_000)
    transaction = RecordTransaction(TransactionAction(app_id="query", version=7))
    commit(snapshot, transaction, Operation("STREAM"))
    IndexTable(path).checkpoint()
    ours = IndexTable(path)._snapshot.header
    for first in (20, 40, 60):
        jvm.write(ROWS.format(first, first + 20), path)
    jvm.sql(f"CHECKPOINT INDEXTABLES '{path}'")
    for step in ("after its states", "after ours on top of them"):
        found = IndexTable(path)
        header = found._snapshot.header
        assert header.transactions == ours.transactions, step
        assert ours.recent_commits.items() <= header.recent_commits.items(), step
        assert purge_fence_ms(found._snapshot) == 1_000, step
        assert found.metadata.configuration["owner"] == "search team", step
        check_same_rows(path)
        found.checkpoint()
    assert jvm.read(path) == list(range(80))


def test_it_finds_all_rows_of_integer_partitions_by_our_state(jvm: Jvm, path: Path) -> None:
    jvm.write(BY_MONTH.format(0, 120), path, partition_by=["month"])
    IndexTable(path).compact()
    for where in ("month = 5", "month = 10", "month > 3", "month < 10", "month >= 10", "month <= 2"):
        expected = sorted(IndexTable(path).to_arrow(where=where)["id"].to_pylist())
        assert (where, jvm.read(path, where)) == (where, expected)
