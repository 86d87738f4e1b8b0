import gzip

import pytest

from indextables.errors import (
    AccessDeniedError,
    CommitOutcomeUnknownError,
    LogCorruptedError,
    ObjectNotFoundError,
    TransientStorageError,
)
from indextables.log.paths import version_key
from indextables.log.segment import VersionEntry
from indextables.log.version_file import (
    Conflict,
    Written,
    compress,
    find_version_file,
    read_version_file,
    read_version_files,
    write_version_file,
)
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome
from support.faults import FaultStore, Moment
from support.log_samples import PROTOCOL, add, json_lines

OURS, THEIRS = b"our commit", b"their commit"


class RepeatingClient(FaultStore):
    """A store whose client lost the response to a write, retried, and found an existing object."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        super().put_if_absent(key, data)
        return super().put_if_absent(key, data)


class ForgetfulStore(FaultStore):
    """A store that reports an object as existing, but does not have it."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return PutOutcome.EXISTS


class UnreadableStore(FaultStore):
    """A store that allows writes but not reads."""

    def get(self, key: str) -> bytes:
        raise AccessDeniedError(f"{key}: no")


def meta_of(store: ObjectStore, version: int) -> ObjectMeta:
    return store.head(version_key(version))


def entry_of(store, version):
    return VersionEntry(version, meta_of(store, version))


# --- writing ------------------------------------------------------------------------------------------


def test_a_free_version_is_written(store):
    assert write_version_file(store, 7, OURS) == Written(7)
    assert store.get(version_key(7)) == OURS


def test_an_existing_version_is_a_conflict_and_stays_unchanged(store):
    store.put(version_key(7), THEIRS)
    assert write_version_file(store, 7, OURS) == Conflict(7)
    assert store.get(version_key(7)) == THEIRS


def test_a_commit_with_a_lost_response_is_recognized_as_ours(store):
    faulty = FaultStore(store, fail_call=(0, Moment.AFTER))
    assert write_version_file(faulty, 7, OURS) == Written(7)
    assert store.get(version_key(7)) == OURS


def test_a_commit_that_the_client_retried_is_recognized_as_ours(store):
    assert write_version_file(RepeatingClient(store), 7, OURS) == Written(7)


def test_a_failed_commit_of_a_taken_version_is_a_conflict(store):
    store.put(version_key(7), THEIRS)
    for moment in Moment:
        assert write_version_file(FaultStore(store, fail_call=(0, moment)), 7, OURS) == Conflict(7)


def test_a_failed_commit_that_is_missing_may_still_arrive(store):
    faulty = FaultStore(store, fail_call=(0, Moment.BEFORE))
    with pytest.raises(CommitOutcomeUnknownError, match=r"version 7.*may or may not have landed"):
        write_version_file(faulty, 7, OURS)


def test_an_unavailable_store_leaves_the_outcome_unknown(store):
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        write_version_file(FaultStore(store, outage_from=0), 7, OURS)
    assert store.url in str(caught.value)


def test_a_conflict_that_cannot_be_read_back_leaves_the_outcome_unknown(store):
    store.put(version_key(7), THEIRS)
    for faulty in (FaultStore(store, fail_call=(1, Moment.BEFORE)), UnreadableStore(store)):
        with pytest.raises(CommitOutcomeUnknownError):
            write_version_file(faulty, 7, OURS)
    with pytest.raises(CommitOutcomeUnknownError):
        write_version_file(ForgetfulStore(store), 8, OURS)
    assert store.get(version_key(7)) == THEIRS


# --- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encode", [compress, gzip.compress, bytes], ids=["prefixed", "bare", "plain"])
def test_a_version_file_is_read_in_any_encoding(store, encode):
    lines = json_lines(PROTOCOL, add("a"))
    store.put(version_key(3), encode(lines))
    entry = entry_of(store, 3)
    file = read_version_file(store, entry)
    assert (file.version, file.lines, file.modified_ms) == (3, lines, entry.meta.last_modified_ms)
    assert file.name == f"{store.url}/{version_key(3)}"


@pytest.mark.parametrize(
    "data",
    [b"", b" \r\n\n", compress(b""), compress(b"\n"), gzip.compress(b"")],
    ids=["no bytes", "blank lines", "prefixed and empty", "prefixed and blank", "bare and empty"],
)
def test_an_empty_version_file_is_refused_with_a_remedy(store, data):
    store.put(version_key(3), data)
    with pytest.raises(LogCorruptedError, match=f"{version_key(3)}: the version file is empty.*REPAIR"):
        read_version_file(store, entry_of(store, 3))


def test_a_version_file_that_is_cut_off_is_refused(store):
    store.put(version_key(3), compress(json_lines(PROTOCOL, add("a"))))
    for seed in range(5):
        with pytest.raises(LogCorruptedError, match=version_key(3)):
            read_version_file(FaultStore(store, seed=seed, short_reads=[version_key(3)]), entry_of(store, 3))


def test_a_deleted_version_file_is_not_found(store):
    with pytest.raises(ObjectNotFoundError):
        read_version_file(store, VersionEntry(3, ObjectMeta(version_key(3), 1, 1)))


@pytest.mark.parametrize("parallelism", [1, 4])
def test_several_version_files_are_returned_in_the_order_given(store, parallelism):
    for version in range(20):
        store.put(version_key(version), json_lines(add(f"part-{version}")))
    wanted = [entry_of(store, version) for version in (*range(10, 20), *range(10))]
    files = read_version_files(store, wanted, parallelism=parallelism)
    assert [file.version for file in files] == [entry.version for entry in wanted]
    assert all(f"part-{file.version}".encode() in file.lines for file in files)
    assert read_version_files(store, [], parallelism=parallelism) == []


@pytest.mark.parametrize("parallelism", [1, 4])
def test_one_version_file_that_cannot_be_read_fails_them_all(store, parallelism):
    for version in range(6):
        store.put(version_key(version), json_lines(add("a")) if version != 4 else b"")
    wanted = [entry_of(store, version) for version in range(6)]
    with pytest.raises(LogCorruptedError, match=version_key(4)):
        read_version_files(store, wanted, parallelism=parallelism)
    with pytest.raises(TransientStorageError):
        read_version_files(FaultStore(store, fail_call=(2, Moment.BEFORE)), wanted, parallelism=parallelism)


def test_a_version_file_is_found_or_not(store):
    assert find_version_file(store, 2) is None
    store.put(version_key(2), b"{}")
    assert find_version_file(store, 2) == meta_of(store, 2)
    with pytest.raises(TransientStorageError):
        find_version_file(FaultStore(store, outage_from=0), 2)
