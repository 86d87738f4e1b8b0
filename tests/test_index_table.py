"""`IndexTable`: properties, files, commits and time travel."""

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import indextables
from indextables import AddAction, IndexTable, errors
from support.tables import PARTITION_BY, SCHEMA, add, options

PLAIN = options({"checkpoint.enabled": "false"})


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "logs")


@pytest.fixture
def table(path) -> IndexTable:
    table = IndexTable.create(path, SCHEMA, partition_by=PARTITION_BY, text=["message"], options=PLAIN)
    table.commit(adds=[add("a", date="2024-01-01"), add("b", date="2024-01-02", size=20)])
    return table


def paths(table: IndexTable) -> list[str]:
    return sorted(table.files(columns=["path"])["path"].to_pylist())


def test_package_exports():
    assert {"AddAction", "IndexTable", "errors"} <= set(indextables.__all__)
    assert indextables.IndexTable is IndexTable
    assert issubclass(errors.CommitConflictError, errors.IndexTablesError)


def test_a_table_shows_its_properties(table, path):
    assert table.version == 1
    assert table.schema == SCHEMA
    assert table.partition_columns == ["date"]
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (5, 5)
    assert table.metadata.configuration == {
        "spark.indextables.indexing.typemap.message": "text",
        "maxFieldId": str(len(SCHEMA)),
    }
    assert (table.num_files, table.num_rows, table.total_bytes) == (2, 30, 30)
    assert repr(table) == f"IndexTable('file://{path}', version=1)"


def test_num_rows_is_none_if_a_split_does_not_record_it(table):
    table.commit(
        adds=[AddAction(path="c", partition_values={}, size=1, modification_time=0, data_change=True)]
    )
    assert table.num_rows is None


def test_files_are_pruned_and_projected(table):
    assert table.files(where="date = '2024-01-02'", columns=["path", "size"]).to_pylist() == [
        {"path": "b", "size": 20}
    ]
    assert table.files(where="id > 15", columns=["path"])["path"].to_pylist() == ["b"]
    selection = table.select_files("date = '2024-01-02'")
    assert selection.files_skipped_by_partition == 1


def test_files_with_a_column_that_does_not_exist(table):
    with pytest.raises(errors.InvalidOptionError, match="no column 'nope'"):
        table.files(columns=["nope"])
    with pytest.raises(errors.InvalidPredicateError):
        table.files(where="nope = 1")


def test_object_stays_at_its_version_until_it_is_refreshed(table, path):
    other = IndexTable(path, options=PLAIN)
    assert table.commit(adds=[add("c")]) == 2
    assert (other.version, paths(other)) == (1, ["a", "b"])
    assert other.refresh() is other
    assert (other.version, paths(other)) == (2, ["a", "b", "c"])


def test_object_follows_its_own_commits(table):
    assert table.commit(adds=[add("c")]) == 2
    assert table.commit(removes=["a"]) == 3
    assert table.commit(adds=[add("bc")], removes=["b", "c"]) == 4
    assert (table.version, paths(table)) == (4, ["bc"])
    assert table.commit(removes=["a"]) == 4


def test_commits_of_two_objects_compose(table, path):
    other = IndexTable(path, options=PLAIN)
    table.commit(adds=[add("c")])
    assert other.commit(adds=[add("d")]) == 3
    assert paths(other) == ["a", "b", "c", "d"]
    assert paths(table.refresh()) == ["a", "b", "c", "d"]


def test_time_travel(table, path):
    table.commit(removes=["a"])
    then = IndexTable(path, version=1, options=PLAIN)
    assert (then.version, paths(then)) == (1, ["a", "b"])
    assert paths(IndexTable(path, timestamp=datetime.now(UTC), options=PLAIN)) == ["b"]
    with pytest.raises(errors.VersionNotFoundError, match="version 9"):
        IndexTable(path, version=9, options=PLAIN)
    with pytest.raises(errors.VersionNotFoundError, match="earliest one left, version 0"):
        IndexTable(path, timestamp="1999-12-31", options=PLAIN)


