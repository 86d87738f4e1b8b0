"""Merges end to end: the same rows and search results in fewer splits."""

import gzip
import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from indextables import AddAction, IndexTable
from indextables.errors import InvalidOptionError, InvalidPredicateError, ReadOnlyTableError
from indextables.ops.merge import MergeRequest, MergeResult, merge_splits, plan_merge
from indextables.ops.runner import Interruption, LocalRunner, Progress
from indextables.ops.write import append
from indextables.state.source import StateSource
from indextables.table import create_table
from support.faults import FaultStore
from support.row_tables import SCHEMA, counted, ids, rows, split_files
from support.tables import context, memory_store

FIXTURES = Path(__file__).parents[3] / "../shared/fixtures"
CONVERT = {"spark.indextables.protocol.convertJvmTables": "true"}
EXPECTED = json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.is_dir() else {}


def table_with(path, *batches, **arguments):
    """A table with a split for each batch."""
    table = IndexTable.create(path, SCHEMA, **{"partition_by": ["day"], "text": ["body"], **arguments})
    for batch in batches:
        table.append(batch)
    return table


@pytest.fixture
def table(tmp_path):
    days = ["a", "b", "a", "b", "a"]
    return table_with(tmp_path / "table", *(rows(number, day=day) for number, day in enumerate(days)))


def version_file(table):
    path = Path(table._snapshot.context.url.removeprefix("file://"))
    data = (path / f"_transaction_log/{table.version:020d}.json").read_bytes()
    # Two bytes with the codec precede the gzip stream.
    return [json.loads(line) for line in gzip.decompress(data[2:]).splitlines()]


def test_each_partition_becomes_one_split_with_the_same_rows(table):
    before = counted(table.to_arrow())
    bytes_before = table.total_bytes
    report = table.merge_splits()
    assert counted(table.to_arrow()) == before
    assert table.num_files == 2
    assert report == MergeResult(
        table.snapshot,
        version=6,
        merged_groups=2,
        source_splits=5,
        new_splits=2,
        rows=5,
        bytes_before=bytes_before,
        bytes_after=table.total_bytes,
    )
    assert table.version == IndexTable(table._snapshot.context.url).version == 6


def test_report_is_a_table_of_one_row(table):
    report = table.merge_splits().to_arrow()
    assert report.num_rows == 1
    assert report.to_pylist()[0]["source_splits"] == 5


def test_searches_and_counts_are_the_same_afterwards(table):
    queries = ["row", "body:3", 'body:"row 4"', "id:[1 TO 3]"]
    before = [sorted(table.search(query, limit=10)["id"].to_pylist()) for query in queries]
    table.merge_splits()
    assert [sorted(table.search(query, limit=10)["id"].to_pylist()) for query in queries] == before
    assert before[0] == [0, 1, 2, 3, 4]
    assert table.count("row", where="day = 'a'") == 3
    assert ids(table, where="id >= 3") == [3, 4]


def test_the_commit_changes_no_data_and_counts_the_merges(tmp_path):
    table = table_with(tmp_path / "table", rows(1), rows(2))
    table.merge_splits()
    actions = version_file(table)
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    assert [(add["dataChange"], add["numMergeOps"], add["numRecords"]) for add in adds] == [(False, 1, 2)]
    assert [remove["dataChange"] for remove in removes] == [False, False]
    assert adds[0]["minValues"]["id"] == "1"
    assert adds[0]["maxValues"]["id"] == "2"
    table.append(rows(3))
    table.merge_splits()
    assert table.files()["numMergeOps"].to_pylist() == [2]
    assert table.history(1)["operation"].to_pylist() == ["MERGE"]


def test_readers_of_changes_see_no_new_data(table):
    since = table.version
    table.merge_splits()
    changes = table.changes(since_version=since)
    assert not any(changes.adds["dataChange"].to_pylist())


def test_the_state_is_compact_afterwards(table):
    table.merge_splits()
    state = {row["property"]: row["value"] for row in table.describe_state().to_pylist()}
    assert state["checkpointVersion"] == str(table.version)
    assert state["numTombstones"] == "0"


def test_manifests_without_merged_splits_stay_as_they_are(tmp_path):
    """The cost of the state after a merge depends on the change, not on the size of the table."""
    place = str(tmp_path / "table")
    options = {"spark.indextables.state.entriesPerManifest": "1"}
    IndexTable.create(place, SCHEMA, partition_by=["day"])
    for day in ("a", "b", "c", "d"):
        for number in (1, 2):
            IndexTable(place, options=options).append(rows(number, day=day))
    table = IndexTable(place, options=options)
    table.compact()
    before = manifests_of(place)
    table.refresh().merge_splits(where="day = 'b'")
    after = manifests_of(place)
    assert (len(before), len(after), len(before & after)) == (8, 7, 6)
    assert IndexTable(place).num_rows == 8


def manifests_of(place: str) -> set[str]:
    source = IndexTable(place)._snapshot.source
    assert isinstance(source, StateSource)
    assert not len(source.state.tombstones)
    return {info.path for info in source.state.manifests}


