"""Which files of the log give a version: the listing, and its validation. Nothing here reads contents.

`LogListing` is what a scan of `_transaction_log/` found; `LogSegment` is one checkpoint (or none) and the
version files after it. Listings may repeat and reorder names: nothing here relies on their exact order.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

import msgspec

from indextables.errors import VersionNotFoundError
from indextables.log.paths import (
    LOG_PREFIX,
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
from indextables.storage import ObjectMeta, ObjectStore

# About a page of a listing.
_READ_ALONG = 1000


class BaseFormat(Enum):
    """The kinds of checkpoint; the value is the one that `_last_checkpoint` uses. The best come first."""

    AVRO_STATE = "avro-state"
    JSON = "json"
    PARQUET = "parquet"


class Base(msgspec.Struct, frozen=True):
    """A checkpoint or state that a replay can start from; `meta` is the file that makes it valid."""

    version: int
    format: BaseFormat
    meta: ObjectMeta


class VersionEntry(msgspec.Struct, frozen=True):
    """A version, and where its file is."""

    version: int
    meta: ObjectMeta


class Gap(msgspec.Struct, frozen=True):
    """Versions that are missing although newer ones exist: the readable log ends before `first_missing`."""

    first_missing: int
    newest: int


class LogListing(msgspec.Struct, frozen=True):
    """The version files and the bases that exist, by version; bases of one version, the best first."""

    versions: Mapping[int, ObjectMeta] = msgspec.field(default_factory=dict)
    bases: Mapping[int, tuple[Base, ...]] = msgspec.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found that could be a table."""
        return not self.versions and not self.bases

    @property
    def newest_version(self) -> int:
        """The highest version that anything bears witness of, readable or not."""
        return max([*self.versions, *self.bases], default=-1)

    @property
    def version_files(self) -> tuple[VersionEntry, ...]:
        """Every version file, the oldest first."""
        return tuple(VersionEntry(version, meta) for version, meta in self.versions.items())

    def version_file(self, version: int) -> VersionEntry:
        return VersionEntry(version, self.versions[version])

    def without(self, keys: Collection[str]) -> "LogListing":
        """The listing, as if the bases under these keys were not there."""
        kept = {
            v: tuple(base for base in found if base.meta.key not in keys) for v, found in self.bases.items()
        }
        return LogListing(self.versions, {version: found for version, found in kept.items() if found})

    def preferring(self, version: int, kind: BaseFormat) -> "LogListing":
        """The listing, with the bases of a version in another order: first those in this format."""
        found = sorted(self.bases.get(version, ()), key=lambda base: base.format is not kind)
        return LogListing(self.versions, {**self.bases, version: tuple(found)} if found else self.bases)

    def bases_newest_first(self) -> list[Base]:
        """Every base, in the order in which a reader should try them."""
        return [base for version in sorted(self.bases, reverse=True) for base in self.bases[version]]


class LogSegment(msgspec.Struct, frozen=True):
    """What to read for `version`: a base, or none, and all version files after it.

    Invariants: the version files are contiguous; the first one follows the base, or is version 0 where
    there is no base; the last one is `version`, unless the base itself is.
    """

    version: int
    base: Base | None
    version_files: tuple[VersionEntry, ...]
    gap: Gap | None


def list_log(store: ObjectStore, *, from_version: int = 0) -> LogListing:
    """Scan the log for version files and for bases from `from_version` on.

    Between the two lie the manifests of entries and the older states. A few of them are read along, which makes
    one listing do for most tables; thousands are jumped over.
    """
    start_after = version_key(from_version - 1) if from_version else None
    first_state = f"{STATE_PREFIX}{format_version(from_version)}"
    found: list[ObjectMeta] = []
    passed = 0
    for meta in store.list(LOG_PREFIX, start_after=start_after):
        found.append(meta)
        passed += SHARED_MANIFEST_PREFIX <= meta.key < first_state
        if passed > _READ_ALONG:
            found += store.list(LOG_PREFIX, start_after=first_state)
            break
    return build_listing(found, from_version=from_version)


def build_listing(metas: Iterable[ObjectMeta], *, from_version: int = 0) -> LogListing:
    """Sort a scan into version files and bases."""
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
    """The segment that starts at `base` and reaches `version`, or as far as the version files do.

    Raises VersionNotFoundError, naming the first missing file, if `version` is given and out of reach.
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
    """The version files from `first` on, without a gap, up to `last` or as far as they go."""
    found: list[VersionEntry] = []
    version = first
    while version in listing.versions and (last is None or version <= last):
        found.append(listing.version_file(version))
        version += 1
    return tuple(found)


def _add_base(
    bases: dict[int, dict[tuple[BaseFormat, str], Base]], version: int, kind: BaseFormat, meta: ObjectMeta
) -> None:
    bases.setdefault(version, {})[kind, meta.key] = Base(version, kind, meta)
