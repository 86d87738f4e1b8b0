"""The read path of a state: manifest skipping, tombstones, and states of other writers."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables import errors
from support.state_tables import TableBuilder, numbered, paths, split, state_of

REGIONS = ["eu", "us", "", "null", "é", "A/A", None]
DAYS = ["1", "2", "9", "10", "12", None]
PREDICATES = st.deferred(
    lambda: st.one_of(
        st.builds(
            lambda op, value: f"day {op} {value}",
            st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
            st.integers(0, 13),
        ),
        st.builds(lambda value: f"region = '{value}'", st.sampled_from(["eu", "us", "", "null", "é", "A/A"])),
        st.sampled_from(
            ["region IS NULL", "day IS NOT NULL", "day BETWEEN 2 AND 11", "region IN ('eu', 'é')"]
        ),
        st.sampled_from(["region LIKE 'e%'", "id > 55", "id BETWEEN 10 AND 19", "region <> 'eu'"]),
        st.builds(lambda a, b, op: f"({a} {op} {b})", PREDICATES, PREDICATES, st.sampled_from(["AND", "OR"])),
        st.builds(lambda a: f"NOT ({a})", PREDICATES),
    )
)


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory) -> TableBuilder:
    """A table with small manifests, some tombstones, and a tail of version files."""
    options = {"state.entriesPerManifest": "4", "state.compaction.tombstoneThreshold": "0.9"}
    tables = TableBuilder(str(tmp_path_factory.mktemp("pruning") / "table"), ("region", "day"), options)
    table = tables.create()
    values = [(region, day) for region in REGIONS for day in DAYS]
    table.commit(adds=[split(n, region=region, day=day) for n, (region, day) in enumerate(values)])
    table.compact()
    table.commit(removes=numbered([0, 13, 41]))
    table.checkpoint()
    table.commit(adds=[split(100, region="us", day="5"), split(0, region="eu", day="1")])
    return tables


@settings(max_examples=120)
@given(predicate=PREDICATES)
def test_a_pruned_listing_equals_the_unpruned_one(partitioned, predicate):
    everything = partitioned.open()
    everything.files()  # entries in memory: nothing is skipped by manifests
    pruned = partitioned.open().select_files(predicate)
    unpruned = everything.select_files(predicate)
    assert sorted(pruned.entries["path"].to_pylist()) == sorted(unpruned.entries["path"].to_pylist())


def test_manifests_are_skipped_by_typed_bounds(partitioned):
    selection = partitioned.open().select_files("region = 'us' AND day = 10")
    assert selection.entries["path"].to_pylist() == ["part-00009.split"]
    assert selection.manifests_skipped > 0
    assert selection.manifests_skipped < selection.manifests


def test_a_predicate_over_another_column_skips_no_manifest(partitioned):
    assert partitioned.open().select_files("id = 55").manifests_skipped == 0


def test_an_or_with_another_column_does_not_prune_by_partition(partitioned):
    selection = partitioned.open().select_files("region = 'eu' OR id = 155")
    assert "part-00015.split" in selection.entries["path"].to_pylist()
    assert selection.manifests_skipped == 0


def test_columns_are_selected(partitioned):
    assert partitioned.open().files(columns=["size", "path"]).column_names == ["size", "path"]
    with pytest.raises(errors.InvalidOptionError, match="nonsense"):
        partitioned.open().files(columns=["nonsense"])


def test_a_missing_manifest_is_an_error_that_names_it_unless_the_log_can_be_replayed(builder):
    tables = builder()
    table = tables.create()
    table.commit(adds=[split(1)])
    table.checkpoint()
    (manifest,) = Path(tables.path, "_transaction_log/manifests").glob("*.avro")
    manifest.unlink()
    assert paths(tables.open()) == numbered([1])
    for version in Path(tables.path, "_transaction_log").glob("0*.json"):
        version.unlink()
    with pytest.raises(errors.IndexTablesError, match=manifest.name):
        tables.open().files()


def as_foreign_state(folder: Path, version: int, **changes) -> None:
    """Rewrite a state as `_manifest.json`, without the fields that only this package writes."""
    import fastavro

    path = folder / f"state-v{version:020d}/_manifest.avro"
    with path.open("rb") as stream:
        (state,) = fastavro.reader(stream)
    ours = ("protocol", "skips", "transactions", "unknownActions", "timestamp", "recentCommits")
    foreign = {key: value for key, value in state.items() if key not in ours} | changes
    for manifest in foreign["manifests"]:
        for key in ("hasTypedBounds", "tombstoneCount", "liveEntryCount"):
            manifest.pop(key, None)
    path.unlink()
    (path.parent / "_manifest.json").write_text(json.dumps(foreign))


def test_a_json_state_manifest_of_another_writer_is_read_and_built_upon(builder):
    tables = builder("day")
    table = tables.create()
    table.commit(adds=[split(n, day=str(n)) for n in range(12)])
    table.checkpoint()
    as_foreign_state(Path(tables.path, "_transaction_log"), 1, metadata=None)
    reopened = tables.open()
    assert paths(reopened) == numbered(range(12))
    assert paths(reopened) == sorted(reopened.files(columns=["path"])["path"].to_pylist())
    assert reopened.files("day = 10")["path"].to_pylist() == ["part-00010.split"]
    reopened.commit(adds=[split(12, day="12")])
    reopened.checkpoint()
    assert state_of(tables.open()).num_files == 13
    assert tables.open().metadata.partition_columns == ("day",)


def test_text_bounds_of_another_writer_never_lose_a_number(builder):
    tables = builder("day")
    table = tables.create()
    table.commit(adds=[split(n, day=str(n)) for n in range(1, 13)])
    table.checkpoint()
    folder = Path(tables.path, "_transaction_log")
    as_foreign_state(folder, 1)
    path = folder / "state-v00000000000000000001/_manifest.json"
    state = json.loads(path.read_text())
    state["manifests"][0]["partitionBounds"] = {"day": {"min": "1", "max": "9"}}  # how texts compare
    path.write_text(json.dumps(state))
    assert paths(tables.open())
    assert tables.open().files("day = 12")["path"].to_pylist() == ["part-00012.split"]
    assert tables.open().files("day BETWEEN 2 AND 11").num_rows == 10
