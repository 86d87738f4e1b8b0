"""A simulated run: a table, actors and a seed, and the invariants after every operation and at the end."""

import contextlib
import random
import secrets
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock

from indextables.errors import (
    CheckpointCorruptionError,
    CommitOutcomeUnknownError,
    IndexTablesError,
    LogCorruptedError,
    LogGapError,
    SplitCorruptedError,
    SplitsMissingError,
    VersionNotFoundError,
)
from indextables.log.paths import LOG_PREFIX, version_key
from indextables.log.segment import list_log
from indextables.ops.checkpoint.cleanup import has_whole_checkpoint
from indextables.ops.checkpoint.operation import compact, write_checkpoint
from indextables.ops.fsck.log import reachable_versions
from indextables.ops.fsck.operation import fsck
from indextables.ops.read import scan
from indextables.ops.runner import LocalRunner
from indextables.table import Operation, commit, load_snapshot
from indextables.table.context import process_cache
from indextables.table.intent import EmptyCommit
from simulation.actors import TASKS, Acknowledged, Actor, Task, author_of
from simulation.scheduler import (
    WRITES,
    BatonStore,
    Call,
    CrashError,
    Done,
    Fate,
    Kind,
    LateCall,
    Odds,
    Process,
)
from simulation.witness import Author, InvariantError, WitnessStore
from support.clock import VirtualClock
from support.purge_tables import DAY, HOUR, sample_ids
from support.tables import FORMATS, PLAIN, context, memory_store, new_table