def test_history_newest_first_and_limited(table):
    table.commit(removes=["a"])
    assert table.history()["version"].to_pylist() == [2, 1, 0]
    assert table.history()["operation"].to_pylist() == ["DELETE", "WRITE", "CREATE TABLE"]
    assert table.history(limit=1)["version"].to_pylist() == [2]
    assert table.history(limit=0).num_rows == 0
    assert table.history(limit=99).num_rows == 3


def test_changes(table):
    created = table.history()["timestamp"].to_pylist()[-1]
    table.commit(removes=["a"])
    changes = table.changes(since_version=1)
    assert (changes.version, changes.adds.num_rows, changes.removes["path"].to_pylist()) == (2, 0, ["a"])
    assert table.changes(since_timestamp=created).since_version in (0, 1, 2)  # within one millisecond
    with pytest.raises(errors.InvalidOptionError, match="either since_version or since_timestamp"):
        table.changes()
    with pytest.raises(errors.InvalidOptionError):
        table.changes(since_version=1, since_timestamp=created)


def test_checkpoint_compact_and_describe(table, path):
    assert described(table)["format"] == "none"
    result = table.checkpoint()
    assert (result.version, result.new_format, result.num_files) == (1, "avro-state", 2)
    assert described(table)["format"] == "avro-state"
    table.commit(adds=[add("c")])
    table.checkpoint()
    assert described(table)["numManifests"] == "2"
    assert table.compact().version == 3
    assert (table.version, described(table)["numManifests"]) == (3, "1")
    assert paths(IndexTable(path, options=PLAIN)) == ["a", "b", "c"]


def test_checkpoint_covers_concurrent_commits(table, path):
    IndexTable(path, options=PLAIN).commit(adds=[add("c")])
    assert table.checkpoint().version == 2
    assert table.version == 2


def described(table: IndexTable) -> dict[str, str | None]:
    return dict(zip(*table.describe_state().to_pydict().values(), strict=True))


def test_properties_and_protocol(table):
    assert table.set_properties({"owner": "me"}) == 2
    assert table.metadata.configuration["owner"] == "me"
    assert table.upgrade_protocol(5, 5) == 2


def test_open_a_table_that_does_not_exist(tmp_path):
    with pytest.raises(errors.TableNotFoundError, match=r"there is no table here.*IndexTable\.create"):
        IndexTable(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("text", [["nowhere"], ["id"]])
def test_text_columns_must_be_strings_of_the_schema(path, text):
    with pytest.raises(errors.InvalidSchemaError, match="text column"):
        IndexTable.create(path, SCHEMA, text=text)


def test_index_settings_among_the_options_stay_with_the_table(path):
    key = "spark.indextables.indexing.typemap.message"
    IndexTable.create(path, SCHEMA, options={key: "text"})
    assert IndexTable(path).metadata.configuration == {key: "text", "maxFieldId": str(len(SCHEMA))}


def test_create_twice_opens_the_same(table, path):
    again = IndexTable.create(path, SCHEMA, partition_by=PARTITION_BY, text=["message"])
    assert (again.metadata.id, again.version) == (table.metadata.id, 1)
    with pytest.raises(errors.TableAlreadyExistsError):
        IndexTable.create(path, pa.schema([("other", pa.int64())]))


def test_relative_path_is_relative_to_the_working_directory(table, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert IndexTable("logs").metadata.id == table.metadata.id


def test_wrong_option_is_refused(path):
    with pytest.raises(errors.InvalidOptionError, match="interval"):
        IndexTable.create(path, SCHEMA, options={"spark.indextables.checkpoint.interval": "never"})


def test_add_actions_pickle():
    action = add("a")
    assert pickle.loads(pickle.dumps(action)) == action


def test_automatic_checkpoint_by_default(path):
    table = IndexTable.create(path, SCHEMA, partition_by=PARTITION_BY)
    for number in range(10):
        table.commit(adds=[add(f"p{number}")])
    assert described(table)["checkpointVersion"] == "10"


def test_a_path_object_and_single_names_create_and_open_a_table(tmp_path):
    schema = pa.schema([("day", pa.string()), ("message", pa.string())])
    IndexTable.create(tmp_path / "t", schema, partition_by="day", text="message")
    table = IndexTable(tmp_path / "t")
    table.append(pa.table({"day": ["mon"], "message": ["hello world"]}))
    assert (table.partition_columns, table.count("hello")) == (["day"], 1)
