"""The errors: the tree in the module's docstring, and the causes that the log and its checkpoints have."""

import inspect
import re

import pytest

from indextables import IndexTable, errors
from indextables.errors import (
    CheckpointCorruptionError,
    CheckpointValidationError,
    CheckpointWriteError,
    CommitRetriesExhaustedError,
    ConcurrentMaintenanceError,
    IndexTablesError,
    LogCorruptedError,
    ReadOnlyTableError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from indextables.log.decode import UnknownContent
from indextables.log.paths import json_checkpoint_key, state_manifest_key, version_key
from indextables.log.segment import Base, list_log
from indextables.ops.checkpoint.operation import write_checkpoint
from indextables.storage import ObjectStore, PutOutcome
from indextables.table import changes_since, load_snapshot
from indextables.table.log_reader import read_base_uncached
from support.faults import FaultStore, Moment
from support.tables import (
    SCHEMA,
    UnreliableStore,
    after,
    append,
    checkpoint,
    context,
    do,
    live,
    log_keys,
    memory_store,
    new_table,
)


def classes() -> dict[str, type[IndexTablesError]]:
    return {name: found for name, found in vars(errors).items() if inspect.isclass(found)}


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """Each class in the docstring's drawing, with its parent and the built-in error that it also is."""
    found: dict[str, tuple[str | None, str | None]] = {}
    ancestors: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.fullmatch(r"    ((?:│   |    )*(?:[├└]── )?)(\w+Error)(?: \((\w+)\))?", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        ancestors = [*ancestors[:depth], match[2]]
        found[match[2]] = (ancestors[-2] if depth else None, match[3])
    return found


def test_docstring_draws_every_class_under_its_parent():
    expected = {
        name: (
            None if found is IndexTablesError else found.__bases__[0].__name__,
            found.__bases__[1].__name__ if len(found.__bases__) > 1 else None,
        )
        for name, found in classes().items()
    }
    assert drawn_tree() == expected


def test_every_class_says_what_causes_it():
    assert all(inspect.getdoc(found) for found in classes().values())


# --- versions, and what removes them under a reader ---------------------------------------------------


class Vanishing(FaultStore):
    """A store on which a key is deleted between every listing and the next read, while it is active."""

    def __init__(self, inner: ObjectStore, key: str, *, is_active: bool = True) -> None:
        super().__init__(inner)
        self._key = key
        self.is_active = is_active

    def get(self, key: str) -> bytes:
        if self.is_active and key == self._key:
            self._inner.delete_many([key])
        return super().get(key)

    def list(self, prefix, **selection):
        if self.is_active:
            self._inner.put(self._key, b"back again")
        return super().list(prefix, **selection)


def test_version_file_removed_while_the_table_is_opened_is_concurrent_maintenance():
    store = memory_store()
    after(new_table(store), append("a"))
    with pytest.raises(ConcurrentMaintenanceError, match=f"{version_key(1)}.*open the table again"):
        load_snapshot(context(Vanishing(store, version_key(1))))


def test_version_file_removed_while_changes_are_read_is_concurrent_maintenance():
    store = memory_store()
    after(new_table(store), append("a"))
    vanishing = Vanishing(store, version_key(1), is_active=False)
    snapshot = load_snapshot(context(vanishing))
    vanishing.is_active = True
    with pytest.raises(
        ConcurrentMaintenanceError, match=r"while the changes were read.*open the table again"
    ):
        changes_since(snapshot, 0)


def test_version_that_the_log_never_had_is_not_found():
    store = memory_store()
    new_table(store)
    with pytest.raises(VersionNotFoundError, match="there is no version 7"):
        load_snapshot(context(store), 7)


def test_open_snapshot_whose_state_was_removed_is_concurrent_maintenance():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store)
    reader = load_snapshot(context(store))
    after(load_snapshot(context(store)), append("b"))
    checkpoint(store)
    manifests = [key for key in log_keys(store) if "/manifests/" in key]
    store.delete_many([state_manifest_key(1), *manifests, version_key(0), version_key(1)])
    with pytest.raises(ConcurrentMaintenanceError, match=r"removed version 1 .*; open the table again"):
        live(reader)


def test_state_without_its_manifest_is_a_corrupt_checkpoint():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store)
    manifests = [key for key in log_keys(store) if "/manifests/" in key]
    store.delete_many([*manifests, version_key(0), version_key(1)])
    with pytest.raises(CheckpointCorruptionError, match="failed to read checkpoint at version 1: a file"):
        live(load_snapshot(context(store)))