def test_compaction_can_be_switched_off(tmp_path):
    options = {"spark.indextables.state.compaction.afterMerge": "false"}
    table = table_with(tmp_path / "table", rows(1), rows(2), options=options)
    table.merge_splits()
    assert table._snapshot.segment.base is None


def test_older_versions_stay_readable(table):
    version = table.version
    table.merge_splits()
    assert ids(IndexTable(table._snapshot.context.url, version=version)) == [0, 1, 2, 3, 4]


def test_a_second_merge_has_nothing_to_do(table):
    table.merge_splits()
    version = table.version
    assert table.merge_splits() == MergeResult(table.snapshot)
    assert table.version == version


def test_where_selects_partitions(table):
    report = table.merge_splits(where="day = 'a'")
    assert report.source_splits == 3
    assert sorted(table.files()["numMergeOps"].to_pylist()) == [0, 0, 1]


def test_where_must_be_about_partitions(table):
    with pytest.raises(InvalidPredicateError, match="id"):
        table.merge_splits(where="id > 3")


def test_limits_are_kept(table):
    assert table.merge_splits(max_dest_splits=1).new_splits == 1
    assert table.num_files == 3


def test_sources_of_a_split_are_limited(tmp_path):
    table = table_with(tmp_path / "table", *(rows(number) for number in range(5)))
    report = table.merge_splits(max_source_splits_per_merge=2)
    assert (report.merged_groups, report.source_splits, table.num_files) == (2, 4, 3)


def test_splits_of_the_target_size_are_left_alone(table):
    smallest = min(table.files()["size"].to_pylist())
    assert table.merge_splits(target_size=smallest) == MergeResult(table.snapshot)


@pytest.mark.parametrize(
    "arguments",
    [
        {"target_size": "many"},
        {"target_size": 0},
        {"max_dest_splits": 0},
        {"max_source_splits_per_merge": 1},
    ],
)
def test_invalid_limits_are_rejected(table, arguments):
    with pytest.raises(InvalidOptionError, match=next(iter(arguments))):
        table.merge_splits(**arguments)


def test_an_old_version_cannot_be_merged(table):
    with pytest.raises(ReadOnlyTableError, match="can only be read"):
        IndexTable(table._snapshot.context.url, version=2).merge_splits()


def test_a_merge_starts_from_the_newest_version(table):
    stale = IndexTable(table._snapshot.context.url)
    table.append(rows(9, day="b"))
    assert stale.merge_splits().source_splits == 6
    assert ids(stale) == [0, 1, 2, 3, 4, 9]


def test_progress_is_reported(table):
    reported = []
    table.merge_splits(progress=reported.append)
    assert reported == [Progress("merging splits", done, 2) for done in range(3)]


def test_null_partitions_and_nulls_survive(tmp_path):
    nothing = pa.table({"id": [7], "day": [None], "body": [None]}, schema=SCHEMA)
    table = table_with(tmp_path / "table", rows(1, day=None), nothing, rows(2, day="x"), rows(3, day=""))
    before = counted(table.to_arrow())
    assert table.merge_splits().source_splits == 2
    assert counted(table.to_arrow()) == before
    assert ids(table, where="day IS NULL") == [1, 7]


def test_many_rows_survive(tmp_path):
    table = table_with(tmp_path / "table", rows(*range(5000)), rows(*range(5000, 9000)))
    assert table.merge_splits().rows == 9000
    assert ids(table) == list(range(9000))
    assert table.count("body:8999") == 1


def test_rows_of_many_sources_keep_their_order(tmp_path):
    table = IndexTable.create(tmp_path / "table", SCHEMA)
    for first in (500, 0, 1_000):
        table.append(rows(*range(first, first + 500)))
    before = table.to_arrow(columns=["id"])["id"].to_pylist()
    table.merge_splits()
    assert table.num_files == 1
    assert table.to_arrow(columns=["id"])["id"].to_pylist() == before


def test_every_source_is_read_with_two_requests():
    store = FaultStore(memory_store())
    snapshot = create_table(context(store), SCHEMA, (), {})
    for number in range(5):
        snapshot = append(snapshot, rows(number)).snapshot
    sources = snapshot.entries["path"].to_pylist()
    store.calls.clear()
    merge_splits(snapshot, MergeRequest(), LocalRunner(1))
    reads = Counter(call.key for call in store.calls if call.operation.startswith("get"))
    assert [reads[path] for path in sources] == [2] * 5


def test_tags_of_splits_survive(tmp_path):
    table = table_with(tmp_path / "table", rows(1), rows(2))
    for entry, tag in zip(
        table.files().to_pylist(maps_as_pydicts="strict"), ["first", "second"], strict=True
    ):
        tagged = AddAction(
            path=entry["path"],
            partition_values=entry["partitionValues"],
            size=entry["size"],
            modification_time=entry["modificationTime"],
            data_change=False,
            split_tags=(tag, "both"),
        )
        table.commit(adds=[tagged])
    table.merge_splits()
    assert table.files()["splitTags"].to_pylist() == [["both", "first", "second"]]


