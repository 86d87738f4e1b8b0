"""Completes the header of a state that another writer wrote.

The JVM derives its states from ours, and leaves out the fields that it does not know. Without `transactions`, a
repeated batch of a stream would be committed twice and the fence of a purge would be forgotten; without
`recentCommits`, a stalled writer could not find its commit. The rest of the log still has them, as far as it is
retained.
"""

import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.decode import VersionSummary
from indextables.log.replay import EMPTY_HEADER, RECENT_COMMITS, LogHeader
from indextables.log.segment import Base, BaseFormat, LogListing, VersionEntry, list_log
from indextables.table.context import TableContext
from indextables.table.log_reader import read_base, read_summaries

logger = logging.getLogger(__name__)


def completed_header(context: TableContext, base: Base | None, header: LogHeader) -> LogHeader:
    """The header of a base, with transactions and recent commits from older files if the base is a foreign state.

    They come from the newest older state of ours and from the version files after it. Damaged version files are left
    out with a warning: the state covers them.
    """
    if base is None or not _is_foreign(base, header):
        return header
    listing = list_log(context.store)
    older = _newest_own_state(context, listing, header.version)
    files = [
        listing.version_file(version)
        for version in sorted(listing.versions)
        if older.version < version <= header.version
    ]
    transactions, commits = dict(older.transactions), dict(older.recent_commits)
    for summary in _readable_summaries(context, files):
        for transaction in summary.actions.transactions:
            app_id = transaction.app_id
            transactions[app_id] = max(transaction.version, transactions.get(app_id, transaction.version))
        if summary.actions.commit_info is not None:
            commits[summary.version] = summary.actions.commit_info.commit_id
    return replace(
        header,
        transactions={**transactions, **header.transactions},
        recent_commits=dict(sorted({**commits, **header.recent_commits}.items())[-RECENT_COMMITS:]),
    )


def _is_foreign(base: Base, header: LogHeader) -> bool:
    """Whether another writer wrote a state: only ours record the protocol."""
    return base.format is BaseFormat.AVRO_STATE and header.protocol is None


def _newest_own_state(context: TableContext, listing: LogListing, before: int) -> LogHeader:
    """The header of the newest readable state of ours before a version, or an empty one."""
    for base in listing.bases_newest_first():
        if base.version >= before or base.format is not BaseFormat.AVRO_STATE:
            continue
        try:
            header, _ = read_base(context, base)
        except (LogCorruptedError, ObjectNotFoundError):
            continue
        if not _is_foreign(base, header):
            return header
    return EMPTY_HEADER


def _readable_summaries(context: TableContext, files: Sequence[VersionEntry]) -> Iterator[VersionSummary]:
    try:
        yield from read_summaries(context, files)
        return
    except LogCorruptedError:
        pass
    # Summaries that were yielded already are yielded again, which changes nothing.
    for file in files:
        try:
            yield from read_summaries(context, [file])
        except LogCorruptedError as error:
            logger.warning(
                "%s: batches of streams in version %d are not recognized if they are repeated: %s",
                context.url, file.version, error,
            )  # fmt: skip
