"""Which files of the log make up a version: the listing, its validation, and the `_last_checkpoint` hint.

`LogListing` is the result of listing `_transaction_log/`; `LogSegment` is one checkpoint (or none) and the version
files after it. Listings may repeat and reorder names, so nothing here relies on their order.

The hint points at the newest checkpoint or state. Readers verify it: a missing, corrupt or stale hint costs time, never
correctness. Writers move it by compare-and-set where the store can, so a late writer never moves it back.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final

import msgspec

from indextables._structs import decodable
from indextables.errors import ObjectNotFoundError, TransientStorageError, VersionNotFoundError
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    MAX_VERSION,
    SHARED_MANIFEST_PREFIX,
    STATE_PREFIX,
    JsonCheckpoint,
    ParquetCheckpointInfo,
    StateManifestFile,
    VersionFile,
    format_version,
    parse_log_path,
    version_key,
)
from indextables.storage import KeyRange, ObjectMeta, ObjectStore, PutOutcome

logger = logging.getLogger(__name__)

# How often a writer tries to advance the hint while others change it. Each of them advances it, too.
_HINT_ATTEMPTS: Final = 64

# No table has this many commits, so a hint with a larger version is corrupt.
_MAX_PLAUSIBLE_VERSION: Final = 10**12

_MULTI_PART_JSON: Final = "json-multipart"


class BaseFormat(Enum):
    """The kinds of checkpoint, in order of preference. The values are those of `_last_checkpoint`."""

    AVRO_STATE = "avro-state"
    JSON = "json"
    PARQUET = "parquet"


class Base(msgspec.Struct, frozen=True):
    """A checkpoint or state from which a replay can start; `meta` is the file that makes it valid."""

    version: int
    format: BaseFormat
    meta: ObjectMeta


class VersionEntry(msgspec.Struct, frozen=True):
    """A version and the metadata of its version file."""

    version: int
    meta: ObjectMeta


class Gap(msgspec.Struct, frozen=True):
    """Missing versions below existing ones. The readable log ends before `first_missing`."""

    first_missing: int
    newest: int


class LogListing(msgspec.Struct, frozen=True):
    """The version files and the bases that exist, by version; the bases of one version in order of preference."""

    versions: Mapping[int, ObjectMeta] = msgspec.field(default_factory=dict)
    bases: Mapping[int, tuple[Base, ...]] = msgspec.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not self.versions and not self.bases

    @property
    def newest_version(self) -> int:
        """The highest version of any file, readable or not; -1 if there are none."""
        return max([*self.versions, *self.bases], default=-1)

    @property
    def version_files(self) -> tuple[VersionEntry, ...]:
        """Every version file, oldest first."""
        return tuple(VersionEntry(version, meta) for version, meta in self.versions.items())

    def version_file(self, version: int) -> VersionEntry:
        return VersionEntry(version, self.versions[version])

    def without(self, keys: Collection[str]) -> "LogListing":
        """The listing without the bases under these keys."""
        kept = {
            v: tuple(base for base in found if base.meta.key not in keys) for v, found in self.bases.items()
        }
        return LogListing(self.versions, {version: found for version, found in kept.items() if found})

    def preferring(self, version: int, kind: BaseFormat) -> "LogListing":
        """The listing, with the bases of one version reordered so that those of this format come first."""
        found = sorted(self.bases.get(version, ()), key=lambda base: base.format is not kind)
        return LogListing(self.versions, {**self.bases, version: tuple(found)} if found else self.bases)

    def bases_newest_first(self) -> list[Base]:
        """Every base, in the order in which a reader tries them."""
        return [base for version in sorted(self.bases, reverse=True) for base in self.bases[version]]


class LogSegment(msgspec.Struct, frozen=True):
    """The files to read for `version`: a base, or none, and all version files after it.

    Invariants: the version files are contiguous; the first one follows the base, or is version 0 if there is no base;
    the last one is `version`, unless the base itself is.
    """

    version: int
    base: Base | None
    version_files: tuple[VersionEntry, ...]
    gap: Gap | None


def list_log(store: ObjectStore, *, from_version: int = 0) -> LogListing:
    """List the version files and bases of the log from `from_version` on.

    In key order, the manifests and the older states come between the two. There may be thousands of them, so the
    listing skips them.
    """
    start_after = version_key(from_version - 1) if from_version else None
    skip = KeyRange(SHARED_MANIFEST_PREFIX, f"{STATE_PREFIX}{format_version(from_version)}")
    return build_listing(
        store.list(LOG_PREFIX, start_after=start_after, skip=skip), from_version=from_version
    )


def build_listing(metas: Iterable[ObjectMeta], *, from_version: int = 0) -> LogListing:
    """Sort listed objects into version files and bases."""
    versions: dict[int, ObjectMeta] = {}
    bases: dict[int, dict[tuple[BaseFormat, str], Base]] = {}
    for meta in metas:
        match parse_log_path(meta.key):
            case VersionFile(version) if version >= from_version:
                versions[version] = meta
            case StateManifestFile(version) if version >= from_version:
                _add_base(bases, version, BaseFormat.AVRO_STATE, meta)
            case JsonCheckpoint(version) if version >= from_version:
                _add_base(bases, version, BaseFormat.JSON, meta)
            case ParquetCheckpointInfo(version) if version >= from_version:
                _add_base(bases, version, BaseFormat.PARQUET, meta)
            case _:
                pass
    order = list(BaseFormat)
    return LogListing(
        versions=dict(sorted(versions.items())),
        bases={
            version: tuple(sorted(found.values(), key=lambda base: (order.index(base.format), base.meta.key)))
            for version, found in sorted(bases.items())
        },
    )


def build_segment(listing: LogListing, base: Base | None, *, version: int | None = None) -> LogSegment:
    """Return the segment from `base` to `version`, or to the last contiguous version file.

    Raises VersionNotFoundError, naming the first missing file, if `version` is given and cannot be reached.
    """
    first = base.version + 1 if base is not None else 0
    files = contiguous_versions(listing, first, last=version)
    reached = first + len(files) - 1
    newest = max([*listing.versions, reached])
    if version is None:
        gap = Gap(first_missing=reached + 1, newest=newest) if newest > reached else None
        return LogSegment(reached, base, files, gap)
    if reached < version:
        if reached == newest:
            raise VersionNotFoundError(f"there is no version {version}; the newest is {newest}")
        origin = f"the checkpoint at {base.version}" if base is not None else "the start of the log"
        raise VersionNotFoundError(
            f"version {version} cannot be read: from {origin}, {version_key(reached + 1)} is missing (the newest "
            f"version file is of version {newest})"
        )
    return LogSegment(reached, base, files, None)


def contiguous_versions(
    listing: LogListing, first: int, *, last: int | None = None
) -> tuple[VersionEntry, ...]:
    """Return the version files from `first` on, up to `last` or to the first gap."""
    found: list[VersionEntry] = []
    version = first
    while version in listing.versions and (last is None or version <= last):
        found.append(listing.version_file(version))
        version += 1
    return tuple(found)


@decodable
class LastCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `_last_checkpoint`; `size` counts actions, `size_in_bytes` the bytes of live files."""

    version: int
    size: int = 0
    size_in_bytes: int = 0
    num_files: int = 0
    created_time: int = 0
    parts: int | None = None
    checkpoint_id: str | None = None
    format: str | None = None
    state_dir: str | None = None
    protocol_version: int | None = None

    @property
    def format_name(self) -> str:
        """The format of the checkpoint. Older writers, which knew only JSON, do not record it."""
        return self.format or ("json" if self.checkpoint_id is None else _MULTI_PART_JSON)

    @property
    def base_format(self) -> BaseFormat | None:
        """The kind of the checkpoint; None if this release does not know it."""
        name = self.format_name.replace(_MULTI_PART_JSON, "json")
        return next((kind for kind in BaseFormat if kind.value == name), None)

    def proves_version_after(self, version: int) -> bool:
        """Whether a newer version must have existed: a writer writes a checkpoint before it advances the hint."""
        return version < self.version <= _MAX_PLAUSIBLE_VERSION