# --- field settings ------------------------------------------------------------------------------------


def test_field_settings_of_the_writer_survive_where_the_merger_does_not_know_them(tmp_path):
    path = tmp_path / "table"
    IndexTable.create(path, SCHEMA)
    options = {
        "spark.indextables.indexing.typemap.body": "text",
        "spark.indextables.indexing.tokenizer.body": "whitespace",
        "spark.indextables.indexing.storeonlyfields": "day",
    }
    writer = IndexTable(path, options=options)
    writer.append(rows(1))
    writer.append(rows(2))
    table = IndexTable(path)
    (mapping,) = set(table.files()["docMappingRef"].to_pylist())
    table.merge_splits()
    assert table.files()["docMappingRef"].to_pylist() == [mapping]
    assert table.count("body:row") == 2


def test_words_are_found_after_splits_with_different_settings_were_merged(tmp_path):
    path = tmp_path / "table"
    table = IndexTable.create(path, SCHEMA)
    table.append(rows(1))
    IndexTable(path, options={"spark.indextables.indexing.typemap.body": "text"}).append(rows(2))
    table.merge_splits()
    assert table.num_files == 1
    assert table.count("body:row") == 2
    assert ids(table, where="body = 'row 1'") == [1]


def test_settings_of_the_table_count_where_splits_differ(tmp_path):
    path = tmp_path / "table"
    table = IndexTable.create(path, SCHEMA, text=["body"])
    table.append(rows(1))
    table.set_properties({"spark.indextables.indexing.tokenizer.body": "whitespace"})
    table.append(rows(2))
    newest = table.files().sort_by("addedAtVersion")["docMappingRef"].to_pylist()[-1]
    table.merge_splits()
    assert table.files()["docMappingRef"].to_pylist() == [newest]


# --- tables of the reference implementation ------------------------------------------------------------


@pytest.mark.skipif(not EXPECTED, reason="the reference tables are not at ../shared/fixtures")
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_tables_written_on_the_jvm_keep_rows_mapping_and_searches(tmp_path, name):
    expected = EXPECTED[name]
    shutil.copytree(FIXTURES / name, tmp_path / name)
    table = IndexTable(tmp_path / name, options=CONVERT)
    text = next(field.name for field in table.schema if field.name in ("text", "body", "title"))
    word = table.to_arrow()[text][0].as_py().split()[0].strip(".,").lower()
    before, found = counted(table.to_arrow()), table.count(f"{text}:{word}")
    partitions = {json.dumps(values) for values in table.files()["partitionValues"].to_pylist()}
    report = table.merge_splits()
    assert report.skipped == report.given_up == ()
    assert table.num_files == len(partitions)
    assert report.source_splits in (0, expected["numFiles"])
    assert counted(table.to_arrow()) == before
    assert table.num_rows == expected["numRecords"]
    assert set(table.files()["docMappingRef"].to_pylist()) == set(expected["docMappingRefs"])
    assert table.count(f"{text}:{word}") == found


@pytest.mark.skipif(not EXPECTED, reason="the reference tables are not at ../shared/fixtures")
def test_splits_of_both_writers_become_one(tmp_path):
    shutil.copytree(FIXTURES / "01_single_write", tmp_path / "table")
    table = IndexTable(tmp_path / "table", options=CONVERT)
    table.append(table.to_arrow())
    before = counted(table.to_arrow())
    table.merge_splits()
    assert table.num_files == 1
    assert counted(table.to_arrow()) == before


# --- tasks ---------------------------------------------------------------------------------------------


def test_tasks_do_their_work_in_another_process_and_show_no_credentials(tmp_path):
    secret = "canary-77ab"
    path = str(tmp_path / "table")
    options = {"spark.indextables.aws.secretKey": secret}
    table = table_with(path, rows(1), rows(2), options=options)
    (task,) = plan_merge(table._snapshot, MergeRequest())
    assert secret not in repr(task)
    elsewhere = pickle.loads(pickle.dumps(task))
    assert elsewhere.store.store is not task.store.store
    result = pickle.loads(pickle.dumps(elsewhere.run(Interruption())))
    assert len(split_files(Path(path))) == 3
    elsewhere.discard(result)
    assert len(split_files(Path(path))) == 2
    assert sum(file.num_records for file in result.files) == 2


def test_a_store_without_a_location_does_not_leave_its_process():
    snapshot = create_table(context(memory_store()), SCHEMA, (), {})
    for number in range(2):
        snapshot = append(snapshot, rows(number)).snapshot
    (task,) = plan_merge(snapshot, MergeRequest())
    with pytest.raises(InvalidOptionError, match="open the table by its path"):
        pickle.dumps(task)
    assert merge_splits(snapshot, MergeRequest(), LocalRunner(1)).rows == 2
