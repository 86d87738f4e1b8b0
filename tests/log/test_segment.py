import pickle
import random

import pytest

from indextables.errors import VersionNotFoundError
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    SHARED_MANIFEST_PREFIX,
    json_checkpoint_key,
    json_checkpoint_part_name,
    parquet_checkpoint_info_key,
    parquet_checkpoint_key,
    state_dir,
    state_manifest_key,
    version_key,
)
from indextables.log.segment import (
    Base,
    BaseFormat,
    Gap,
    LogListing,
    VersionEntry,
    build_listing,
    build_segment,
    contiguous_versions,
    list_log,
)
from indextables.storage import ObjectMeta, ObjectStore
from support.faults import FaultStore


def meta(key: str) -> ObjectMeta:
    return ObjectMeta(key, 1, 2)


def listing_of(*keys: str, from_version: int = 0) -> LogListing:
    return build_listing(map(meta, keys), from_version=from_version)


def version_keys(*versions: int) -> list[str]:
    return [version_key(version) for version in versions]


def state_json_key(version: int) -> str:
    return f"{LOG_PREFIX}{state_dir(version)}/_manifest.json"


def base(version: int, kind: BaseFormat, key: str) -> Base:
    return Base(version, kind, meta(key))


def put_all(store: ObjectStore, *keys: str) -> None:
    for key in keys:
        store.put(key, b"x")


# --- listings ------------------------------------------------------------------------------------------


def test_a_listing_sorts_files_into_versions_and_bases():
    listing = listing_of(
        *version_keys(1, 0),
        json_checkpoint_key(1),
        LOG_PREFIX + json_checkpoint_part_name(1, "abc", 1),
        parquet_checkpoint_key(0),
        parquet_checkpoint_info_key(0),
        state_manifest_key(1),
        SHARED_MANIFEST_PREFIX + "manifest-a.avro",
        LAST_CHECKPOINT_KEY,
        f"{LOG_PREFIX}.{version_key(7).removeprefix(LOG_PREFIX)}.crc",
        "splits/a.split",
    )
    assert dict(listing.versions) == {0: meta(version_key(0)), 1: meta(version_key(1))}
    assert listing.bases_newest_first() == [
        base(1, BaseFormat.AVRO_STATE, state_manifest_key(1)),
        base(1, BaseFormat.JSON, json_checkpoint_key(1)),
        base(0, BaseFormat.PARQUET, parquet_checkpoint_info_key(0)),
    ]
    assert listing.newest_version == 1
    assert not listing.is_empty


def test_parquet_rows_without_their_info_file_are_not_a_base():
    assert listing_of(parquet_checkpoint_key(3)).is_empty


def test_an_empty_listing_has_no_version():
    listing = listing_of()
    assert listing.is_empty
    assert listing.newest_version == -1
    assert listing.bases_newest_first() == []


def test_the_avro_state_manifest_is_preferred_to_the_json_one():
    keys = [state_json_key(4), state_manifest_key(4)]
    expected = [base(4, BaseFormat.AVRO_STATE, key) for key in reversed(keys)]
    assert listing_of(*keys).bases_newest_first() == expected
    assert listing_of(*reversed(keys)).bases_newest_first() == expected


def test_bases_are_ordered_by_version_and_preference():
    keys = [
        parquet_checkpoint_info_key(5),
        json_checkpoint_key(5),
        state_json_key(5),
        state_manifest_key(5),
        parquet_checkpoint_info_key(9),
        state_manifest_key(2),
    ]
    expected = [keys[4], keys[3], keys[2], keys[1], keys[0], keys[5]]
    for seed in range(10):
        shuffled = random.Random(seed).sample(keys, len(keys))
        assert [found.meta.key for found in listing_of(*shuffled).bases_newest_first()] == expected


def test_repeated_names_count_once():
    keys = [*version_keys(0, 1), state_manifest_key(1)]
    assert listing_of(*keys, *keys) == listing_of(*keys)


def test_a_listing_from_a_version_leaves_out_older_files():
    keys = [
        *version_keys(4, 5, 6),
        state_manifest_key(4),
        json_checkpoint_key(5),
        parquet_checkpoint_info_key(3),
    ]
    listing = listing_of(*keys, from_version=5)
    assert list(listing.versions) == [5, 6]
    assert list(listing.bases) == [5]


def test_listings_pickle():
    listing = listing_of(*version_keys(0, 1), state_manifest_key(1))
    assert pickle.loads(pickle.dumps(listing)) == listing


# --- listing a store ----------------------------------------------------------------------------------


def whole_log() -> list[str]:
    return [
        *version_keys(*range(12)),
        json_checkpoint_key(3),
        parquet_checkpoint_key(5),
        parquet_checkpoint_info_key(5),
        LAST_CHECKPOINT_KEY,
        *(f"{SHARED_MANIFEST_PREFIX}manifest-{number:04d}.avro" for number in range(30)),
        *(state_manifest_key(version) for version in (7, 9, 10)),
        state_json_key(9),
    ]


def test_one_listing_is_enough_for_most_tables(store):
    put_all(store, *whole_log())
    watched = FaultStore(store)
    listing = list_log(watched)
    assert list(listing.versions) == list(range(12))
    assert [found.version for found in listing.bases_newest_first()] == [10, 9, 9, 7, 5, 3]
    assert watched.count("list") == len(watched.calls) == 1


