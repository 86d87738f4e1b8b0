"""Every error that IndexTables raises on purpose, named by its cause.

There is one class per cause that a caller may want to handle. Each message names the thing, the place and the
remedy. Errors of the libraries below are translated at the edge of the layer that calls them, and chained.

    IndexTablesError
    ├── InvalidOptionError (ValueError)
    ├── InvalidSchemaError (ValueError)
    ├── InvalidPredicateError (ValueError)
    ├── InvalidExpressionError (ValueError)
    ├── InvalidQueryError (ValueError)
    ├── InvalidStatementError (ValueError)
    ├── InvalidAggregationError (ValueError)
    ├── InvalidActionError (ValueError)
    ├── InvalidValueError (ValueError)
    ├── MissingExtraError (ImportError)
    ├── SparkUnavailableError
    ├── SparkFailedError
    ├── WorkerLostError
    ├── RowsChangedError
    ├── NotPublishableError
    ├── PublishedLogChangedError
    ├── StorageError
    │   ├── ObjectNotFoundError
    │   ├── AccessDeniedError
    │   ├── TransientStorageError
    │   ├── StorageTimeoutError
    │   ├── UnsupportedStoreError
    │   ├── UnsafePathError (ValueError)
    │   └── CheckpointWriteError
    ├── TableNotFoundError
    ├── TableAlreadyExistsError
    ├── ReadOnlyTableError
    ├── VersionNotFoundError
    ├── ConcurrentMaintenanceError
    ├── UnsupportedProtocolError
    ├── ProtocolUpgradeError
    ├── LogGapError
    ├── LogCorruptedError
    │   ├── CheckpointValidationError
    │   └── CheckpointCorruptionError
    │       └── ManifestCorruptedError
    ├── SearchFailedError
    ├── SplitCorruptedError
    │   └── DeletionVectorCorruptedError
    ├── UnsupportedSplitError
    ├── SplitWriteError
    ├── SplitsMissingError
    ├── IndexCacheError
    ├── CommitError
    │   ├── CommitConflictError
    │   ├── CommitRetriesExhaustedError
    │   └── CommitOutcomeUnknownError
    ├── CleanupFailedError
    ├── ClockSkewError
    └── OperationInterruptedError

The table protocols quote four error texts. They appear, in lower case, in the messages of these errors:
"No transaction log found" in TableNotFoundError and LogCorruptedError, "No metadata found" in LogCorruptedError,
"Failed to write transaction log version N - file already exists" in CommitRetriesExhaustedError, and
"Failed to read checkpoint at version N" in CheckpointCorruptionError and in the warning of a reader that falls back.
"""


class IndexTablesError(Exception):
    """The root of all errors that this package raises on purpose."""


# --- settings and input -------------------------------------------------------------------------------


class InvalidOptionError(IndexTablesError, ValueError):
    """An option or setting has an unknown name or an invalid value."""


class InvalidSchemaError(IndexTablesError, ValueError):
    """A schema cannot be stored, or does not match the schema of the table."""


class InvalidPredicateError(IndexTablesError, ValueError):
    """A predicate cannot be parsed, or names a column or value that the table does not have."""


class InvalidExpressionError(IndexTablesError, ValueError):
    """A SQL expression for a new value cannot be parsed, does not fit the table, or fails for a row."""


class InvalidQueryError(IndexTablesError, ValueError):
    """A search query cannot be parsed, or names a field or value that the table does not have.

    `position` is the offset of the mistake in the query text, from 0, or None if it has none.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidStatementError(IndexTablesError, ValueError):
    """A text is not a statement of IndexTables, or the statement cannot be parsed.

    `position` is the offset of the mistake in the text, from 0, or None if it has none.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidAggregationError(IndexTablesError, ValueError):
    """An aggregation does not fit its column, or would return more groups than the limit."""


class InvalidActionError(IndexTablesError, ValueError):
    """An action passed to a commit contradicts the table or itself."""


class InvalidValueError(IndexTablesError, ValueError):
    """A value in the data cannot be stored or indexed as its column requires."""


# --- Spark ---------------------------------------------------------------------------------------------


class MissingExtraError(IndexTablesError, ImportError):
    """An optional part of IndexTables needs a package that is not installed."""


class SparkUnavailableError(IndexTablesError):
    """Spark cannot start on this machine: Java, a package or a setting is missing."""


class SparkFailedError(IndexTablesError):
    """Spark is running, but a job failed."""


class WorkerLostError(IndexTablesError):
    """Spark gave up on a task because its executor or Python worker died or could not start."""


class RowsChangedError(IndexTablesError):
    """The source table of a stream lost or replaced rows that the stream may have emitted already."""


# --- published logs ---------------------------------------------------------------------------------------


