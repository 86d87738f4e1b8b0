"""FSCK checks the integrity of a table: it reads the whole log and every live split, and writes nothing."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError, UnsafePathError
from indextables.log.paths import LOG_PREFIX
from indextables.log.segment import LogListing, list_log, read_hint
from indextables.ops.fsck.log import (
    REPAIR,
    CheckedBase,
    DamagedBase,
    check_base,
    check_hint,
    check_hinted_version,
    check_reachability,
    check_replays,
    check_state_folders,
    check_version_files,
    reachable_versions,
    report_damaged_bases,
)
from indextables.ops.fsck.report import Finding, FsckResult, Severity, ordered_findings
from indextables.ops.fsck.splits import check_contents, check_presence, count_orphans
from indextables.ops.purge.garbage import checkpoint_files, is_collectable
from indextables.ops.references import LivePaths, read_actions, stored_table
from indextables.ops.runner import Runner
from indextables.storage import ObjectMeta
from indextables.table import Snapshot, TableContext, load_snapshot

_PURGE: Final = "PURGE INDEXTABLE"
_KEEP: Final = "keep them: unreadable versions may refer to them"


def fsck(context: TableContext, runner: Runner, *, deep: bool) -> FsckResult:
    """Check a table and report what is wrong. Changes nothing.

    FSCK checks that every retained version is readable and is the same table by every way of loading it, that counts
    are exact, that every referenced split exists, and that live splits have the recorded size and can be opened. With
    `deep`, it also verifies their checksums.

    If the newest version cannot be read, that is a finding, and the splits are not checked. Raises TableNotFoundError,
    UnsupportedProtocolError, and StorageError if the store fails.
    """
    # Only the stored files count; the cache may be stale.
    context.cache.invalidate(context.store)
    metas = list(context.store.list(""))
    hint = read_hint(context.store)
    head, unreadable = _newest(context)
    listing = list_log(context.store)
    checked = [
        check_base(context if head is None else head.context, base) for base in listing.bases_newest_first()
    ]
    bases = [result for result in checked if isinstance(result, CheckedBase)]
    damaged = [result for result in checked if isinstance(result, DamagedBase)]
    findings = [*unreadable, *report_damaged_bases(context, damaged, bases, is_readable=not unreadable)]
    lost = [] if head is None else list(check_hinted_version(head, hint))
    findings += lost or check_hint(context, listing)
    findings += check_state_folders(context)
    findings += check_version_files(context, listing.version_files, None if head is None else head.metadata)
    if head is not None:
        findings += check_reachability(head, listing)
        findings += check_replays(head, listing, bases)
    if head is not None and not unreadable:
        is_whole = not lost and head.gap is None
        findings += _check_splits(head, listing, bases, metas, remedy=_PURGE if is_whole else _KEEP)
        findings += check_contents(head, deep=deep, runner=runner)
    return FsckResult(
        table_path=context.url,
        version=listing.newest_version if head is None else head.version,
        versions_checked=len(reachable_versions(listing)),
        checkpoints_checked=len(checked),
        splits_checked=0 if head is None or unreadable else head.num_files,
        is_deep=deep,
        findings=ordered_findings(_without_repeats(findings)),
    )


def _newest(context: TableContext) -> tuple[Snapshot | None, list[Finding]]:
    """The newest version, None if it cannot be opened, and a finding if it cannot be read completely."""
    head = None
    try:
        head = load_snapshot(context)
        _ = head.entries
    except LogCorruptedError as error:
        name = "the newest version" if head is None else f"version {head.version}"
        return head, [Finding(Severity.ERROR, "table-unreadable", name, str(error), REPAIR)]
    return head, []


def _check_splits(
    head: Snapshot, listing: LogListing, bases: list[CheckedBase], metas: list[ObjectMeta], *, remedy: str
) -> Iterator[Finding]:
    """Check that splits exist, and count orphans. `remedy` is what to do about orphans."""
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
    """The splits that readable versions refer to, or None if the log is damaged or names files outside the table."""
    live, reachable = LivePaths(context), reachable_versions(listing)
    files = [file for file in listing.version_files if file.version in reachable]
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
    orphans = [
        meta
        for meta in metas
        if meta.key.startswith(LOG_PREFIX) and is_collectable(meta) and meta.key not in used
    ]
    if orphans:
        size_bytes = sum(meta.size for meta in orphans)
        message = f"{len(orphans)} files of {size_bytes} bytes belong to no checkpoint"
        yield Finding(Severity.INFO, "orphaned-manifests", orphans[0].key, message, remedy)


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """The findings without "split-unreadable" for splits that are already reported as missing or truncated."""
    lost = {finding.object for finding in findings if finding.code in ("split-missing", "split-size")}
    return [
        finding for finding in findings if finding.code != "split-unreadable" or finding.object not in lost
    ]