def test_a_listing_from_a_version_finds_later_versions_and_bases(store):
    put_all(store, *whole_log())
    for from_version in range(14):
        listing = list_log(store, from_version=from_version)
        assert list(listing.versions) == list(range(from_version, 12))
        assert [found.version for found in listing.bases_newest_first()] == [
            version for version in (10, 9, 9, 7, 5, 3) if version >= from_version
        ]


def test_thousands_of_manifests_are_skipped(store):
    put_all(store, *version_keys(0, 1), state_manifest_key(1))
    put_all(store, *(f"{SHARED_MANIFEST_PREFIX}manifest-{number:05d}.avro" for number in range(2_500)))
    watched = FaultStore(store)
    listing = list_log(watched)
    assert list(listing.versions) == [0, 1]
    assert [found.version for found in listing.bases_newest_first()] == [1]
    assert watched.count("list") == len(watched.calls) == 1


def test_thousands_of_older_states_are_skipped(store):
    put_all(store, *(state_manifest_key(version) for version in range(1_500)))
    watched = FaultStore(store)
    listing = list_log(watched, from_version=1_490)
    assert list(listing.bases) == list(range(1_490, 1_500))
    assert watched.count("list") == len(watched.calls) == 1


@pytest.mark.parametrize("seed", range(15))
def test_repeated_and_reordered_names_give_the_same_listing(store, seed):
    put_all(store, *whole_log())
    scrambled = FaultStore(store, seed=seed, scramble_rate=0.5)
    for from_version in (0, 6):
        assert list_log(scrambled, from_version=from_version) == list_log(store, from_version=from_version)


def test_a_store_without_a_log_gives_an_empty_listing(store):
    put_all(store, "splits/a.split")
    assert list_log(store).is_empty


# --- segments -----------------------------------------------------------------------------------------


def test_without_a_base_a_segment_starts_at_version_zero():
    listing = listing_of(*version_keys(0, 1, 2))
    segment = build_segment(listing, None)
    assert segment.version == 2
    assert segment.base is None
    assert segment.version_files == tuple(
        VersionEntry(version, meta(version_key(version))) for version in (0, 1, 2)
    )
    assert segment.gap is None


def test_with_a_base_a_segment_holds_the_versions_after_it():
    listing = listing_of(*version_keys(0, 1, 2, 3), state_manifest_key(1))
    (state,) = listing.bases_newest_first()
    segment = build_segment(listing, state)
    assert (segment.version, segment.base) == (3, state)
    assert [file.version for file in segment.version_files] == [2, 3]


def test_a_base_at_the_newest_version_has_no_version_files():
    listing = listing_of(*version_keys(0, 1), state_manifest_key(1))
    segment = build_segment(listing, listing.bases_newest_first()[0])
    assert (segment.version, segment.version_files, segment.gap) == (1, (), None)


def test_a_table_of_states_with_only_version_zero_reads_as_its_newest_state():
    listing = listing_of(version_key(0), *(state_manifest_key(version) for version in range(1, 16)))
    newest = listing.bases_newest_first()[0]
    segment = build_segment(listing, newest)
    assert (newest.version, segment.version, segment.version_files, segment.gap) == (15, 15, (), None)
    assert listing.newest_version == 15


def test_a_gap_ends_the_segment_and_is_reported():
    listing = listing_of(*version_keys(0, 1, 3, 4))
    segment = build_segment(listing, None)
    assert segment.version == 1
    assert segment.gap == Gap(first_missing=2, newest=4)


def test_versions_before_the_base_may_be_missing():
    listing = listing_of(*version_keys(3, 6, 7), state_manifest_key(5))
    segment = build_segment(listing, listing.bases_newest_first()[0])
    assert (segment.version, segment.gap) == (7, None)


def test_a_gap_right_after_the_base_is_reported():
    listing = listing_of(*version_keys(7), state_manifest_key(5))
    segment = build_segment(listing, listing.bases_newest_first()[0])
    assert (segment.version, segment.version_files, segment.gap) == (5, (), Gap(first_missing=6, newest=7))


def test_a_version_in_the_past_ends_the_segment_there():
    listing = listing_of(*version_keys(0, 1, 2, 3))
    segment = build_segment(listing, None, version=1)
    assert (segment.version, [file.version for file in segment.version_files], segment.gap) == (
        1,
        [0, 1],
        None,
    )


def test_a_version_before_a_gap_can_still_be_read():
    listing = listing_of(*version_keys(0, 1, 3))
    assert build_segment(listing, None, version=1).gap is None


def test_a_version_after_a_gap_is_refused_with_the_missing_file():
    listing = listing_of(*version_keys(0, 1, 3, 4))
    with pytest.raises(VersionNotFoundError) as caught:
        build_segment(listing, None, version=4)
    assert "version 4 cannot be read" in str(caught.value)
    assert "from the start of the log" in str(caught.value)
    assert version_key(2) in str(caught.value)


def test_a_future_version_is_refused_with_the_newest_one():
    listing = listing_of(*version_keys(6, 7), state_manifest_key(5))
    with pytest.raises(VersionNotFoundError) as caught:
        build_segment(listing, listing.bases_newest_first()[0], version=9)
    assert "there is no version 9; the newest is 7" in str(caught.value)


def test_contiguous_versions_stop_at_the_first_gap():
    listing = listing_of(*version_keys(2, 3, 5))
    assert [file.version for file in contiguous_versions(listing, 2)] == [2, 3]
    assert [file.version for file in contiguous_versions(listing, 2, last=2)] == [2]
    assert contiguous_versions(listing, 4) == ()
