"""The one parser of every name under `_transaction_log/`.

Everything else receives a typed path; no other module parses log file names.
"""

import re

import msgspec

LOG_PREFIX = "_transaction_log/"
LAST_CHECKPOINT_KEY = f"{LOG_PREFIX}_last_checkpoint"
PARQUET_CHECKPOINT_PREFIX = f"{LOG_PREFIX}_checkpoints/"
SHARED_MANIFEST_PATH = "manifests/"
SHARED_MANIFEST_PREFIX = f"{LOG_PREFIX}{SHARED_MANIFEST_PATH}"
STATE_PREFIX = f"{LOG_PREFIX}state-v"

VERSION_DIGITS = 20
MAX_VERSION = 2**63 - 1


class VersionFile(msgspec.Struct, frozen=True):
    """`<version>.json`: the commit of one transaction."""

    version: int


class JsonCheckpoint(msgspec.Struct, frozen=True):
    """`<version>.checkpoint.json`: a whole checkpoint, or the part list of a multi-part one."""

    version: int


class JsonCheckpointPart(msgspec.Struct, frozen=True):
    """`<version>.checkpoint.<checkpointId>.<part>.json`: valid only if the part list names it."""

    version: int
    checkpoint_id: str
    part: int


class ParquetCheckpoint(msgspec.Struct, frozen=True):
    """`_checkpoints/<version>.checkpoint.parquet`: the rows of a Parquet checkpoint that is one file."""

    version: int


class ParquetCheckpointPart(msgspec.Struct, frozen=True):
    """`_checkpoints/<version>.checkpoint.<checkpointId>.<part>.parquet`: valid only if the JSON file has this id."""

    version: int
    checkpoint_id: str
    part: int


class ParquetCheckpointInfo(msgspec.Struct, frozen=True):
    """`_checkpoints/<version>.checkpoint.json`: written last, it makes a Parquet checkpoint valid."""

    version: int


class StateManifestFile(msgspec.Struct, frozen=True):
    """`state-v<version>/_manifest.avro` or `.json`: the state manifest, which makes a state valid."""

    version: int
    is_avro: bool


class ManifestFile(msgspec.Struct, frozen=True):
    """A manifest: a file of entries, `manifests/manifest-<id>.avro`, or in a state directory (older writers)."""

    name: str


class LastCheckpointFile(msgspec.Struct, frozen=True):
    """`_last_checkpoint`: a hint."""


LogPath = (
    VersionFile
    | JsonCheckpoint
    | JsonCheckpointPart
    | ParquetCheckpoint
    | ParquetCheckpointPart
    | ParquetCheckpointInfo
    | StateManifestFile
    | ManifestFile
    | LastCheckpointFile
)

_VERSION = rf"(?P<version>[0-9]{{{VERSION_DIGITS}}})"
_VERSION_FILE = re.compile(rf"{_VERSION}\.json")
_JSON_CHECKPOINT = re.compile(rf"{_VERSION}\.checkpoint\.json")
_PART = r"(?P<id>[0-9A-Za-z-]+)\.(?P<part>[0-9]{5})"
_JSON_CHECKPOINT_PART = re.compile(rf"{_VERSION}\.checkpoint\.{_PART}\.json")
_PARQUET_CHECKPOINT = re.compile(rf"_checkpoints/{_VERSION}\.checkpoint\.parquet")
_PARQUET_CHECKPOINT_PART = re.compile(rf"_checkpoints/{_VERSION}\.checkpoint\.{_PART}\.parquet")
_PARQUET_CHECKPOINT_INFO = re.compile(rf"_checkpoints/{_VERSION}\.checkpoint\.json")
_STATE_MANIFEST = re.compile(rf"state-v{_VERSION}/_manifest\.(?P<format>avro|json)")
_MANIFEST = re.compile(rf"(?:manifests|state-v[0-9]{{{VERSION_DIGITS}}})/(?P<name>manifest-[^/]+\.avro)")


def parse_log_path(key: str) -> LogPath | None:
    """The typed form of a key, or None for a file that is not part of the log (such as `.crc` and temporary files)."""
    path = _parse_name(key.removeprefix(LOG_PREFIX)) if key.startswith(LOG_PREFIX) else None
    # Twenty digits also fit numbers beyond 64 bits.
    is_too_large = getattr(path, "version", 0) > MAX_VERSION
    return None if is_too_large else path


def format_version(version: int) -> str:
    """A version as it appears in names: zero-padded, so that names sort numerically."""
    return f"{version:0{VERSION_DIGITS}d}"


def version_key(version: int) -> str:
    return f"{LOG_PREFIX}{format_version(version)}.json"


def json_checkpoint_key(version: int) -> str:
    """The key of a JSON checkpoint, or of the part list of a multi-part one."""
    return f"{LOG_PREFIX}{format_version(version)}.checkpoint.json"


def json_checkpoint_part_name(version: int, checkpoint_id: str, part: int) -> str:
    """The file name (not the key) of one part, as the part list of a multi-part checkpoint has it."""
    return f"{format_version(version)}.checkpoint.{checkpoint_id}.{part:05d}.json"


def parquet_checkpoint_key(version: int) -> str:
    return f"{PARQUET_CHECKPOINT_PREFIX}{format_version(version)}.checkpoint.parquet"


def parquet_checkpoint_part_key(version: int, checkpoint_id: str, part: int) -> str:
    """The key of one part of a Parquet checkpoint; parts are numbered from 1."""
    return (
        f"{PARQUET_CHECKPOINT_PREFIX}{format_version(version)}.checkpoint.{checkpoint_id}.{part:05d}.parquet"
    )


def parquet_checkpoint_info_key(version: int) -> str:
    """The key of the JSON file that makes a Parquet checkpoint valid."""
    return f"{PARQUET_CHECKPOINT_PREFIX}{format_version(version)}.checkpoint.json"


def state_dir(version: int) -> str:
    """The name of a state directory, as `_last_checkpoint` refers to it."""
    return f"state-v{format_version(version)}"


def state_manifest_key(version: int) -> str:
    """The key of a state manifest in the format that this package writes."""
    return f"{LOG_PREFIX}{state_dir(version)}/_manifest.avro"


def _parse_name(name: str) -> LogPath | None:
    if name == "_last_checkpoint":
        return LastCheckpointFile()
    if match := _VERSION_FILE.fullmatch(name):
        return VersionFile(int(match["version"]))
    if match := _JSON_CHECKPOINT.fullmatch(name):
        return JsonCheckpoint(int(match["version"]))
    if match := _JSON_CHECKPOINT_PART.fullmatch(name):
        return JsonCheckpointPart(int(match["version"]), match["id"], int(match["part"]))
    if match := _PARQUET_CHECKPOINT.fullmatch(name):
        return ParquetCheckpoint(int(match["version"]))
    if match := _PARQUET_CHECKPOINT_PART.fullmatch(name):
        return ParquetCheckpointPart(int(match["version"]), match["id"], int(match["part"]))
    if match := _PARQUET_CHECKPOINT_INFO.fullmatch(name):
        return ParquetCheckpointInfo(int(match["version"]))
    if match := _STATE_MANIFEST.fullmatch(name):
        return StateManifestFile(int(match["version"]), is_avro=match["format"] == "avro")
    if match := _MANIFEST.fullmatch(name):
        return ManifestFile(match["name"])
    return None
