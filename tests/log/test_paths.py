import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    MAX_VERSION,
    PARQUET_CHECKPOINT_PREFIX,
    SHARED_MANIFEST_PREFIX,
    STATE_PREFIX,
    JsonCheckpoint,
    JsonCheckpointPart,
    LastCheckpointFile,
    LogPath,
    ManifestFile,
    ParquetCheckpoint,
    ParquetCheckpointInfo,
    ParquetCheckpointPart,
    StateManifestFile,
    VersionFile,
    format_version,
    json_checkpoint_key,
    json_checkpoint_part_name,
    parquet_checkpoint_info_key,
    parquet_checkpoint_key,
    parquet_checkpoint_part_key,
    parse_log_path,
    state_dir,
    state_manifest_key,
    version_key,
)

V42 = "00000000000000000042"

versions = st.integers(0, MAX_VERSION)
checkpoint_ids = st.text("0123456789abcdefABCDEF-", min_size=1, max_size=36)


def key_of(path: LogPath) -> str:
    match path:
        case VersionFile(version):
            return version_key(version)
        case JsonCheckpoint(version):
            return json_checkpoint_key(version)
        case JsonCheckpointPart(version, checkpoint_id, part):
            return LOG_PREFIX + json_checkpoint_part_name(version, checkpoint_id, part)
        case ParquetCheckpoint(version):
            return parquet_checkpoint_key(version)
        case ParquetCheckpointPart(version, checkpoint_id, part):
            return parquet_checkpoint_part_key(version, checkpoint_id, part)
        case ParquetCheckpointInfo(version):
            return parquet_checkpoint_info_key(version)
        case StateManifestFile(version, is_avro):
            key = state_manifest_key(version)
            return key if is_avro else key.removesuffix("avro") + "json"
        case ManifestFile(name):
            return SHARED_MANIFEST_PREFIX + name
        case LastCheckpointFile():
            return LAST_CHECKPOINT_KEY


@settings(max_examples=200)
@given(
    st.builds(VersionFile, versions)
    | st.builds(JsonCheckpoint, versions)
    | st.builds(JsonCheckpointPart, versions, checkpoint_ids, st.integers(0, 99_999))
    | st.builds(ParquetCheckpoint, versions)
    | st.builds(ParquetCheckpointPart, versions, checkpoint_ids, st.integers(0, 99_999))
    | st.builds(ParquetCheckpointInfo, versions)
    | st.builds(StateManifestFile, versions, st.booleans())
    | st.builds(ManifestFile, st.uuids().map(lambda uuid: f"manifest-{uuid}.avro"))
    | st.just(LastCheckpointFile())
)
def test_every_path_formats_and_parses_back(path):
    assert parse_log_path(key_of(path)) == path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V42}.json", VersionFile(42)),
        (f"{V42}.checkpoint.json", JsonCheckpoint(42)),
        (f"{V42}.checkpoint.0a1b2c3d4e5f.00001.json", JsonCheckpointPart(42, "0a1b2c3d4e5f", 1)),
        (
            f"{V42}.checkpoint.550e8400-e29b-41d4-a716-446655440000.00012.json",
            JsonCheckpointPart(42, "550e8400-e29b-41d4-a716-446655440000", 12),
        ),
        (f"_checkpoints/{V42}.checkpoint.parquet", ParquetCheckpoint(42)),
        (f"_checkpoints/{V42}.checkpoint.0a1b.00002.parquet", ParquetCheckpointPart(42, "0a1b", 2)),
        (f"_checkpoints/{V42}.checkpoint.json", ParquetCheckpointInfo(42)),
        (f"state-v{V42}/_manifest.avro", StateManifestFile(42, is_avro=True)),
        (f"state-v{V42}/_manifest.json", StateManifestFile(42, is_avro=False)),
        (f"state-v{V42}/manifest-a1b2c3d4.avro", ManifestFile("manifest-a1b2c3d4.avro")),
        ("manifests/manifest-3673dda9.avro", ManifestFile("manifest-3673dda9.avro")),
        ("_last_checkpoint", LastCheckpointFile()),
    ],
)
def test_names_in_the_specification_are_recognized(name, expected):
    assert parse_log_path(LOG_PREFIX + name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".00000000000000000000.json.crc",
        "._last_checkpoint.crc",
        "manifests/.manifest-3673dda9.avro.crc",
        f"state-v{V42}/._manifest.avro.crc",
        f"{V42}.json.tmp",
        f".tmp-{V42}.json",
        f"{V42}.json/",
        f"{V42}.json\n",
        f"0{V42}.json",
        "42.json",
        "0000000000000000000x.json",
        "-0000000000000000042.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.json",
        "99999999999999999999.json",
        f"{MAX_VERSION + 1:020d}.checkpoint.json",
        f"state-v{MAX_VERSION + 1:020d}/_manifest.avro",
        f"{V42}.checkpoint.abc.1.json",
        f"{V42}.checkpoint..00001.json",
        f"{V42}.checkpoint.a/b.00001.json",
        f"{V42}.checkpoint.parquet",
        f"_checkpoints/{V42}.json",
        f"state-v{V42}/_manifest.parquet",
        "state-v42/_manifest.avro",
        "manifests/manifest-a.json",
        "manifests/deeper/manifest-a.avro",
        "_last_checkpoint.bak",
        f"other/{V42}.json",
    ],
)
def test_foreign_names_are_not_part_of_the_log(name):
    assert parse_log_path(LOG_PREFIX + name) is None


@pytest.mark.parametrize("key", [f"{V42}.json", f"splits/{V42}.json", f"x{LOG_PREFIX}{V42}.json"])
def test_keys_outside_the_log_are_not_part_of_it(key):
    assert parse_log_path(key) is None


@settings(max_examples=50)
@given(st.lists(versions, min_size=2, unique=True))
def test_names_sort_like_their_versions(some_versions):
    in_order = sorted(some_versions)
    for key in (version_key, json_checkpoint_key, state_manifest_key, parquet_checkpoint_key):
        assert sorted(map(key, some_versions)) == [key(version) for version in in_order]


def test_a_version_has_twenty_digits():
    assert format_version(42) == V42
    assert len(format_version(MAX_VERSION)) == len(V42)
    assert state_dir(42) == f"state-v{V42}"


def test_prefixes_sort_as_a_scan_of_the_log_expects():
    newest_version = version_key(MAX_VERSION)
    assert newest_version < PARQUET_CHECKPOINT_PREFIX < SHARED_MANIFEST_PREFIX < STATE_PREFIX
