"""What each statement answers with: columns with their types and meanings, in one place for code and documents."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec
import pyarrow as pa

MOMENT: Final = pa.timestamp("ms", tz="UTC")

FILE: Final = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("age_hours", pa.float64()),
        pa.field("is_deleted", pa.bool_()),
        pa.field("error", pa.string()),
    ]
)
FINDING: Final = pa.struct(
    [pa.field(name, pa.string()) for name in ("severity", "code", "object", "message", "remedy")]
)
PROBLEM: Final = pa.struct([pa.field("path", pa.string()), pa.field("reason", pa.string())])


class Status(Enum):
    """How a statement ended. What cannot be done at all raises an error instead.

    PARTIAL is fine, but for something that somebody may want to look at; FAILED is not.
    """

    SUCCESS = "SUCCESS"
    NO_ACTION = "NO_ACTION"
    DRY_RUN = "DRY_RUN"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"


class Column(msgspec.Struct, frozen=True):
    """A column of an answer, and what its values mean."""

    name: str
    type: pa.DataType
    meaning: str


Columns = tuple[Column, ...]


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema of an answer."""
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def answer(columns: Columns, row: Mapping[str, Any]) -> pa.Table:
    """An answer of one row. A column that the row leaves out is null."""
    schema = schema_of(columns)
    assert row.keys() <= set(schema.names)
    values = {name: row.get(name) for name in schema.names}
    return pa.Table.from_pylist(
        [{name: value.value if isinstance(value, Status) else value for name, value in values.items()}],
        schema,
    )


_TABLE_PATH: Final = Column("table_path", pa.string(), "the table")
_MESSAGE: Final = Column("message", pa.string(), "what happened, for people")

CHECKPOINT: Final = (
    _TABLE_PATH,
    Column("status", pa.string(), "`SUCCESS`"),
    Column(
        "previous_format", pa.string(), "the format of the newest checkpoint before; null: there was none"
    ),
    Column("new_format", pa.string(), "the format of the checkpoint: `avro-state`, `json` or `parquet`"),
    Column("version", pa.int64(), "the version that the checkpoint is of"),
    Column("num_files", pa.int64(), "the live splits"),
    Column("total_bytes", pa.int64(), "their size"),
    _MESSAGE,
)

STATE: Final = (
    Column("property", pa.string(), "its name; those that the format does not have are left out"),
    Column("value", pa.string(), "its value, as text"),
)

TRANSACTION_LOG: Final = (
    Column("version", pa.int64(), "the version that the file of the log is of"),
    Column("log_file", pa.string(), "the file, relative to the table"),
    Column(
        "is_checkpoint", pa.bool_(), "whether the file is a checkpoint; its actions are what it remembers"
    ),
    Column(
        "action",
        pa.string(),
        "`protocol`, `metaData`, `add`, `remove`, `mergeskip`, `txn` or `commitInfo`; `unreadable` stands for a whole "
        "file, with the reason under `details`",
    ),
    Column("path", pa.string(), "the split that is added, removed or skipped"),
    Column("partition_values", pa.map_(pa.string(), pa.string()), "its partition"),
    Column("size", pa.int64(), "its bytes"),
    Column("num_records", pa.int64(), "its rows"),
    Column("data_change", pa.bool_(), "false if rows only move, as in a merge"),
    Column("timestamp", MOMENT, "when the split was written, removed or skipped, or the commit was made"),
    Column("details", pa.string(), "the whole action as JSON, for all but adds and removes; no credentials"),
)

HISTORY: Final = (
    Column("version", pa.int64(), "the version"),
    Column("timestamp", MOMENT, "when it was committed"),
    Column("operation", pa.string(), "what the commit did; null: its writer does not say"),
    Column("operationParameters", pa.map_(pa.string(), pa.string()), "what it was asked for"),
    Column("operationMetrics", pa.map_(pa.string(), pa.int64()), "how much it changed"),
    Column("readVersion", pa.int64(), "the version that it was planned on"),
    Column("commitId", pa.string(), "its id"),
    Column("engineInfo", pa.string(), "who wrote it"),
)

