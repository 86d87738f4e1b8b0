"""The statements of IndexTables: their syntax, meaning and answers. Errors and docs/sql.md are made from here.

The first words of a text decide whether it is one of these statements, so Spark's own SQL is never touched. A text that
begins like one of them but is invalid gets an error with the position and the syntax, not a general error of Spark.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import msgspec

from indextables._results import Columns
from indextables.ops.checkpoint import CheckpointResult
from indextables.ops.columns import SchemaChangeResult
from indextables.ops.delete import DeleteResult
from indextables.ops.describe import LOG_COLUMNS, STATE_COLUMNS
from indextables.ops.fsck import FsckResult
from indextables.ops.merge import JOB_COLUMNS, MergeResult
from indextables.ops.prewarm import PrewarmResult
from indextables.ops.publish import PublishResult
from indextables.ops.purge import PurgeResult
from indextables.ops.repair import RepairResult
from indextables.ops.restore import RestoreResult
from indextables.ops.truncate import TruncateResult
from indextables.ops.update import UpdateResult
from indextables.ops.upsert import UpsertResult
from indextables.ops.write import DropPartitionsResult
from indextables.statements import nodes
from indextables.statements.commands.process import (
    ENVIRONMENT_COLUMNS,
    DiskCacheResult,
    FlushResult,
    InvalidateResult,
)
from indextables.table.history import HISTORY_COLUMNS

KEYWORDS: Final = ("INDEXTABLES", "TANTIVY4SPARK")

# The second word of a statement. INDEXTABLE for INDEXTABLES is a slip that still gets our error message.
_SECOND_WORDS: Final = frozenset({*KEYWORDS, "INDEXTABLE"})
_FIRST_WORDS: Final = frozenset(
    {
        "CHECKPOINT",
        "COMPACT",
        "PURGE",
        "TRUNCATE",
        "DROP",
        "INVALIDATE",
        "FLUSH",
        "FSCK",
        "RESTORE",
        "PREWARM",
        "MERGE",
        "REPAIR",
        "DELETE",
        "UPDATE",
        "ALTER",
        "PUBLISH",
    }
)
_PAIRS: Final = frozenset({("MERGE", "SPLITS"), ("REPAIR", "INDEXFILES")})

# Before a path in quotes. Before a name, it is a statement of Spark.
_ROW_CHANGES: Final = (("DELETE", "FROM"), ("UPDATE",), ("MERGE", "INTO"))
_ALTER: Final = ("ALTER", "TABLE")
# After these, `UPDATE indextables` is Spark's statement about a table or a path.
_IN_A_NAME: Final = frozenset({".", "SET", "AS"})
_QUOTES: Final = frozenset("'\"")

_DESCRIBE: Final = frozenset({"DESCRIBE", "DESC"})
# After these, `DESCRIBE INDEXTABLES` is Spark's statement about a table or schema of that name.
_AFTER_A_NAME: Final = frozenset({"", ";", ".", "PARTITION", "AS"})

_GAP: Final = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD: Final = re.compile(r"\w+")


class Form(msgspec.Struct, frozen=True):
    """The syntax, meaning and answer of one statement.

    In the syntax, words in capitals stand for themselves, in any case; `table` is a path in quotes or a table name. The
    `example` uses a table in the directory `logs`, partitioned by `date`.
    """

    kind: type[nodes.Statement]
    syntax: str
    meaning: str
    columns: Columns
    example: str

    @property
    def head(self) -> tuple[str, ...]:
        """The words that the statement begins with."""
        return tuple(takewhile(lambda word: word.isalpha() and word.isupper(), self.syntax.split()))


FORMS: Final = (
    Form(
        nodes.Checkpoint,
        "CHECKPOINT INDEXTABLES table",
        "Write a checkpoint of the newest version: readers start there instead of replaying the log. The setting "
        "`spark.indextables.state.format` selects the format; a table in an older format is upgraded. An existing "
        "checkpoint in the same format stays. It costs time in proportion to the change since the previous checkpoint. "
        "Cleanup then deletes what the checkpoint covers and its retention allows.",
        CheckpointResult.columns,
        "CHECKPOINT INDEXTABLES 'logs'",
    ),
    Form(
        nodes.Compact,
        "COMPACT INDEXTABLES table",
        "Write a checkpoint like CHECKPOINT, and rewrite the whole state: without tombstones and fragments, and sorted "
        "by partition. A compact state stays. A state is never replaced: if the newest version has one, an empty "
        "version is committed for the new state.",
        CheckpointResult.columns,
        "COMPACT INDEXTABLES 'logs'",
    ),
    Form(
        nodes.DescribeState,
        "DESCRIBE INDEXTABLES STATE table",
        "Describe the state of the log: format, version, files, manifests, tombstones, `needs_compaction` and the "
        "`compaction_reason`, versions since the checkpoint, protocol, gaps in the log, the table's name and "
        "description. Each split that merges could not read has a property `openSkip.<path>` with the reason, the "
        "number of attempts and the time of the next one.",
        STATE_COLUMNS,
        "DESCRIBE INDEXTABLES STATE 'logs'",
    ),
    Form(
        nodes.DescribeTransactionLog,
        "DESCRIBE INDEXTABLES TRANSACTION LOG table [INCLUDE ALL]",
        "List the actions of the log, in order: those of the checkpoint that readers start from, and of the versions "
        "after it; with `INCLUDE ALL`, of all version files in the log.",
        LOG_COLUMNS,
        "DESCRIBE INDEXTABLES TRANSACTION LOG 'logs' INCLUDE ALL",
    ),
    Form(
        nodes.DescribeHistory,
        "DESCRIBE INDEXTABLES HISTORY table",
        "List the commits that the log still holds, newest first.",
        HISTORY_COLUMNS,
        "DESCRIBE INDEXTABLES HISTORY 'logs'",
    ),
    Form(
        nodes.MergeSplits,
        "MERGE SPLITS table [WHERE condition] [TARGET SIZE size] [MAX DEST SPLITS n] "
        "[MAX SOURCE SPLITS PER MERGE n]",
        "Merge the small splits of each partition into larger ones, in one commit that changes no row. Splits of the "
        "target size, such as `100M` or `1G`, are left alone. `WHERE` selects partitions, `MAX DEST SPLITS` limits the "
        "number of new splits, `MAX SOURCE SPLITS PER MERGE` the number of splits that become one. The clauses may "
        "come in any order.",
        MergeResult.columns,
        "MERGE SPLITS 'logs' WHERE date >= '2026-01-01' TARGET SIZE 100M MAX DEST SPLITS 10",
    ),
    Form(
        nodes.Purge,
        "PURGE INDEXTABLE table [OLDER THAN n DAYS|HOURS] [TRANSACTION LOG RETENTION n DAYS|HOURS] [DRY RUN]",
        "Delete old files that no retained version refers to: splits, versions, checkpoints, manifests. Without "
        "retentions the table's settings decide. Before deleting uncommitted splits, the purge commits a marker "
        "version that stops late writers. `DRY RUN` only lists the files.",
        PurgeResult.columns,
        "PURGE INDEXTABLE 'logs' OLDER THAN 7 DAYS TRANSACTION LOG RETENTION 30 DAYS DRY RUN",
    ),
    Form(
        nodes.TruncateTimeTravel,
        "TRUNCATE INDEXTABLES TIME TRAVEL table [DRY RUN]",
        "Write a checkpoint of the newest version, and delete all versions before it. Time travel ends there. Splits "
        "that only older versions refer to stay until the next purge. `DRY RUN` only lists the files.",
        TruncateResult.columns,
        "TRUNCATE INDEXTABLES TIME TRAVEL 'logs' DRY RUN",
    ),
    Form(
        nodes.DropPartitions,
        "DROP INDEXTABLES PARTITIONS FROM table WHERE condition",
        "Remove the partitions for which the condition is true, in one commit. The condition may name partition "
        "columns only, and compares by their types. The splits stay in the store until a purge; until then `RESTORE` "
        "undoes the drop.",
        DropPartitionsResult.columns,
        "DROP INDEXTABLES PARTITIONS FROM 'logs' WHERE date < '2026-01-31'",
    ),
    Form(
        nodes.Delete,
        "DELETE FROM 'path' [WHERE condition] [MATCHING QUERY 'query'] [DRY RUN]",
        "Delete the rows for which the condition is true and that match the full-text query, in one commit; without "
        "both, all rows. The table is a path in quotes: `DELETE FROM` a name is a statement of Spark. Older versions "
        "keep the rows until a purge. `DRY RUN` only counts the rows.",
        DeleteResult.columns,
        "DELETE FROM 'logs' WHERE date < '2026-01-31' MATCHING QUERY 'timeout' DRY RUN",
    ),
    Form(
        nodes.Update,
        "UPDATE 'path' SET column = expression, … [WHERE condition] [MATCHING QUERY 'query'] [DRY RUN]",
        "Set columns of the rows for which the condition is true and that match the full-text query, in one commit; "
        "without both, of all rows. An expression sees the columns of the row. `DRY RUN` only counts the rows.",
        UpdateResult.columns,
        "UPDATE 'logs' SET date = concat('x', date) WHERE date < '2026-01-31' MATCHING QUERY 'timeout' DRY RUN",
    ),
    Form(
        nodes.MergeInto,
        "MERGE INTO 'path' [AS name] USING 'source' [AS name] ON name.column = name.column [AND …] "
        "{WHEN MATCHED [AND condition] THEN UPDATE SET (* | column = expression, …) | "
        "WHEN MATCHED [AND condition] THEN DELETE | "
        "WHEN NOT MATCHED [AND condition] THEN INSERT (* | (column, …) VALUES (expression, …))} [DRY RUN]",
        "Update, delete and insert rows by the rows of a source with the same keys, in one commit. The source is the "
        "path of a table, or of files that `indextables index` reads; without a name the two are called `target` and "
        "`source`. The first clause whose condition is true applies to a row. `*` takes the columns of the source. A "
        "null in a key matches nothing, and several rows of the source must not match the same row. `DRY RUN` only "
        "counts the rows.",
        UpsertResult.columns,
        "MERGE INTO 'logs' AS t USING 'logs' AS s ON t.date = s.date WHEN NOT MATCHED THEN INSERT * DRY RUN",
    ),
    Form(
        nodes.Alter,
        "ALTER TABLE 'path' ADD COLUMNS (column type [DEFAULT value] [COMMENT 'text'] [FIRST | AFTER column], …) "
        "| DROP COLUMNS (column, …) | RENAME COLUMN column TO name "
        "| ALTER COLUMN column [TYPE type] [DROP NOT NULL] [COMMENT 'text'] [FIRST | AFTER column]",
        "Change columns in one commit, without rewriting a split. A member of a struct is named with dots. The default "
        "is the value of the rows that are there. A type can become a wider one. In `spark.sql`, the table may also be "
        "a name, or a path in backticks after `indextables.`.",
        SchemaChangeResult.columns,
        "ALTER TABLE 'logs' ADD COLUMNS (status INT DEFAULT 200 COMMENT 'of the answer')",
    ),
    Form(
        nodes.Restore,
        "RESTORE INDEXTABLES table TO VERSION n | TO TIMESTAMP 'moment'",
        "Restore the files, the schema and the properties of an older version, or of a moment such as "
        "`2026-01-31T12:00:00Z`, as a new commit. The history stays.",
        RestoreResult.columns,
        "RESTORE INDEXTABLES 'logs' TO VERSION 1",
    ),
    Form(
        nodes.Repair,
        "REPAIR INDEXFILES TRANSACTION LOG table [AT LOCATION 'path']",
        "Build a new log from everything that can still be read, for a table whose log is lost or damaged. The new log "
        "replaces the old one, which is kept in a folder beside it; an intact log stays. With `AT LOCATION` the table "
        "is only read: its splits are copied to the location, and the new log is written there.",
        RepairResult.columns,
        "REPAIR INDEXFILES TRANSACTION LOG 'logs' AT LOCATION 'logs-repaired'",
    ),
    Form(
        nodes.Fsck,
        "FSCK INDEXTABLES table [DEEP]",
        "Check every version, count and split of a table; with `DEEP`, every byte of the live splits. Nothing is "
        "changed.",
        FsckResult.columns,
        "FSCK INDEXTABLES 'logs' DEEP",
    ),
    Form(
        nodes.Prewarm,
        "PREWARM INDEXTABLES table [FOR FIELDS (column, …)] [WHERE condition]",
        "Fetch indexes into the cache on local disk, so that the first searches find them there: those of all splits, "
        "or of the splits that may have rows for which the condition is true. `FOR FIELDS` fetches only what searches "
        "on these columns read. On Spark, the cache of every host with an executor is filled. The answer has one row "
        "per host. What has no room in the cache is left out: a prewarm evicts nothing that it has fetched itself.",
        PrewarmResult.columns,
        "PREWARM INDEXTABLES 'logs' FOR FIELDS (message) WHERE date >= '2026-01-01'",
    ),
    Form(
        nodes.Publish,
        "PUBLISH INDEXTABLES table AS DELTA",
        "Bring a Delta log in the table's folder up to date: other engines read the table as Delta Lake, without a "
        "copy. The first publication starts with the oldest version that the table keeps. Versions have the same "
        "numbers in both logs.",
        PublishResult.columns,
        "PUBLISH INDEXTABLES 'logs' AS DELTA",
    ),
    Form(
        nodes.InvalidateLogCache,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE [FOR table]",
        "Clear this process's cache of the logs of one table, or of all tables.",
        InvalidateResult.columns,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR 'logs'",
    ),
    Form(
        nodes.FlushDiskCache,
        "FLUSH INDEXTABLES DISK CACHE",
        "Remove all unused entries from the cache of indexes: of this host and, on Spark, of every host with an "
        "executor. The answer has one row per host.",
        FlushResult.columns,
        "FLUSH INDEXTABLES DISK CACHE",
    ),
    Form(
        nodes.DescribeDiskCache,
        "DESCRIBE INDEXTABLES DISK CACHE",
        "Describe the cache of indexes: of this host and, on Spark, of every host with an executor. The answer has one "
        "row per host.",
        DiskCacheResult.columns,
        "DESCRIBE INDEXTABLES DISK CACHE",
    ),
    Form(
        nodes.DescribeMergeJobs,
        "DESCRIBE INDEXTABLES MERGE JOBS",
        "List the merges that writes of this user on this machine started, those of Spark included, oldest first.",
        JOB_COLUMNS,
        "DESCRIBE INDEXTABLES MERGE JOBS",
    ),
    Form(
        nodes.DescribeEnvironment,
        "DESCRIBE INDEXTABLES ENVIRONMENT",
        "List the versions of libraries, the settings and their sources. Values that may be credentials are not shown.",
        ENVIRONMENT_COLUMNS,
        "DESCRIBE INDEXTABLES ENVIRONMENT",
    ),
)


def row_change_target(text: str) -> int | None:
    """Where the table stands in a text that begins like DELETE FROM, UPDATE or MERGE INTO; None for other texts."""
    words = [word for word, _ in zip(leading_words(text), range(3), strict=False)]
    for head in _ROW_CHANGES:
        if tuple(word.text for word in words[: len(head)]) == head and len(words) > len(head):
            return words[len(head)].start
    return None


def is_ours(text: str) -> bool:
    """Whether a text begins like a statement of IndexTables, valid or not."""
    words = leading_words(text)
    first, second, third = (next(words, Word("", len(text))).text for _ in range(3))
    if first in _DESCRIBE:
        return second in KEYWORDS and third not in _AFTER_A_NAME
    changed = row_change_target(text)
    if changed is not None and text[changed] in _QUOTES:
        return True
    if (first, second) == _ALTER:
        return third in _QUOTES
    if first == "UPDATE" and third in _IN_A_NAME:
        return False
    return (first in _FIRST_WORDS and second in _SECOND_WORDS) or (first, second) in _PAIRS


def is_select(text: str) -> bool:
    """Whether a text is a query, and not a statement."""
    words = (word.text for word in leading_words(text))
    return next((word for word in words if word != "("), "") in ("SELECT", "WITH")


def nearest_forms(text: str) -> tuple[Form, ...]:
    """The statements that share the most first words with a text, for error messages."""
    words = [
        _canonical(word.text) for word, _ in zip(leading_words(text), range(_LONGEST_HEAD), strict=False)
    ]
    shared = {form: _shared(words, form.head) for form in FORMS}
    return tuple(form for form in FORMS if shared[form] == max(shared.values()))


def _shared(words: list[str], head: tuple[str, ...]) -> int:
    pairs = zip(words, map(_canonical, head), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _canonical(word: str) -> str:
    """One spelling for all synonyms."""
    if word in (*KEYWORDS, "INDEXTABLE", "INDEXFILES"):
        return KEYWORDS[0]
    return "DESCRIBE" if word == "DESC" else word


class Word(msgspec.Struct, frozen=True):
    """A bare word in upper case, or another single character, and its position."""

    text: str
    start: int


def leading_words(text: str) -> Iterator[Word]:
    """The words of a text, without white space and comments."""
    position = 0
    while position < len(text):
        if gap := _GAP.match(text, position):
            position = gap.end()
        elif word := _WORD.match(text, position):
            yield Word(word[0].upper(), position)
            position = word.end()
        else:
            yield Word(text[position], position)
            position += 1


_LONGEST_HEAD: Final = max(len(form.head) for form in FORMS)