class NotPublishableError(IndexTablesError):
    """The table has something that the format to publish it as cannot say."""


class PublishedLogChangedError(IndexTablesError):
    """Another engine, or another table, has written to a published log, which only PUBLISH may write."""


# --- object stores ------------------------------------------------------------------------------------


class StorageError(IndexTablesError):
    """The object store rejected or failed a request."""


class ObjectNotFoundError(StorageError):
    """The store has no object under this key."""


class AccessDeniedError(StorageError):
    """The store rejected the credentials, or none were given."""


class TransientStorageError(StorageError):
    """A time-out, reset, throttled request or server error: a retry may succeed.

    The outcome of a write that failed this way is unknown.
    """


class StorageTimeoutError(StorageError):
    """A read of several objects took longer than its setting allows."""


class UnsupportedStoreError(StorageError):
    """The store ignores put-if-absent, so two writers could overwrite each other's commits."""


class UnsafePathError(StorageError, ValueError):
    """A path leaves the root of the table, or is not a valid key."""


class CheckpointWriteError(StorageError):
    """A checkpoint or state could not be written. The table is unchanged, and readers use the previous one."""


# --- the table and its log ----------------------------------------------------------------------------


class TableNotFoundError(IndexTablesError):
    """There is no table at this path."""


class TableAlreadyExistsError(IndexTablesError):
    """There is already a table at this path, with another definition."""


class ReadOnlyTableError(IndexTablesError):
    """The table was opened at a fixed version or timestamp, so it can only be read."""


class VersionNotFoundError(IndexTablesError):
    """The caller asked for a version or a timestamp that the log does not hold (or no longer holds)."""


class ConcurrentMaintenanceError(IndexTablesError):
    """A concurrent purge, cleanup, truncate or repair removed files that a running operation needs.

    The operation changed nothing. Open the table again and retry.
    """


class UnsupportedProtocolError(IndexTablesError):
    """The table requires a protocol version or feature that this release does not support."""


class ProtocolUpgradeError(IndexTablesError):
    """A write would have to raise the table's protocol version, and the settings do not allow that."""


class LogGapError(IndexTablesError):
    """A version is missing in the middle of the log, or the newest one is unreadable: no version may follow it."""


class LogCorruptedError(IndexTablesError):
    """A file of the transaction log is damaged, or a file that readers cannot do without is missing."""


class CheckpointValidationError(LogCorruptedError):
    """A checkpoint is readable, but does not hold what it claims: another version, or fewer entries."""


class CheckpointCorruptionError(LogCorruptedError):
    """A checkpoint or state is damaged, truncated or incomplete."""


class ManifestCorruptedError(CheckpointCorruptionError):
    """A manifest or state manifest is damaged, truncated, over a size limit, or points outside the log."""


# --- search -------------------------------------------------------------------------------------------


class SearchFailedError(IndexTablesError):
    """The search library failed on an index: the index is damaged, or the request exceeds its limits."""


# --- splits -------------------------------------------------------------------------------------------


class SplitCorruptedError(IndexTablesError):
    """A split file is damaged, truncated, over a size limit, or not a split at all."""


class DeletionVectorCorruptedError(SplitCorruptedError):
    """The record of the deleted rows of a split is missing, damaged, or contradicts the log or the split."""


class UnsupportedSplitError(IndexTablesError):
    """A split was written in a newer format than this release can read."""


class SplitWriteError(IndexTablesError):
    """The index or the rows of a split could not be built on the local disk. No part of it was uploaded."""


class SplitsMissingError(IndexTablesError):
    """Splits that a version of the table refers to are missing from the store. `paths` lists all of them."""

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


class IndexCacheError(IndexTablesError):
    """The local cache of indexes cannot be used."""


# --- commits ------------------------------------------------------------------------------------------


class CommitError(IndexTablesError):
    """A transaction did not commit."""


class CleanupFailedError(IndexTablesError):
    """The commit or checkpoint of `version` stands, but the cleanup of the log after it failed. Do not commit again."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version

    def __reduce__(self) -> tuple[type["CleanupFailedError"], tuple[str, int]]:
        return type(self), (str(self), self.version)


class CommitConflictError(CommitError):
    """A concurrent commit conflicts with this transaction."""


class CommitRetriesExhaustedError(CommitError):
    """Concurrent commits took the next version in every try that the retry settings allow."""


class CommitOutcomeUnknownError(CommitError):
    """The store stopped answering: the commit may or may not have landed, and no file was deleted."""


# --- long operations ----------------------------------------------------------------------------------


class ClockSkewError(IndexTablesError):
    """The clocks of this machine and of the store differ too much to compare file ages."""


class OperationInterruptedError(IndexTablesError):
    """A long operation was cancelled before it finished."""