MERGE_JOBS: Final = (
    Column("table_path", pa.string(), "the table"),
    Column("job_id", pa.string(), "the job"),
    Column("status", pa.string(), "`running`, `done`, `failed` or `cancelled`"),
    Column("started", MOMENT, "when a write started it"),
    Column("finished", MOMENT, "when it ended; null: it runs"),
    Column("groups", pa.int64(), "the groups of splits to merge; null: not planned yet"),
    Column("message", pa.string(), "how it went"),
)

DISK_CACHE: Final = (
    Column("cache_path", pa.string(), "the directory of the cache"),
    Column("num_entries", pa.int64(), "the indexes in it"),
    Column("size_bytes", pa.int64(), "their size"),
    Column("max_bytes", pa.int64(), "the size that they may reach together"),
    Column("least_recent_use", MOMENT, "when the entry was used that goes first; null: the cache is empty"),
    Column("most_recent_use", MOMENT, "when the cache was last used; null: the cache is empty"),
)

FLUSH: Final = (
    Column("cache_path", pa.string(), "the directory of the cache"),
    Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: it was empty"),
    Column("freed_bytes", pa.int64(), "the size of what was removed"),
    Column("num_entries_left", pa.int64(), "the entries that are in use, and stay"),
    _MESSAGE,
)

ENVIRONMENT: Final = (
    Column(
        "kind", pa.string(), "`runtime`, `library`, `setting`, `storage option` or `environment variable`"
    ),
    Column("name", pa.string(), "its name"),
    Column("value", pa.string(), "its value; `***` in place of everything that may be a credential"),
    Column("source", pa.string(), "of a setting: `option`, `session` or `default`"),
)

MERGE: Final = (
    _TABLE_PATH,
    Column(
        "status",
        pa.string(),
        "`SUCCESS`, `NO_ACTION`: nothing to merge, or `PARTIAL`: some splits were left out",
    ),
    Column("version", pa.int64(), "the commit; null: there was nothing to commit"),
    Column("merged_groups", pa.int64(), "the groups that were merged"),
    Column("source_splits", pa.int64(), "the splits that were merged"),
    Column("new_splits", pa.int64(), "what they became"),
    Column("rows", pa.int64(), "their rows"),
    Column("bytes_before", pa.int64(), "the size of the merged splits"),
    Column("bytes_after", pa.int64(), "the size of the new ones"),
    Column("skipped", pa.list_(PROBLEM), "splits that could not be read, and why; they stay"),
    Column("given_up", pa.list_(PROBLEM), "splits that were not merged after all, and why"),
    _MESSAGE,
)

PURGE: Final = (
    _TABLE_PATH,
    Column(
        "status",
        pa.string(),
        "`SUCCESS`, `NO_ACTION`: nothing to delete, `DRY_RUN`, or `FAILED`: some could not be deleted",
    ),
    Column("version", pa.int64(), "the newest version"),
    Column("num_checkpoints", pa.int64(), "checkpoints that no longer have to be kept"),
    Column("num_versions", pa.int64(), "version files that no longer have to be kept"),
    Column("num_manifests", pa.int64(), "files of the log that nothing refers to"),
    Column("num_removed_splits", pa.int64(), "splits that were removed from the table long enough ago"),
    Column("num_orphaned_splits", pa.int64(), "old split files that the log has never known"),
    Column("size_bytes", pa.int64(), "the size of all of these"),
    Column("num_deleted", pa.int64(), "how many of them are gone now"),
    Column("num_kept_for_time_travel", pa.int64(), "removed splits that stay: older versions show them"),
    Column("num_left_over", pa.int64(), "what the limit of one purge left for the next"),
    _MESSAGE,
    Column("files", pa.list_(FILE), "every file of these, one by one"),
)

