"""FSCK: is a table whole? Everything that can be known is read, and nothing is written."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError, UnsafePathError
from indextables.log.checkpoint import read_hint
from indextables.log.paths import LOG_PREFIX
from indextables.log.segment import LogListing, list_log
from indextables.ops.fsck.log import (
    CheckedBase,
    check_base,
    check_hint,
    check_promise,
    check_reach,
    check_replays,
    check_version_files,
    reachable_versions,
)
from indextables.ops.fsck.report import Finding, FsckResult, Severity, ordered_findings
from indextables.ops.fsck.splits import check_contents, check_presence, count_orphans
from indextables.ops.purge.garbage import checkpoint_files, is_collectable
from indextables.ops.references import LivePaths, read_actions, stored_table
from indextables.ops.runner import Runner
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot

_PURGE: Final = "PURGE INDEXTABLE"
_KEEP: Final = "keep them: versions that cannot be read may need them"


def fsck(context: TableContext, runner: Runner, *, deep: bool) -> FsckResult:
    """Check a table, and return what is wrong with it: nothing is changed.

    Every version that is kept can be read, whichever way one comes to it; counts are exact; every split that one of
    them refers to is there; live ones have their size and can be opened; with `deep`, their checksums are right.

    Raises TableNotFoundError, UnsupportedProtocolError, LogCorruptedError if not even the newest version can be
    read, and StorageError if the store does not answer.
    """
    # What was remembered tells nothing about what is there.
    context.cache.invalidate(context.store)
    metas = list(context.store.list(""))
    hint = read_hint(context.store)
    head = load_snapshot(context)
    _ = head.entries
    listing = list_log(context.store)
    checked = [check_base(head.context, base) for base in listing.bases_newest_first()]
    bases = [each for each in checked if isinstance(each, CheckedBase)]
    findings = [each for each in checked if isinstance(each, Finding)]
    findings += check_reach(head, listing)
    lost = list(check_promise(head, hint))
    findings += lost or check_hint(context, listing)
    findings += check_version_files(context, listing.versions.items())
    findings += check_replays(head, listing, bases)
    is_whole = not lost and head.gap is None
    findings += _check_splits(head, listing, bases, metas, remedy=_PURGE if is_whole else _KEEP)
    findings += check_contents(head, deep=deep, runner=runner)
    return FsckResult(
        table_path=context.url,
        version=head.version,
        versions_checked=len(reachable_versions(listing)),
        checkpoints_checked=len(checked),
        splits_checked=head.num_files,
        is_deep=deep,
        findings=ordered_findings(_once(findings)),
    )


def _check_splits(
    head: Snapshot, listing: LogListing, bases: list[CheckedBase], metas: list[ObjectMeta], *, remedy: str
) -> Iterator[Finding]:
    """`remedy` is what becomes of files that nothing refers to."""
    stored = stored_table(metas)
    history = _history(head.context, listing, bases)
    if history is None:
        yield from check_presence(head, stored, pa.array([], pa.string()))
        return
    yield from check_presence(head, stored, history)
    yield from count_orphans(stored, history, remedy)
    if len(bases) == len(listing.bases_newest_first()):
        yield from _count_log_orphans(head.context, listing, metas, remedy)


def _history(context: TableContext, listing: LogListing, bases: list[CheckedBase]) -> pa.Array | None:
    """The splits that any version refers to which can be read; None if the log is damaged or names others."""
    live, reachable = LivePaths(context), reachable_versions(listing)
    files = [(version, meta) for version, meta in listing.versions.items() if version in reachable]
    try:
        for checked in bases:
            live.add(checked.base)
        return pc.unique(pa.concat_arrays([live.paths(), read_actions(context, files).added]))
    except (LogCorruptedError, ObjectNotFoundError, UnsafePathError):
        return None


def _count_log_orphans(
    context: TableContext, listing: LogListing, metas: list[ObjectMeta], remedy: str
) -> Iterator[Finding]:
    used = checkpoint_files(context, listing.bases_newest_first())
    loose = [
        meta
        for meta in metas
        if meta.key.startswith(LOG_PREFIX) and is_collectable(meta) and meta.key not in used
    ]
    if loose:
        message = f"{len(loose)} files of {sum(meta.size for meta in loose)} bytes belong to no checkpoint"
        yield Finding(Severity.INFO, "orphaned-manifests", loose[0].key, message, remedy)


def _once(findings: list[Finding]) -> list[Finding]:
    """A split that is not there cannot be opened either: the first finding about an object counts."""
    lost = {finding.object for finding in findings if finding.code in ("split-missing", "split-size")}
    return [
        finding for finding in findings if finding.code != "split-unreadable" or finding.object not in lost
    ]