START_MS = 1_700_000_000_000
JUMPS_SECONDS = (1, 15, 15, 15, HOUR // 2, 2 * HOUR, 2 * HOUR, 30 * HOUR, 30 * HOUR, 10 * DAY)

# Operations may make these commits in addition to their own.
HOUSEKEEPING = ("COMPACT", "PURGE")

# Nothing is damaged before the end of the run, so no operation may report damage.
NEVER = (LogGapError, LogCorruptedError, SplitCorruptedError)


@dataclass
class Report:
    """The statistics and the trace of a run."""

    seed: int
    operations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    versions: int = 0
    ghosts: int = 0
    beyond_help: int = 0
    damaged: int = 0
    repairs: int = 0
    trace: list[str] = field(default_factory=list)


class Simulation:
    """Up to `width` concurrent operations, `length` in total."""

    def __init__(self, seed: int, *, length: int = 60, width: int = 4, odds: Odds | None = None) -> None:
        self.report = Report(seed)
        self._dice = random.Random(seed)
        self._length = length
        self._width = width
        self._odds = odds or Odds()
        self._clock = VirtualClock(START_MS)
        self.witness = WitnessStore(memory_store(self._clock), self._clock)
        self._view = context(self.witness)
        self._late: list[LateCall] = []
        self._settings = _settings(self._dice)
        self._idle: list[Actor] = []
        self._busy: dict[Process, tuple[Actor, Task, Author]] = {}
        self._outages: dict[str, int] = {}
        self._started = 0
        self._actors = 0
        self._seen_keys: frozenset[str] = frozenset()

    def run(self) -> Report:
        """Raise InvariantError, with a trace, if an invariant is broken or the table becomes unreadable."""
        try:
            with _reproducible(self.report.seed):
                self._run()
        except (InvariantError, IndexTablesError) as error:
            message = error if isinstance(error, InvariantError) else repr(error)
            raise InvariantError(f"{message}\n{self.trace()}") from error
        finally:
            # Waiting threads would keep the interpreter alive.
            for process in list(self._busy):
                self._kill(process)
        return self.report

    def trace(self) -> str:
        """The run as text: writes, deletions, faults and outcomes."""
        title = f"seed {self.report.seed}, settings {self._settings}"
        return "\n".join([title, *self.report.trace])

    def _run(self) -> None:
        new_table(self.witness)
        while (self._started < self._length or self._busy) and not self.witness.notes.beyond_help:
            self._step()
        for process in list(self._busy):
            self._kill(process)
        self._deliver_late_calls()
        self._finish()
        if not self.witness.notes.beyond_help:
            self._damage_and_repair()
        self.report.versions = len(self.witness.history)
        self.report.ghosts = self.witness.notes.ghosts
        self.report.beyond_help = self.witness.notes.beyond_help

    # --- one step -----------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._dice.random() < self._odds.jump:
            self._jump()
        if self._late and self._dice.random() < 0.02:
            self._deliver(self._late.pop(self._dice.randrange(len(self._late))))
        if self._started < self._length and len(self._busy) < self._width:
            self._start_one()
        awake = [process for process in self._busy if process.asleep_until <= self.report.calls]
        process = self._dice.choice(awake or list(self._busy))
        self.witness.author = self._busy[process][2]
        if isinstance(process.pending, Call):
            self._pass_on(process, process.pending)
        if isinstance(process.pending, Done):
            self._done(process, process.pending)

    def _pass_on(self, process: Process, call: Call) -> None:
        self.report.calls += 1
        fate = self._fate(process, call)
        if fate is not None:
            self.report.faults[fate.kind.value] += 1
        elif self._dice.random() < self._odds.nap:
            process.asleep_until = self.report.calls + self._dice.randrange(5, 200)
            return
        if fate is not None or call.operation in WRITES:
            self._note(process.name, f"{call.operation} {call.key}{f': {fate}' if fate else ''}")
        process.resume(fate)
        self._raise_if_broken()

    def _fate(self, process: Process, call: Call) -> Fate | None:
        if self._dice.random() < self._odds.outage:
            self._outages[process.name] = self.report.calls + self._dice.randrange(10, 80)
        fate = self._odds.fate(self._dice, call)
        if process.is_dead:
            return Fate(Kind.CRASH)
        if self._outages.get(process.name, 0) > self.report.calls:
            return Fate(Kind.ERROR) if fate is None else fate
        return fate

    def _start_one(self) -> None:
        self._started += 1
        actor = self._idle.pop(self._dice.randrange(len(self._idle))) if self._idle else self._new_actor()
        task = self._dice.choices(TASKS, [task.weight for task in TASKS])[0]
        author = author_of(actor, task, self._started)
        process = Process(author.name, lambda: task.run(actor))
        actor.store.process = process
        self._busy[process] = (actor, task, author)
        self.report.operations[task.name] += 1
        self._note(author.name, "begins")
        self.witness.author = author
        process.start()

    def _new_actor(self) -> Actor:
        self._actors += 1
        name = f"actor{self._actors}"
        store = BatonStore(self.witness, self._late, f"{self.witness.identity}/{name}")
        dice = random.Random(self._dice.randrange(1 << 32))
        settings = {**self._settings, "transaction.cache.enabled": dice.choice(("true", "false"))}
        return Actor.new(name, store, dice, self.witness, settings)

    def _jump(self) -> None:
        seconds = self._dice.choice(JUMPS_SECONDS)
        if seconds > HOUR:
            # No request stays in flight for hours.
            self._deliver_late_calls()
        self._clock.advance(seconds)
        self._note("time", f"{seconds / HOUR:.1f} hours pass")

    def _deliver(self, late: LateCall) -> None:
        self._note(late.author.name, f"takes effect now: {late.text}")
        self.witness.author = late.author
        late.perform()
        self._raise_if_broken()

    def _deliver_late_calls(self) -> None:
        while self._late:
            self._deliver(self._late.pop(0))

    def _kill(self, process: Process) -> None:
        while isinstance(process.pending, Call):
            process.is_dead = True
            process.resume(Fate(Kind.CRASH))
        del self._busy[process]

    # --- after an operation -------------------------------------------------------------------------

    def _done(self, process: Process, done: Done) -> None:
        actor, task, author = self._busy.pop(process)
        outcome = "fine" if done.error is None else type(done.error).__name__
        self.report.outcomes[outcome] += 1
        self._note(author.name, f"ends: {done.error or done.result or 'fine'!s:.300}")
        if isinstance(done.error, CrashError):
            self.report.operations["crashed"] += 1
        else:
            self._idle.append(actor)
        self._check_outcome(author, task, done)
        keys = frozenset(meta.key for meta in self.witness.list(LOG_PREFIX))
        if keys != self._seen_keys:
            self._seen_keys = keys
            self._check_head()
        if self._started % 20 == 0:
            self._check_kept_versions()

    def _check_outcome(self, author: Author, task: Task, done: Done) -> None:
        self.witness.ended(author.name, acknowledged=done.error is None)
        self._raise_if_broken()
        own = [commit for commit in self.witness.history if commit.author == author.name]
        landed = [commit.version for commit in own if commit.operation not in HOUSEKEEPING]
        match done.error:
            case None if isinstance(done.result, Acknowledged):
                expected = [] if done.result.version is None else [done.result.version]
                if landed != expected:
                    raise InvariantError(f"{author.name} reported {expected}, and committed {landed}")
            case SplitsMissingError() if task.name == "restore":
                pass
            case None | CrashError() | CommitOutcomeUnknownError():
                if len(landed) > 1:
                    raise InvariantError(f"{author.name} committed more than once: {landed}")
            case InvariantError():
                raise InvariantError(f"{author.name}: {done.error}") from done.error
            case IndexTablesError():
                if landed:
                    raise InvariantError(f"{author.name} failed ({done.error}), and committed {landed}")
                if isinstance(done.error, NEVER):
                    raise InvariantError(f"{author.name}: {done.error!r}") from done.error
            case _:
                raise InvariantError(f"{author.name}: an untyped error, {done.error!r}") from done.error

    def _check_head(self) -> None:
        self.witness.author = Author("the check")
        head = load_snapshot(self._view)
        if head.gap is not None or head.version != self.witness.newest.version:
            raise InvariantError(f"the newest version is {self.witness.newest.version}, not {head.version}")
        self._check_files(head)

    def _check_kept_versions(self) -> None:
        stored = {meta.key for meta in self.witness.list("")}
        listing = list_log(self.witness)
        for version in sorted(reachable_versions(listing)):
            try:
                self._check_files(load_snapshot(self._view, version))
            except (VersionNotFoundError, CheckpointCorruptionError):
                # A stalled writer that crashed reused the number of this version or of one before it; or a stalled
                # writer published its checkpoint after garbage collection had removed files of it.
                is_hidden = any(
                    ghost <= version and ghost in listing.versions for ghost in self.witness.ghosts
                )
                if not is_hidden and not self.witness.notes.beyond_help:
                    raise
                continue
            lost = sorted(set(self.witness.history[version].files) - stored)
            if lost and not self.witness.notes.beyond_help and not self.witness.has_undecided_restores:
                raise InvariantError(f"version {version} is readable, but {lost} is gone")

    def _check_files(self, snapshot) -> None:
        entries = snapshot.entries
        found = dict(zip(entries["path"].to_pylist(), entries["size"].to_pylist(), strict=True))
        files = self.witness.history[snapshot.version].files
        expected = {file.path: file.size for file in files.values()}
        if found != expected:
            extra, missing = sorted(found.keys() - expected), sorted(expected.keys() - found)
            raise InvariantError(f"version {snapshot.version}: {extra} is unexpected, {missing} is missing")
        counts = (snapshot.num_files, snapshot.total_bytes)
        if counts != (len(expected), sum(expected.values())) or entries.num_rows != len(expected):
            raise InvariantError(f"version {snapshot.version}: the counts {counts} are wrong")

    def _finish(self) -> None:
        self.witness.author = Author("the check")
        self._check_head()
        self._check_kept_versions()
        if self.witness.notes.beyond_help:
            return
        self._check_rows()
        found = fsck(self._view, LocalRunner(), deep=False).findings
        ghosts = {version_key(version) for version in self.witness.ghosts}
        findings = [
            finding
            for finding in found
            if finding.severity.value != "info"
            and not (finding.code == "version-used-again" and finding.object in ghosts)
        ]
        # A writer that crashes or sleeps before it advances the hint may leave it at a checkpoint that is cleaned up
        # meanwhile. It is only a hint; that it never moves back is checked by the witness.
        findings = [finding for finding in findings if finding.code != "hint-stale"]
        if findings:
            raise InvariantError(f"fsck: {findings}")

    def _damage_and_repair(self) -> None:
        """Cut off a manifest that as many states as possible share. A repair repairs, or fails and changes nothing."""
        self.witness.author = Author("the repair")
        process_cache().invalidate()
        named = Counter(
            key
            for base in list_log(self.witness).bases_newest_first()
            for key in self.witness.manifests_of(base)
        )
        if not named:
            return
        key = max(named, key=lambda key: (named[key], key))
        data = self.witness.get(key)
        self.witness.put(key, data[: len(data) // 2])
        self.report.damaged = named[key]
        self._note("damage", f"{key}, which {named[key]} states share, is cut off")
        is_readable = self._is_readable()
        before = self._log()
        repair = self._dice.choice((write_checkpoint, compact))
        try:
            repair(load_snapshot(self._view))
        except LogCorruptedError as error:
            self._note("repair", f"fails: {error}")
            if is_readable:
                raise InvariantError(f"the log reaches the newest version, but {error}") from error
            if self._log() != before:
                raise InvariantError("a repair that failed has changed the log") from error
            self._check_append_is_refused()
        else:
            self.report.repairs += 1
            self._check_head_is_whole()
        fsck(self._view, LocalRunner(), deep=False)  # reports instead of raising

    def _is_readable(self) -> bool:
        try:
            self._check_head()
        except LogCorruptedError:
            return False
        return True

    def _log(self) -> dict[str, bytes]:
        return {meta.key: self.witness.get(meta.key) for meta in self.witness.list(LOG_PREFIX)}

    def _check_append_is_refused(self) -> None:
        try:
            commit(load_snapshot(self._view), EmptyCommit(), Operation("COMPACT"))
        except LogGapError:
            return
        raise InvariantError("a commit was accepted after a version that cannot be read")

    def _check_head_is_whole(self) -> None:
        self._check_head()
        newest = load_snapshot(self._view)
        base = newest.segment.base
        if base is None or base.version != newest.version or not has_whole_checkpoint(self._view, [base]):
            raise InvariantError(f"version {newest.version} has no whole checkpoint after a repair")

    def _check_rows(self) -> None:
        newest = self.witness.newest
        rows = scan(
            load_snapshot(context(self.witness, {"read.parallelism": "1"})), None, ["id", "date"]
        ).read_all()
        found = Counter(zip(rows["date"].to_pylist(), rows["id"].to_pylist(), strict=True))
        expected: Counter = Counter()
        for date, samples in newest.samples.items():
            for sample, times in samples.items():
                for row in sample_ids(sample):
                    expected[date, row] += times
        if found != expected:
            raise InvariantError(f"rows lost: {expected - found}; unexpected rows: {found - expected}")

    def _raise_if_broken(self) -> None:
        if self.witness.broken:
            raise InvariantError("; ".join(self.witness.broken))

    def _note(self, who: str, what: str) -> None:
        hours = (self._clock.now_ms() - START_MS) / 3_600_000
        # The URL of the store is random: without it, the same seed gives the same trace.
        what = what.replace(self.witness.url, "table")
        self.report.trace.append(f"{self.report.calls:6} {hours:8.2f}h  {who:34} {what}")


def _settings(dice: random.Random) -> dict[str, str]:
    """Random maintenance settings: they determine which races are possible."""
    automatic = dice.choice(("true", "false"))
    retention = dice.choice(("0", "1", "30"))
    return {
        **PLAIN,
        "checkpoint.enabled": automatic,
        "checkpoint.interval": dice.choice(("1", "3", "5")),
        "purge.txLogRetentionHours": retention,
        "checkpoint.retention": dice.choice(("0", "2")),
        "state.retention.versions": dice.choice(("0", "1")),
        "state.retention.hours": retention,
        "state.compaction.maxManifests": dice.choice(("2", "20")),
        "transaction.compression.enabled": dice.choice(("true", "false")),
        **FORMATS[dice.choice(("avro", "avro", "avro", *FORMATS))],
    }


@contextlib.contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Draw random names and pauses from the seed as well."""
    names = random.Random(f"names {seed}")
    before = random.getstate()
    random.seed(seed)
    try:

        def new_id() -> uuid.UUID:
            return uuid.UUID(int=names.getrandbits(128), version=4)

        def new_token(count: int = 32) -> str:
            return names.randbytes(count).hex()

        with mock.patch.object(uuid, "uuid4", new_id), mock.patch.object(secrets, "token_hex", new_token):
            yield
    finally:
        random.setstate(before)
        process_cache().invalidate()