TRUNCATE: Final = (
    _TABLE_PATH,
    Column("status", pa.string(), "`SUCCESS`, `NO_ACTION`: there was nothing older, or `DRY_RUN`"),
    Column("version", pa.int64(), "the version that is left"),
    Column("num_versions", pa.int64(), "older versions"),
    Column("num_checkpoints", pa.int64(), "their checkpoints"),
    Column("num_manifests", pa.int64(), "files of the log that nothing refers to then"),
    Column("size_bytes", pa.int64(), "the size of all of these"),
    _MESSAGE,
    Column("files", pa.list_(FILE), "every file of these, one by one"),
)

DROP_PARTITIONS: Final = (
    _TABLE_PATH,
    Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: no partition matches"),
    Column("version", pa.int64(), "the commit, or the newest version if there was nothing to drop"),
    Column("removed_files", pa.int64(), "the splits that were removed from the table"),
    Column("removed_bytes", pa.int64(), "their size"),
    _MESSAGE,
)

REPAIR: Final = (
    _TABLE_PATH,
    Column("location", pa.string(), "the table that the new log is of; null: none was written"),
    Column(
        "status",
        pa.string(),
        "`SUCCESS`, `NO_ACTION`: nothing is wrong with the log, or `PARTIAL`: something is lost or undecided",
    ),
    Column("version", pa.int64(), "the version of the new log"),
    Column("proven_version", pa.int64(), "the newest version that the old log still proves; null: none"),
    Column("newest_version", pa.int64(), "the newest version that a file of the old log bears witness of"),
    Column("num_files", pa.int64(), "the splits that the new log refers to"),
    Column("num_rows", pa.int64(), "their rows; null: a split does not say"),
    Column("total_bytes", pa.int64(), "their size"),
    Column("files_proven", pa.int64(), "those that the proven version has"),
    Column("files_salvaged", pa.int64(), "those that files of the log beyond what is lost name"),
    Column("files_described_by_themselves", pa.int64(), "those that no file of the log tells anything of"),
    Column("missing_splits", pa.list_(PROBLEM), "splits that the old log names and that are not there"),
    Column("unreadable_splits", pa.list_(PROBLEM), "splits that cannot be read, and why"),
    Column("left_out_splits", pa.list_(PROBLEM), "splits that are there and not in the new log, and why"),
    Column("unreadable_log_files", pa.list_(PROBLEM), "files of the old log that cannot be read, and why"),
    Column("undecided", pa.list_(pa.string()), "what nobody can know any more"),
    Column("damaged_log", pa.string(), "where the old log was put; null: it is where it was"),
    _MESSAGE,
)

INVALIDATE: Final = (
    Column("table_path", pa.string(), "the table; null: all tables"),
    Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: nothing was cached"),
    Column("num_entries", pa.int64(), "the cached values that were forgotten"),
    _MESSAGE,
)

FSCK: Final = (
    _TABLE_PATH,
    Column("status", pa.string(), "`SUCCESS`: nothing is wrong, `PARTIAL`: warnings, `FAILED`: errors"),
    Column("version", pa.int64(), "the newest version"),
    Column("versions_checked", pa.int64(), "the versions that can be read"),
    Column("checkpoints_checked", pa.int64(), "the checkpoints that were read"),
    Column("splits_checked", pa.int64(), "the live splits"),
    Column("num_errors", pa.int64(), "findings that mean lost or wrong data"),
    Column("num_warnings", pa.int64(), "findings that mean that something works by luck"),
    _MESSAGE,
    Column("findings", pa.list_(FINDING), "every finding, the worst first, each with its remedy"),
)

RESTORE: Final = (
    _TABLE_PATH,
    Column("status", pa.string(), "`SUCCESS`, or `NO_ACTION`: the table is as it was then"),
    Column("version", pa.int64(), "the commit, or the newest version if there was nothing to restore"),
    Column("restored_version", pa.int64(), "the version that the table is like now"),
    Column("num_files", pa.int64(), "the live splits"),
    Column("total_bytes", pa.int64(), "their size"),
    _MESSAGE,
)