def read_hint(store: ObjectStore) -> LastCheckpoint | None:
    """Return the hint, or None if it is missing or invalid."""
    data = _hint_bytes(store)
    return None if data is None else _parse_hint(store, data)


def advance_hint(store: ObjectStore, hint: LastCheckpoint, *, over: LastCheckpoint | None = None) -> None:
    """Point the hint at a newer checkpoint. It never moves backwards, except from `over`, which points at nothing.

    It is replaced only if it is still the hint that was compared, as far as the store can do that in one step.
    """
    data = msgspec.json.encode(hint)
    for _ in range(_HINT_ATTEMPTS):
        found = _hint_bytes(store)
        current = None if found is None else _parse_hint(store, found)
        if current is not None and current.version > hint.version and current != over:
            return
        outcome = (
            store.put_if_absent(LAST_CHECKPOINT_KEY, data)
            if found is None
            else store.put_if_unchanged(LAST_CHECKPOINT_KEY, data, found)
        )
        if outcome is PutOutcome.WRITTEN:
            return
    raise TransientStorageError(
        f"{store.url}: {LAST_CHECKPOINT_KEY} changed at every attempt to advance it to version {hint.version}; the "
        f"checkpoint is valid without it: write it again later with CHECKPOINT"
    )


def _hint_bytes(store: ObjectStore) -> bytes | None:
    try:
        return store.get(LAST_CHECKPOINT_KEY)
    except ObjectNotFoundError:
        return None


def _parse_hint(store: ObjectStore, data: bytes) -> LastCheckpoint | None:
    try:
        hint = msgspec.json.decode(data, type=LastCheckpoint, strict=False)
    except (ValueError, RecursionError) as error:
        logger.warning("%s/%s is not readable and is ignored (%s)", store.url, LAST_CHECKPOINT_KEY, error)
        return None
    # An impossible version would keep the hint from ever advancing.
    return hint if 0 <= hint.version <= MAX_VERSION else None


def _add_base(
    bases: dict[int, dict[tuple[BaseFormat, str], Base]], version: int, kind: BaseFormat, meta: ObjectMeta
) -> None:
    bases.setdefault(version, {})[kind, meta.key] = Base(version, kind, meta)
