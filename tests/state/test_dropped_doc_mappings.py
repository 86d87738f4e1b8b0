"""A state registers the doc mappings that its entries refer to; a rewritten one registers no others."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from indextables import AddAction
from indextables.log.paths import state_manifest_key
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.state.state_manifest import decode_state_manifest
from indextables.storage import ObjectStore
from indextables.table import Snapshot, load_snapshot
from indextables.table.intent import Append
from support.state_tables import TableBuilder, numbered, split, state_of
from support.tables import add, after, context, do, memory_store, new_table, remove

MAPPINGS = [f'[{{"name":"c{number}","type":"i64"}}]' for number in range(8)]


def inline(number: int, mapping: int) -> AddAction:
    return replace(split(number, day="1"), doc_mapping_json=MAPPINGS[mapping])


def mappings(tables: TableBuilder) -> set[str]:
    return set(state_of(tables.open()).doc_mappings.values())


@pytest.fixture
def tables(builder) -> TableBuilder:
    """Version 1 adds splits with two mappings; version 2 removes the only split of the second; each has a state."""
    tables = builder("day", state__compaction__tombstoneThreshold="0.99")
    tables.create().commit(adds=[inline(1, 0), inline(2, 1), inline(3, 0)])
    tables.open().checkpoint()
    tables.open().commit(removes=numbered([2]))
    tables.open().checkpoint()
    return tables


def test_a_state_that_shares_manifests_keeps_what_they_may_refer_to(tables):
    assert mappings(tables) == {MAPPINGS[0], MAPPINGS[1]}


def test_a_compaction_drops_mappings_that_nothing_refers_to(tables):
    tables.open().compact()
    assert mappings(tables) == {MAPPINGS[0]}
    tables.open().commit(adds=[inline(4, 2)])
    tables.open().checkpoint()
    assert mappings(tables) == {MAPPINGS[0], MAPPINGS[2]}


def test_older_states_keep_their_mappings(tables):
    tables.open().compact()
    older = tables.at(1)._snapshot
    references = set(older.entries["docMappingRef"].to_pylist())
    assert {older.header.doc_mappings[reference] for reference in references} == set(MAPPINGS[:2])


def test_a_restored_split_gets_its_mapping_back(tables):
    for path in numbered([1, 2, 3]):
        Path(tables.path, path).write_bytes(b"split")
    tables.open().compact()
    tables.open().restore(version=1)
    for maintain in ("checkpoint", "compact"):
        getattr(tables.open(), maintain)()
        newest = tables.open()._snapshot
        references = newest.entries["docMappingRef"].to_pylist()
        assert {newest.header.doc_mappings[reference] for reference in references} == set(MAPPINGS[:2])


def referring(*references: str) -> Append:
    """Splits that refer to spellings of the same mapping by hashes that another writer computed otherwise."""
    adds = tuple(replace(add(f"of-{name}"), doc_mapping_ref=name) for name in references)
    return Append(adds, {name: " " * index + MAPPINGS[0] for index, name in enumerate(references)})


def registry_of(store: ObjectStore, version: int) -> dict[str, str]:
    key = state_manifest_key(version)
    return dict(decode_state_manifest(store.get(key), key).doc_mappings)


def test_a_renormalization_leaves_only_the_canonical_hashes():
    store = memory_store()
    table = after(new_table(store), referring(*"abcdef"))
    write_checkpoint(table)
    (canonical,) = registry_of(store, 1)
    entries = load_snapshot(context(store)).entries
    assert set(entries["docMappingRef"].to_pylist()) == {canonical}
    # The metadata keeps the others: a writer that planned on it does not register them again.
    assert set("abcdef") <= set(load_snapshot(context(store)).header.doc_mappings)
    later = do(load_snapshot(context(store)), Append((replace(add("g"), doc_mapping_ref="b"),))).snapshot
    write_checkpoint(later)
    assert set(registry_of(store, 2)) == {canonical}


def test_after_a_renormalization_the_next_state_is_incremental_again():
    store = memory_store()
    settings_ = {"state.schema.renormalizeThreshold": "0"}
    write_checkpoint(after(new_table(store, settings_), referring("a", "b")))
    for version in (2, 3):
        table = load_snapshot(context(store, settings_))
        write_checkpoint(do(table, Append((replace(add(f"g{version}"), doc_mapping_ref="a"),))).snapshot)
        key = state_manifest_key(version)
        state = decode_state_manifest(store.get(key), key)
        assert [info.num_entries for info in state.manifests] == [2] + [1] * (version - 1)
        assert len(state.doc_mappings) == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "readd", "remove"]), st.integers(0, 5), st.integers(0, 7))
    | st.sampled_from([("checkpoint", 0, 0), ("compact", 0, 0)]),
    max_size=12,
)


@given(steps=STEPS, threshold=st.sampled_from(["0", "2", "5"]))
@settings(max_examples=40)
def test_a_mapping_that_is_referred_to_is_never_dropped(steps, threshold):
    store = memory_store()
    rules = {"state.schema.renormalizeThreshold": threshold, "state.compaction.tombstoneThreshold": "0.9"}
    new_table(store, rules)
    for step, path, mapping in (*steps, ("checkpoint", 0, 0), ("compact", 0, 0)):
        table: Snapshot = load_snapshot(context(store, rules))
        match step:
            case "add":
                do(table, Append((replace(add(str(path)), doc_mapping_json=MAPPINGS[mapping]),)))
            case "readd":
                entry = replace(add(str(path)), doc_mapping_ref=f"other-{mapping}")
                do(table, Append((entry,), {f"other-{mapping}": MAPPINGS[mapping]}))
            case "remove":
                do(table, remove(str(path)))
            case "checkpoint":
                write_checkpoint(table)
            case _:
                compact(table)
        found = load_snapshot(context(store, rules))
        references = set(found.entries["docMappingRef"].drop_null().to_pylist())
        assert references <= set(found.header.doc_mappings)
        if step in ("checkpoint", "compact"):
            assert references <= set(registry_of(store, found.version))
