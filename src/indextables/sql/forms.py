"""Every statement there is: its syntax, what it does and what it answers. Errors and documents are made from here.

In a syntax, words in capitals stand for themselves, in any case; `table` is a path in quotes or a table's name.
"""

from itertools import takewhile
from typing import Final

import msgspec

from indextables.sql import columns, statements
from indextables.sql.columns import Columns
from indextables.sql.heads import KEYWORDS, leading_words


class Form(msgspec.Struct, frozen=True):
    """The form of one statement. `example` is about a table in the directory `logs`, partitioned by `date`."""

    kind: type[statements.Statement]
    syntax: str
    meaning: str
    columns: Columns
    example: str

    @property
    def head(self) -> tuple[str, ...]:
        """The words that a statement of this form begins with."""
        return tuple(takewhile(lambda word: word.isalpha() and word.isupper(), self.syntax.split()))


FORMS: Final = (
    Form(
        statements.Checkpoint,
        "CHECKPOINT INDEXTABLES table",
        "Write the state of the newest version down in one place, so that readers start there instead of replaying "
        "the log. The format is that of the setting `spark.indextables.state.format`; a table in an older one is "
        "upgraded. A checkpoint that is there already stays.",
        columns.CHECKPOINT,
        "CHECKPOINT INDEXTABLES 'logs'",
    ),
    Form(
        statements.Compact,
        "COMPACT INDEXTABLES table",
        "Write the state anew, without tombstones and fragments. A state that is compact already stays; a state is "
        "never replaced, so that a version of its own may be committed for the new one.",
        columns.CHECKPOINT,
        "COMPACT INDEXTABLES 'logs'",
    ),
    Form(
        statements.DescribeState,
        "DESCRIBE INDEXTABLES STATE table",
        "What the state looks like, and whether it needs attention: format, version, files, manifests, tombstones, "
        "`needs_compaction`, versions since the checkpoint, protocol, gaps in the log.",
        columns.STATE,
        "DESCRIBE INDEXTABLES STATE 'logs'",
    ),
    Form(
        statements.DescribeTransactionLog,
        "DESCRIBE INDEXTABLES TRANSACTION LOG table [INCLUDE ALL]",
        "The actions of the log, in their order: those of the checkpoint that a reader starts from, and of the "
        "versions after it; with `INCLUDE ALL`, of all version files that are still there.",
        columns.TRANSACTION_LOG,
        "DESCRIBE INDEXTABLES TRANSACTION LOG 'logs' INCLUDE ALL",
    ),
    Form(
        statements.DescribeHistory,
        "DESCRIBE INDEXTABLES HISTORY table",
        "The commits that the log still holds, newest first.",
        columns.HISTORY,
        "DESCRIBE INDEXTABLES HISTORY 'logs'",
    ),
    Form(
        statements.MergeSplits,
        "MERGE SPLITS table [WHERE condition] [TARGET SIZE size] [MAX DEST SPLITS n] "
        "[MAX SOURCE SPLITS PER MERGE n]",
        "Merge the small splits of each partition into larger ones, in one commit that changes no row. Splits of the "
        "target size, such as `100M` or `1G`, are left alone. `WHERE` selects partitions, `MAX DEST SPLITS` limits the "
        "new splits, `MAX SOURCE SPLITS PER MERGE` what becomes one of them. The clauses come in any order.",
        columns.MERGE,
        "MERGE SPLITS 'logs' WHERE date >= '2026-01-01' TARGET SIZE 100M MAX DEST SPLITS 10",
    ),
    Form(
        statements.Purge,
        "PURGE INDEXTABLE table [OLDER THAN n DAYS|HOURS] [TRANSACTION LOG RETENTION n DAYS|HOURS] [DRY RUN]",
        "Delete what no version that is kept refers to and what is old enough: splits, versions, checkpoints, "
        "manifests. Without retentions the table's settings decide. Before splits go that nobody has committed, a "
        "version is committed that says so. `DRY RUN` only lists.",
        columns.PURGE,
        "PURGE INDEXTABLE 'logs' OLDER THAN 7 DAYS TRANSACTION LOG RETENTION 30 DAYS DRY RUN",
    ),
    Form(
        statements.TruncateTimeTravel,
        "TRUNCATE INDEXTABLES TIME TRAVEL table [DRY RUN]",
        "Delete all versions before the newest one, after a checkpoint of it was written: older versions cannot be "
        "read any more. Splits that only they showed go with the next purge. `DRY RUN` only lists.",
        columns.TRUNCATE,
        "TRUNCATE INDEXTABLES TIME TRAVEL 'logs' DRY RUN",
    ),
    Form(
        statements.DropPartitions,
        "DROP INDEXTABLES PARTITIONS FROM table WHERE condition",
        "Remove the partitions for which the condition is true, in one commit. It may name partition columns only, "
        "and compares by their types. The splits stay on disk until a purge, so that the drop can be undone with "
        "`RESTORE`.",
        columns.DROP_PARTITIONS,
        "DROP INDEXTABLES PARTITIONS FROM 'logs' WHERE date < '2026-01-31'",
    ),
    Form(
        statements.Restore,
        "RESTORE INDEXTABLES table TO VERSION n | TO TIMESTAMP 'moment'",
        "Make files, schema and properties what they were at a version or a moment such as "
        "`2026-01-31T12:00:00Z`, as a new commit: history stays as it is.",
        columns.RESTORE,
        "RESTORE INDEXTABLES 'logs' TO VERSION 1",
    ),
    Form(
        statements.Repair,
        "REPAIR INDEXFILES TRANSACTION LOG table [AT LOCATION 'path']",
        "Build a new log from everything that can still be read, for a table whose log is lost or damaged. It takes "
        "the place of the old one, which is kept in a folder beside it, unless nothing is wrong with that. With "
        "`AT LOCATION` the table is only read: its splits are copied to another place, and the new log is written "
        "there.",
        columns.REPAIR,
        "REPAIR INDEXFILES TRANSACTION LOG 'logs' AT LOCATION 'logs-repaired'",
    ),
    Form(
        statements.Fsck,
        "FSCK INDEXTABLES table [DEEP]",
        "Check a table: every version, every count, every split; with `DEEP`, every byte of the live splits. Nothing "
        "is changed.",
        columns.FSCK,
        "FSCK INDEXTABLES 'logs' DEEP",
    ),
    Form(
        statements.InvalidateLogCache,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE [FOR table]",
        "Forget what this process remembers of the log of one table or of all.",
        columns.INVALIDATE,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR 'logs'",
    ),
    Form(
        statements.FlushDiskCache,
        "FLUSH INDEXTABLES DISK CACHE",
        "Remove everything from this machine's cache of indexes that nobody is using.",
        columns.FLUSH,
        "FLUSH INDEXTABLES DISK CACHE",
    ),
    Form(
        statements.DescribeDiskCache,
        "DESCRIBE INDEXTABLES DISK CACHE",
        "How full this machine's cache of indexes is.",
        columns.DISK_CACHE,
        "DESCRIBE INDEXTABLES DISK CACHE",
    ),
    Form(
        statements.DescribeMergeJobs,
        "DESCRIBE INDEXTABLES MERGE JOBS",
        "The merges that writes of this process have started, oldest first.",
        columns.MERGE_JOBS,
        "DESCRIBE INDEXTABLES MERGE JOBS",
    ),
    Form(
        statements.DescribeEnvironment,
        "DESCRIBE INDEXTABLES ENVIRONMENT",
        "What statements run with here: releases, settings and where they come from. Values that may be credentials "
        "are not shown.",
        columns.ENVIRONMENT,
        "DESCRIBE INDEXTABLES ENVIRONMENT",
    ),
)


def nearest_forms(text: str) -> tuple[Form, ...]:
    """The forms that share the most first words with a text."""
    words = [
        _canonical(word.text) for word, _ in zip(leading_words(text), range(_LONGEST_HEAD), strict=False)
    ]
    shared = {form: _shared(words, form.head) for form in FORMS}
    return tuple(form for form in FORMS if shared[form] == max(shared.values()))


def _shared(words: list[str], head: tuple[str, ...]) -> int:
    pairs = zip(words, map(_canonical, head), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _canonical(word: str) -> str:
    """One spelling for all that stand for the same."""
    if word in (*KEYWORDS, "INDEXTABLE", "INDEXFILES"):
        return KEYWORDS[0]
    return "DESCRIBE" if word == "DESC" else word


_LONGEST_HEAD: Final = max(len(form.head) for form in FORMS)
