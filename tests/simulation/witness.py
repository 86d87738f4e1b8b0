"""The store of a simulated table, which checks every commit and every deletion when it takes effect.

It reads the written bytes as plain JSON, independently of the code under test. It keeps the whole log in memory, also
after cleanup deleted the files, and checks each commit against the previous one.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from indextables.log.legacy_checkpoint import read_part_names, read_row_keys
from indextables.log.paths import (
    LAST_CHECKPOINT_KEY,
    LOG_PREFIX,
    JsonCheckpoint,
    ParquetCheckpointInfo,
    StateManifestFile,
    VersionFile,
    parse_log_path,
)
from indextables.log.segment import Base, BaseFormat, LastCheckpoint, LogListing, list_log, read_hint
from indextables.log.version_file import decompress
from indextables.ops.fsck.log import reachable_versions
from indextables.state.state_manifest import manifest_key, read_state_manifest
from indextables.storage import ObjectStore, PutOutcome
from support.clock import VirtualClock
from support.purge_tables import HOUR, ClockedStore

ORPHAN_FLOOR_MS = 24 * HOUR * 1000
LOG_FILE_FLOOR_MS = HOUR * 1000
# A writer that stalls this long during its commit removes splits whose recorded removal time is too early.
BEYOND_HELP_MS = 20 * HOUR * 1000


_WITHOUT_FILES = ("COMPACT", "PURGE", "SET PROPERTIES", "ADD COLUMN", "RENAME COLUMN", "DROP COLUMN")


class InvariantError(AssertionError):
    """An invariant is broken."""


@dataclass(frozen=True)
class File:
    """A live split as the log describes it."""

    path: str
    size: int
    date: str | None
    rows: int


@dataclass(frozen=True)
class Commit:
    """A version as it was written: its author, and the content of the table after it."""

    version: int
    id: str | None
    operation: str
    author: str
    files: dict[str, File]
    samples: dict[str | None, Counter[int]]
    restores: int | None = None


@dataclass
class Upload:
    """A file in the store: its author and upload time."""

    author: str
    made_ms: int


@dataclass
class Author:
    """The operation whose call takes effect now. `split_hours` is the retention of a purge."""

    name: str = "setup"
    split_hours: float | None = None


@dataclass
class Notes:
    """Counters for the report."""

    ghosts: int = 0
    beyond_help: int = 0
    commits: Counter[str] = field(default_factory=Counter)


class WitnessStore(ClockedStore):
    """An in-memory store on a virtual clock. Broken invariants are collected in `broken` and stop the run."""

    def __init__(self, inner: ObjectStore, clock: VirtualClock) -> None:
        super().__init__(inner, clock)
        self.author = Author()
        self.history: list[Commit] = []
        self.where_added: dict[str, int] = {}
        self.removed_ms: dict[str, int] = {}
        self.said_removed_ms: dict[str, int] = {}
        self.log_files: dict[str, Upload] = {}
        self.named_late: set[str] = set()
        self.uploads: dict[str, Upload] = {}
        self.sample_of: dict[str, int] = {}
        self.stored_names: dict[int, str] = {}
        self.column_ids: dict[str, int] = {}
        self.ghosts: dict[int, str] = {}
        self.vouched: set[str] = set()
        self.given_up: set[str] = set()
        self.endangered: dict[str, str] = {}
        self.broken: list[str] = []
        self.notes = Notes()

    @property
    def newest(self) -> Commit:
        return self.history[-1]

    @property
    def has_undecided_restores(self) -> bool:
        """Whether a restore has committed deleted splits and has not noticed yet."""
        return bool(self.endangered.keys() - self.vouched - self.given_up)

    def put(self, key, data) -> None:
        super().put(key, data)
        now_ms = self.clock.now_ms()
        if key.endswith(".split"):
            self.uploads.setdefault(key, Upload(self.author.name, now_ms))
        if key.startswith(LOG_PREFIX):
            self.log_files[key] = Upload(self.author.name, now_ms)

    def put_if_absent(self, key, data) -> PutOutcome:
        outcome = super().put_if_absent(key, data)
        path = parse_log_path(key)
        if outcome is PutOutcome.WRITTEN and isinstance(path, VersionFile):
            self._committed(path.version, data)
        is_checkpoint = isinstance(path, JsonCheckpoint | ParquetCheckpointInfo | StateManifestFile)
        if outcome is PutOutcome.WRITTEN and is_checkpoint:
            self._check_has_its_files(path.version, key)
        return outcome

    def put_if_unchanged(self, key, data, expected) -> PutOutcome:
        before = read_hint(self._inner)
        outcome = super().put_if_unchanged(key, data, expected)
        if outcome is PutOutcome.WRITTEN and key == LAST_CHECKPOINT_KEY:
            self._check_hint_advances(before)
        return outcome

    def delete_many(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        splits = [key for key in doomed if key.endswith(".split")]
        if splits:
            self._check_splits_may_go(splits)
        for key in doomed:
            path = parse_log_path(key)
            if isinstance(path, VersionFile):
                self._check_version_may_go(path.version)
            if key in self.named_late and self._is_named(key):
                self.notes.beyond_help += 1
        super().delete_many(doomed)

    def ended(self, author: str, *, acknowledged: bool) -> None:
        """Record the end of an operation. If it was acknowledged, its splits must not have been deleted."""
        if acknowledged and author in self.endangered:
            self._break(f"{author} was acknowledged, but {self.endangered[author]} was deleted")
        (self.vouched if acknowledged else self.given_up).add(author)
        self._count_beyond_help(author)

    # --- commits ------------------------------------------------------------------------------------

    def _committed(self, version: int, data: bytes) -> None:
        actions = [json.loads(line) for line in decompress(data, "version").splitlines() if line.strip()]
        info = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        if version < len(self.history):
            # Cleanup removed the original version: readers must never treat this file as part of the table.
            self.notes.ghosts += 1
            self.ghosts[version] = str(info.get("commitId"))
            return
        if version > len(self.history):
            self._break(f"version {version} was written, but the newest is {len(self.history) - 1}")
            return
        before = self.history[-1] if self.history else None
        operation = info.get("operation", "CREATE TABLE")
        adds = [_file(action["add"]) for action in actions if "add" in action]
        removes = [action["remove"]["path"] for action in actions if "remove" in action]
        for action in actions:
            if "metaData" in action:
                self._check_columns(version, json.loads(action["metaData"]["schemaString"]))
            if "remove" in action:
                self.said_removed_ms[action["remove"]["path"]] = action["remove"]["deletionTimestamp"]
        if before is not None:
            self._check_changes(version, operation, info, before, adds, removes)
        self._record(version, operation, info, before, adds, removes)

    def _record(self, version, operation, info, before, adds: list[File], removes: list[str]) -> None:
        files = {} if before is None else dict(before.files)
        samples = {} if before is None else dict(before.samples)
        for path in removes:
            files.pop(path, None)
            self.removed_ms[path] = self.clock.now_ms()
        for add in adds:
            files[add.path] = add
            self.where_added[add.path] = version
        if operation in ("OVERWRITE", "DROP PARTITIONS"):
            gone = {before.files[path].date for path in removes if path in before.files}
            samples = {date: counts for date, counts in samples.items() if date not in gone}
        if operation in ("WRITE", "OVERWRITE"):
            for add in adds:
                samples[add.date] = samples.get(add.date, Counter()) + Counter([self.sample_of[add.path]])
        restores = int(info["operationParameters"]["version"]) if operation == "RESTORE" else None
        if restores is not None:
            samples = self.history[restores].samples
        self.history.append(
            Commit(version, info.get("commitId"), operation, self.author.name, files, samples, restores)
        )
        self.notes.commits[operation] += 1

    def _check_columns(self, version: int, schema: dict) -> None:
        """A column has one id and one stored name, for ever."""
        for column in schema["fields"]:
            metadata = column["metadata"]
            field_id = metadata["parquet.field.id"]
            stored = metadata.get("indextables.storedName", column["name"])
            if self.stored_names.setdefault(field_id, stored) != stored:
                self._break(f"version {version}: column {field_id} is stored as {stored!r} now")
            if self.column_ids.setdefault(stored.lower(), field_id) != field_id:
                self._break(f"version {version}: the name {stored!r} passes to column {field_id}")

    def _check_changes(self, version, operation, info, before: Commit, adds, removes) -> None:
        place = f"version {version} ({operation} by {self.author.name})"
        if any(commit.id == info.get("commitId") for commit in self.history):
            self._break(f"{place}: its commit id is already in the log")
        repeated = [add.path for add in adds if add.path in self.where_added]
        if repeated and operation != "RESTORE":
            self._break(f"{place}: {repeated} was added before, in version {self.where_added[repeated[0]]}")
        unknown = [path for path in removes if path not in before.files]
        if unknown or len(set(removes)) != len(removes):
            self._break(
                f"{place}: removes {unknown or removes}, which is not live: a retry without a new plan"
            )
        for add in adds:
            self._check_is_there(place, add)
        live, gone = set(before.files), set(removes)
        match operation:
            case "WRITE" if gone:
                self._break(f"{place}: an append removes {sorted(gone)}")
            case "OVERWRITE" if gone != _partition(before, info, live):
                self._break(f"{place}: {sorted(_partition(before, info, live) - gone)} survive an overwrite")
            case "DROP PARTITIONS" if gone != _partition(before, info, live):
                self._break(
                    f"{place}: {sorted(_partition(before, info, live) ^ gone)} differ from the partition"
                )
            case "MERGE" if _rows([before.files[path] for path in gone & live]) != _rows(adds):
                self._break(f"{place}: a merge changes how many rows there are")
            case "RESTORE":
                self._check_restored(place, info, live, gone, adds)
            case _ if operation in _WITHOUT_FILES and (gone or adds):
                self._break(f"{place}: changes files")

    def _check_restored(
        self, place: str, info: dict, live: set[str], gone: set[str], adds: list[File]
    ) -> None:
        version = int(info["operationParameters"]["version"])
        expected = set(self.history[version].files)
        added = {add.path for add in adds}
        if (live - gone) | added != expected or (live - gone) & added:
            self._break(f"{place}: {sorted((live - gone) | added)} is not what version {version} held")
        if any(add != self.history[version].files.get(add.path) for add in adds):
            self._break(f"{place}: files differ from those of version {version}")

    def _check_is_there(self, place: str, add: File) -> None:
        sizes = {meta.key: meta.size for meta in self._inner.list("") if meta.key == add.path}
        if sizes.get(add.path) == add.size:
            return
        if add.path in self.removed_ms and self.author.name not in self.vouched:
            # A restore checks again after its commit.
            self._endanger(self.author.name, add.path)
            return
        self._break(f"{place}: {add.path} is not in the store, or is {sizes.get(add.path)} bytes long")

    # --- deletions ----------------------------------------------------------------------------------

    def _check_splits_may_go(self, keys: list[str]) -> None:
        listing = list_log(self._inner)
        reachable = reachable_versions(listing) & set(range(len(self.history)))
        retained = {version for version in reachable if not self._is_behind_a_ghost(version, listing)}
        now_ms = self.clock.now_ms()
        for key in keys:
            showing = [version for version in retained if key in self.history[version].files]
            if showing and self._is_being_restored(key, showing, retained):
                self._endanger(self.history[self.where_added[key]].author, key)
            elif showing:
                self._break(f"{self.author.name} deletes {key}, which versions {sorted(showing)} show")
            elif key in self.removed_ms:
                hours = self.author.split_hours
                retention_ms = now_ms if hours is None else hours * HOUR * 1000
                if now_ms - self.removed_ms[key] >= retention_ms:
                    continue
                if self._was_removed_too_late(key, retention_ms):
                    self.notes.beyond_help += 1
                else:
                    self._break(
                        f"{self.author.name} deletes {key}, removed {self._ago(self.removed_ms[key])}"
                    )
            elif key not in self.where_added and key in self.uploads:
                upload = self.uploads[key]
                is_own = upload.author == self.author.name
                if not is_own and now_ms - upload.made_ms < ORPHAN_FLOOR_MS:
                    self._break(f"{self.author.name} deletes {key}, uploaded {self._ago(upload.made_ms)}")

    def _is_behind_a_ghost(self, version: int, listing: LogListing) -> bool:
        """Whether the version can only be reached through the file of a stalled writer."""
        base = max((found for found in listing.bases if found <= version), default=-1)
        return any(base < ghost <= version and ghost in listing.versions for ghost in self.ghosts)

    def _is_being_restored(self, key: str, showing: list[int], retained: set[int]) -> bool:
        """Whether only a restore made the split live again, and its source version was removed before it noticed."""
        restored = self.history[self.where_added[key]]
        if restored.restores is None or restored.restores in retained or restored.author in self.vouched:
            return False
        return min(showing) >= restored.version

    def _check_has_its_files(self, version: int, key: str) -> None:
        """Check that a published checkpoint has all its files.

        Garbage collection deletes files that no checkpoint has referred to for an hour. The writer checks the clock
        before it publishes the checkpoint. If it stalls right then, its files may be gone.
        """
        base = next(base for base in list_log(self._inner).bases[version] if base.meta.key == key)
        named = self._named_by(base)
        collectable_ms = self.clock.now_ms() - LOG_FILE_FLOOR_MS
        late = {key for key in named if self.log_files[key].made_ms <= collectable_ms}
        missing = named - {meta.key for meta in self._inner.list(LOG_PREFIX)}
        if not missing:
            # A garbage collection that listed the log earlier may still delete the writer's own files.
            self.named_late |= {key for key in late if self.log_files[key].author == self.author.name}
        elif late == named:
            self.notes.beyond_help += 1
        else:
            self._break(f"{self.author.name} publishes the checkpoint of version {version} without {missing}")

    def _named_by(self, base: Base) -> set[str]:
        match base.format:
            case BaseFormat.AVRO_STATE:
                state = read_state_manifest(self._inner, base)
                return {manifest_key(info.path, base.version) for info in state.manifests}
            case BaseFormat.JSON:
                return {LOG_PREFIX + name for name in read_part_names(self._inner, base.meta)}
            case BaseFormat.PARQUET:
                return set(read_row_keys(self._inner, base.meta, base.version))

    def manifests_of(self, base: Base) -> set[str]:
        """The manifests that a state refers to; none for a checkpoint of another format."""
        return self._named_by(base) if base.format is BaseFormat.AVRO_STATE else set()

    def _is_named(self, key: str) -> bool:
        return any(key in self._named_by(base) for base in list_log(self._inner).bases_newest_first())

    def _was_removed_too_late(self, key: str, retention_ms: float) -> bool:
        """Whether the writer that removed a split stalled during its commit for longer than the retention.

        PURGE goes by the time in the log, which is the time when the commit was planned.
        """
        said_ms = self.said_removed_ms[key]
        is_late = self.removed_ms[key] - said_ms >= BEYOND_HELP_MS
        return is_late and self.clock.now_ms() - said_ms >= retention_ms

    def _endanger(self, restorer: str, path: str) -> None:
        self.endangered.setdefault(restorer, path)
        self._count_beyond_help(restorer)

    def _count_beyond_help(self, restorer: str) -> None:
        """Count restores whose splits were purged, if the restore reported it, or crashed before it could."""
        if restorer in self.endangered and restorer in self.given_up:
            self.notes.beyond_help += 1

    def _check_version_may_go(self, version: int) -> None:
        if self.ghosts.pop(version, None) is None and version == self.newest.version:
            self._break(f"{self.author.name} deletes the newest version, {version}")

    def _check_hint_advances(self, before: LastCheckpoint | None) -> None:
        after = read_hint(self._inner)
        if before is not None and (after is None or after.version < before.version):
            is_lost = before.version not in list_log(self._inner, from_version=before.version).bases
            if not is_lost:
                self._break(
                    f"{self.author.name} moves the hint back from version {before.version} to {after}"
                )

    def _ago(self, moment_ms: int) -> str:
        return f"{(self.clock.now_ms() - moment_ms) / 3_600_000:.1f} hours ago"

    def _break(self, message: str) -> None:
        self.broken.append(message)


def _file(add: dict) -> File:
    return File(add["path"], add["size"], add["partitionValues"].get("date"), add.get("numRecords") or 0)


def _partition(before: Commit, info: dict, live: set[str]) -> set[str]:
    """The live files that an overwrite or a drop selects."""
    predicate = info.get("operationParameters", {}).get("predicate")
    if predicate is None:
        return live
    return {path for path in live if f"'{before.files[path].date}'" in predicate}


def _rows(files: Iterable[File]) -> Counter[str | None]:
    counts: Counter[str | None] = Counter()
    for file in files:
        counts[file.date] += file.rows
    return counts
