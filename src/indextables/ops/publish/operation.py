"""PUBLISH writes a Delta log beside the log of the table: both lead to the same files, and share version numbers.

    commit of a version ──▶ its Delta commit, if absent ──▶ checkpoint now and then ──▶ old versions go

The published log is derived. It is written after the table's own commit, in the order of versions, by any writer: a
crash leaves it older, and the next publication goes on where it ended. It never shows a version that the table does not
keep: PURGE removes published versions before the splits that only these refer to.
"""

import logging
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import IndexTablesError, NotPublishableError, PublishedLogChangedError
from indextables.log.actions import COLUMN_MAPPING, DELETION_VECTORS
from indextables.log.segment import LogListing, list_log
from indextables.ops.publish import delta_actions
from indextables.ops.publish.delta_log import (
    check_own,
    read_published,
    remove_versions,
    write_checkpoint,
    write_commit,
)
from indextables.ops.publish.report import PublishFormat, PublishRequest, PublishResult
from indextables.split.parquet_footer import PARQUET_MAGIC
from indextables.storage import relative_key
from indextables.table import Snapshot, TableContext, changes_since, load_snapshot
from indextables.table.load import catch_up
from indextables.table.log_reader import read_summaries

logger = logging.getLogger(__name__)

# Readers of Delta read this many commits at most after a checkpoint.
_CHECKPOINT_INTERVAL: Final = 100

_FILE_COLUMNS: Final = ("path", "size", "partitionValues", "deletionVector")


def publish(snapshot: Snapshot, request: PublishRequest) -> PublishResult:
    """Bring the published log to the newest version of the table.

    The first publication starts with the oldest version that the table keeps. Published versions that the table no
    longer keeps are removed.

    These errors leave the published log at an older version: NotPublishableError if the table has something that Delta
    does not, PublishedLogChangedError if another engine or table has written to the log, and the errors of reading the
    table's versions.
    """
    assert request.format is PublishFormat.DELTA
    head = catch_up(snapshot).snapshot
    context, store = head.context, head.context.store
    published = read_published(store)
    before = published.newest
    if before > head.version:
        # Another writer has committed and published meanwhile.
        head = load_snapshot(context)
    if before > head.version:
        raise PublishedLogChangedError(
            f"{context.url}: version {before} is published as Delta, but the newest version of the table is "
            f"{head.version}; delete the folder _delta_log and publish again"
        )
    oldest = _oldest_kept(list_log(store), head.version)
    if before >= 0:
        check_own(store, before, head.metadata.id)
    is_continued = before >= oldest - 1 and before >= 0
    first = before + 1 if is_continued else oldest
    previous = load_snapshot(context, before) if is_continued and oldest <= before < head.version else None
    for version in range(first, head.version + 1):
        current = head if version == head.version else load_snapshot(context, version)
        _publish_version(current, previous)
        previous = current
    last_checkpoint = published.newest_checkpoint if is_continued else first
    if head.version - last_checkpoint >= _CHECKPOINT_INTERVAL:
        _write_checkpoint(head)
    num_trimmed = _trim(context, oldest)
    return PublishResult(
        table_path=context.url,
        format=request.format,
        version=head.version,
        first_version=read_published(store).oldest,
        num_published=head.version + 1 - first,
        num_trimmed=num_trimmed,
    )


def publish_after_commit(snapshot: Snapshot) -> None:
    """Publish a version that was just committed. Logs failures and never raises: the commit stands."""
    context = snapshot.context
    try:
        publish(snapshot, PublishRequest(PublishFormat.DELTA))
    except IndexTablesError as error:
        logger.warning("%s: version %d is not published as Delta: %s", context.url, snapshot.version, error)
    except Exception:
        # If this raised, the caller would take the commit for failed and write again.
        logger.exception("%s: version %d is not published as Delta", context.url, snapshot.version)


def trim_published(context: TableContext) -> None:
    """Remove the published versions that the table no longer keeps. Raises the errors of `publish`."""
    if read_published(context.store).newest >= 0:
        _trim(context, _oldest_kept(list_log(context.store), load_snapshot(context).version))


def _oldest_kept(listing: LogListing, newest: int) -> int:
    """The oldest version from which on the table keeps all versions."""
    oldest = newest
    while oldest > 0 and oldest in listing.versions:
        oldest -= 1
    # Version 0 needs no checkpoint before it, and neither do the versions after it.
    if oldest == 0 and 0 in listing.versions:
        return 0
    return min((version for version in listing.bases if oldest <= version <= newest), default=newest)


