"""Every error that IndexTables raises, named by its cause.

`IndexTablesError` is the root. There is one class per cause that a caller may want to handle; each message
is lower case and names the thing, the place and the remedy. Errors of the libraries below are translated
at the edge of the layer that calls them, and chained.
"""


class IndexTablesError(Exception):
    """The root of all errors raised on purpose by this package."""


# --- settings and input -------------------------------------------------------------------------------


class InvalidOptionError(IndexTablesError, ValueError):
    """An option or setting has a value, or a name, that cannot be accepted."""


class InvalidSchemaError(IndexTablesError, ValueError):
    """A schema cannot be stored, or does not fit the table's."""


class InvalidPredicateError(IndexTablesError, ValueError):
    """A predicate cannot be parsed, or names a column or value that the table does not have."""


class InvalidQueryError(IndexTablesError, ValueError):
    """A search query cannot be read, or names a field or value that the table does not have.

    `position` is where in the query's text, from 0; None if it has no place there.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidStatementError(IndexTablesError, ValueError):
    """A text is no statement of IndexTables, or one that cannot be read.

    `position` is where in the text, from 0; None if it has no place there.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class InvalidAggregationError(IndexTablesError, ValueError):
    """An aggregation does not fit its column, or asks for more groups than there may be."""


class InvalidActionError(IndexTablesError, ValueError):
    """An action handed to a commit contradicts the table or itself."""


class InvalidValueError(IndexTablesError, ValueError):
    """A value in the data cannot be stored or indexed as its column asks."""


# --- Spark ---------------------------------------------------------------------------------------------


class MissingExtraError(IndexTablesError, ImportError):
    """A package that an optional part of IndexTables needs is not installed."""


class SparkUnavailableError(IndexTablesError):
    """Spark cannot start on this machine, or lacks something that it needs."""


class SparkFailedError(IndexTablesError):
    """Spark runs, and did not do what it was asked for."""


class WorkerLostError(IndexTablesError):
    """Spark gave a task up: its executor, or the Python process on it, ended or could not start."""


class RowsChangedError(IndexTablesError):
    """A table that a stream follows lost or replaced rows, which the stream may have handed on already."""


# --- object stores ------------------------------------------------------------------------------------


class StorageError(IndexTablesError):
    """The object store refused or failed a call."""


class ObjectNotFoundError(StorageError):
    """There is no object under this key."""


class AccessDeniedError(StorageError):
    """The store rejected the credentials, or none were given."""


class TransientStorageError(StorageError):
    """Timeout, reset, throttling or a server error: the same call may succeed later.

    After a write that failed this way, its outcome is unknown.
    """


class StorageTimeoutError(StorageError):
    """A read of several objects took longer than its setting allows."""


class UnsupportedStoreError(StorageError):
    """The store ignores put-if-absent, so two writers could overwrite each other's commits."""


class UnsafePathError(StorageError, ValueError):
    """A path leaves the table's root, or cannot be used as a key."""


# --- the table and its log ----------------------------------------------------------------------------


class TableNotFoundError(IndexTablesError):
    """There is no table at this path."""


class TableAlreadyExistsError(IndexTablesError):
    """A table exists at this path already."""


class VersionNotFoundError(IndexTablesError):
    """This version, or a moment in time, is outside what the log still holds."""


class LogCorruptedError(IndexTablesError):
    """A file of the transaction log cannot be read as what its name says."""


class LogGapError(IndexTablesError):
    """A version file is missing in the middle of the log, so that nothing may be committed after it."""


class UnsupportedProtocolError(IndexTablesError):
    """The table asks for a protocol version or a feature that this release does not have."""


# --- the Avro state -----------------------------------------------------------------------------------


class ManifestCorruptedError(LogCorruptedError):
    """A manifest or state manifest is damaged, cut off, over a stated limit, or points outside the log."""


# --- search -------------------------------------------------------------------------------------------


class SearchFailedError(IndexTablesError):
    """The search library failed on an index: the index is damaged, or the request is beyond its limits."""


# --- splits -------------------------------------------------------------------------------------------


class SplitCorruptedError(IndexTablesError):
    """A split file is damaged, cut off, over a stated limit, or no split at all."""


class UnsupportedSplitError(IndexTablesError):
    """A split was written in a newer format than this release can read."""


class SplitWriteError(IndexTablesError):
    """A split's index or rows could not be built on the local disk; nothing of it was uploaded."""


class SplitsMissingError(IndexTablesError):
    """Splits that a version of the table needs are not there any more. `paths` names all of them."""

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths


class IndexCacheError(IndexTablesError):
    """The local cache of indexes cannot be used."""


# --- commits ------------------------------------------------------------------------------------------


class CommitError(IndexTablesError):
    """A transaction did not commit."""


class CleanupFailedError(IndexTablesError):
    """The transaction committed, as `version`, but the cleanup of the log after it failed. Do not retry the commit."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version

    def __reduce__(self) -> tuple[type["CleanupFailedError"], tuple[str, int]]:
        return type(self), (str(self), self.version)


class CommitConflictError(CommitError):
    """Another writer committed something that this transaction cannot be reconciled with."""


class CommitRetriesExhaustedError(CommitError):
    """Other writers were faster, as often as the retry settings allow."""


class CommitOutcomeUnknownError(CommitError):
    """The store stopped answering: the commit may or may not have landed, and nothing was deleted."""


# --- long operations ----------------------------------------------------------------------------------


class ClockSkewError(IndexTablesError):
    """The clocks of this machine and of the store are so far apart that ages cannot be told."""


class OperationInterruptedError(IndexTablesError):
    """Somebody stopped a long operation before it was done."""