# --- checkpoints --------------------------------------------------------------------------------------


def base_of(store: ObjectStore, version: int) -> Base:
    (base,) = list_log(store).bases[version]
    return base


def test_damaged_checkpoint_is_corrupt():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store, "json")
    store.put(json_checkpoint_key(1), b"not json\n")
    with pytest.raises(CheckpointCorruptionError, match="is not a valid action"):
        read_base_uncached(context(store), base_of(store, 1), UnknownContent.IGNORE)


def test_checkpoint_of_another_version_fails_validation():
    store = memory_store()
    after(new_table(store), append("a"))
    checkpoint(store, "json", 0)
    store.put(json_checkpoint_key(1), store.get(json_checkpoint_key(0)))
    with pytest.raises(CheckpointValidationError, match="holds version 0, not 1"):
        read_base_uncached(context(store), base_of(store, 1), UnknownContent.IGNORE)


def test_handlers_of_a_corrupt_log_see_corrupt_checkpoints():
    assert issubclass(CheckpointValidationError, LogCorruptedError)
    assert issubclass(errors.ManifestCorruptedError, CheckpointCorruptionError)
    assert issubclass(CheckpointCorruptionError, LogCorruptedError)


@pytest.mark.parametrize("form", ["avro", "json", "parquet"])
def test_checkpoint_that_the_store_rejects_is_a_write_error_and_the_table_is_unchanged(form):
    store = memory_store()
    after(new_table(store), append("a"))
    before = log_keys(store)
    rejecting = UnreliableStore(
        store, lambda operation, _: Moment.BEFORE if operation.startswith("put") else None
    )
    settings = {"state.format": form}
    with pytest.raises(CheckpointWriteError, match="checkpoint of version 1 could not be written") as raised:
        write_checkpoint(load_snapshot(context(rejecting, settings)))
    assert isinstance(raised.value.__cause__, StorageError)
    assert log_keys(store) == before


# --- a table that can only be read --------------------------------------------------------------------


def test_table_opened_at_a_version_is_read_only(tmp_path):
    IndexTable.create(str(tmp_path), SCHEMA)
    pinned = IndexTable(str(tmp_path), version=0)
    with pytest.raises(ReadOnlyTableError, match=r"opened at version 0 and can only be read; call refresh"):
        pinned.set_properties({"owner": "search"})
    assert pinned.refresh().set_properties({"owner": "search"}) == 1


# --- the texts that the table protocols quote ---------------------------------------------------------


def test_no_table_is_the_text_of_the_protocol():
    with pytest.raises(TableNotFoundError, match="no transaction log found"):
        load_snapshot(context(memory_store()))


def test_log_without_version_0_and_checkpoint_is_the_text_of_the_protocol():
    store = memory_store()
    after(new_table(store), append("a"))
    store.delete_many([version_key(0)])
    with pytest.raises(LogCorruptedError, match="no transaction log found"):
        load_snapshot(context(store))


class Taken(FaultStore):
    """A store on which a concurrent commit always takes the next version first."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        version = load_snapshot(context(self._inner)).version + 1
        if key == version_key(version):
            do(load_snapshot(context(self._inner)), append(f"other-{version}"))
        return super().put_if_absent(key, data)


def test_version_that_is_always_taken_is_the_text_of_the_protocol():
    store = memory_store()
    new_table(store)
    snapshot = load_snapshot(context(Taken(store), {"transaction.retry.maxAttempts": "1"}))
    with pytest.raises(
        CommitRetriesExhaustedError,
        match="failed to write transaction log version 20 - file already exists",
    ):
        do(snapshot, append("a"))