def _publish_version(current: Snapshot, previous: Snapshot | None) -> None:
    """Write the Delta commit of a version; without a previous version, one that the log can start with."""
    context, shape, metadata = current.context, current.shape, current.metadata
    protocol = delta_actions.protocol_action(current.protocol, shape)
    described = _metadata(current)
    info = _commit_info(current)
    actions = [{"commitInfo": info}]
    if previous is None or delta_actions.protocol_action(previous.protocol, previous.shape) != protocol:
        actions.append({"protocol": protocol})
    if previous is None or _metadata(previous) != described:
        actions.append({"metaData": described})
    files = {}
    if previous is not None:
        files = _changed_files(current, previous, info["timestamp"])
    elif current.version == 0:
        files = {"add": _adds(current, current.entries)}
    else:
        _write_checkpoint(current)
    write_commit(context.store, current.version, metadata.id, actions, files)


def _changed_files(current: Snapshot, previous: Snapshot, timestamp_ms: int) -> dict[str, pa.StructArray]:
    changes = changes_since(current, previous.version)
    gone = changes.removes["path"].combine_chunks()
    if DELETION_VECTORS in (current.protocol.reader_features or ()):
        # Delta tells files apart by path and vector: an add with another vector replaces nothing by itself.
        gone = pc.unique(pa.concat_arrays([gone, changes.adds["path"].combine_chunks()]))
    removed = previous.select_paths(gone.to_pylist(), _FILE_COLUMNS) if len(gone) else None
    data_change = not changes.adds.num_rows or bool(pc.any(changes.adds["dataChange"]).as_py())
    files = {}
    if removed is not None:
        files["remove"] = delta_actions.removes(
            removed, previous.shape, current.context.url, timestamp_ms, data_change=data_change
        )
    return {**files, "add": _adds(current, changes.adds)}


def _adds(snapshot: Snapshot, entries: pa.Table) -> pa.StructArray:
    _check_parquet(snapshot, entries)
    return delta_actions.adds(entries, snapshot.shape, snapshot.context.url)


def _check_parquet(snapshot: Snapshot, entries: pa.Table) -> None:
    """Raise NotPublishableError for splits of the JVM. The log nearly always tells them from ours."""
    start, end = entries["footerStartOffset"], entries["footerEndOffset"]
    # The JVM counts the bytes in front of the footer, and we count those of the rows.
    is_ours = pc.and_(pc.is_valid(end), pc.not_equal(entries["uncompressedSizeBytes"], start))
    doubtful = entries.filter(pc.invert(pc.fill_null(is_ours, False)))
    for path, size in zip(doubtful["path"].to_pylist(), doubtful["size"].to_pylist(), strict=True):
        key = relative_key(path, snapshot.context.url)
        end_of_file = snapshot.context.store.get_range(key, max(size - len(PARQUET_MAGIC), 0), size)
        if end_of_file != PARQUET_MAGIC:
            raise NotPublishableError(
                f"{snapshot.context.url}: {path} was written on the JVM and is no Parquet file; rewrite such "
                f"splits with MERGE SPLITS"
            )


def _write_checkpoint(snapshot: Snapshot) -> None:
    write_checkpoint(
        snapshot.context.store,
        snapshot.version,
        delta_actions.protocol_action(snapshot.protocol, snapshot.shape),
        _metadata(snapshot),
        _adds(snapshot, snapshot.entries),
    )


def _trim(context: TableContext, oldest: int) -> int:
    published = read_published(context.store)
    if published.oldest >= oldest or published.newest < oldest:
        return 0
    if oldest not in published.checkpoints:
        _write_checkpoint(load_snapshot(context, oldest))
    return remove_versions(context.store, published, oldest)


def _metadata(snapshot: Snapshot) -> dict[str, Any]:
    has_column_mapping = COLUMN_MAPPING in (snapshot.protocol.reader_features or ())
    return delta_actions.metadata_action(
        snapshot.metadata, snapshot.shape, has_column_mapping=has_column_mapping
    )


def _commit_info(snapshot: Snapshot) -> dict[str, Any]:
    listing = list_log(snapshot.context.store, from_version=snapshot.version)
    operation, timestamp_ms = None, snapshot.timestamp_ms
    if snapshot.version in listing.versions:
        [summary] = read_summaries(snapshot.context, [listing.version_file(snapshot.version)])
        operation = summary.actions.commit_info.operation if summary.actions.commit_info else None
    return delta_actions.commit_info(snapshot.metadata.id, snapshot.version, timestamp_ms, operation)
