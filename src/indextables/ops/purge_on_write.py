"""Purge-on-write: a purge as a part of writing, as the settings ask for it. It never fails the write."""

import logging

from msgspec.structs import replace

from indextables.config.registry import (
    PURGE_ON_WRITE_ENABLED,
    PURGE_ON_WRITE_SPLIT_RETENTION_HOURS,
    PURGE_ON_WRITE_TRIGGER_AFTER_MERGE,
    PURGE_ON_WRITE_TRIGGER_AFTER_WRITES,
    PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS,
)
from indextables.errors import IndexTablesError
from indextables.ops.cleanup import CleanupRules
from indextables.ops.purge import run_purge
from indextables.ops.purge_plan import purge_rules
from indextables.table import Snapshot

logger = logging.getLogger(__name__)


def purge_after_write(snapshot: Snapshot) -> None:
    """Purge if it is the turn of the version that was just committed.

    Every writer sees the same version numbers: of all writers of a table, only the one whose turn it is purges.
    """
    settings = snapshot.context.settings
    writes = settings[PURGE_ON_WRITE_TRIGGER_AFTER_WRITES]
    if settings[PURGE_ON_WRITE_ENABLED] and writes and snapshot.version % writes == 0:
        _purge(snapshot)


def purge_after_merge(snapshot: Snapshot) -> None:
    """Purge after a merge has committed, whoever asked for it, if the settings ask for that."""
    settings = snapshot.context.settings
    if settings[PURGE_ON_WRITE_ENABLED] and settings[PURGE_ON_WRITE_TRIGGER_AFTER_MERGE]:
        _purge(snapshot)


def _purge(snapshot: Snapshot) -> None:
    context, settings = snapshot.context, snapshot.context.settings
    try:
        rules = purge_rules(context, settings[PURGE_ON_WRITE_SPLIT_RETENTION_HOURS], None)
        log_rules = replace(
            CleanupRules.from_settings(settings),
            version_retention_hours=settings[PURGE_ON_WRITE_TX_LOG_RETENTION_HOURS],
        )
        report = run_purge(context, replace(rules, log_rules=log_rules), dry_run=False)
        if report.failures.num_rows:
            logger.warning(
                "%s: %d files could not be purged: %s",
                context.url, report.failures.num_rows, report.failures["error"][0].as_py(),
            )  # fmt: skip
        logger.info("%s: purged %d files", context.url, report.num_deleted)
    except IndexTablesError as error:
        logger.warning("%s: nothing was purged after version %d: %s", context.url, snapshot.version, error)
    except Exception:
        # Whatever it is: the commit stands, and a caller who saw an error would commit again.
        logger.exception("%s: nothing was purged after version %d", context.url, snapshot.version)
