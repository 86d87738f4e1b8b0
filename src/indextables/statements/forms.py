"""Whose statement a text is: its first words decide, so that Spark's own SQL is never touched.

Whatever begins like one of our statements is ours, mistakes and all: those get our error, with the place and the
syntax, and not a general one of Spark's about something that the user never meant.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

import msgspec

from indextables.statements import columns, nodes
from indextables.statements.columns import Columns

KEYWORDS: Final = ("INDEXTABLES", "TANTIVY4SPARK")

# The second word. A slip in the number is still meant for us.
_SECOND_WORDS: Final = frozenset({*KEYWORDS, "INDEXTABLE"})
_FIRST_WORDS: Final = frozenset(
    {"CHECKPOINT", "COMPACT", "PURGE", "TRUNCATE", "DROP", "INVALIDATE", "FLUSH", "FSCK", "RESTORE"}
)
_PAIRS: Final = frozenset(
    {("MERGE", "SPLITS"), *(("REPAIR", word) for word in ("INDEXFILES", *_SECOND_WORDS))}
)

_DESCRIBE: Final = frozenset({"DESCRIBE", "DESC"})
# Spark describes a table or a schema that happens to have our name.
_AFTER_A_NAME: Final = frozenset({"", ";", ".", "PARTITION", "AS"})

_GAP: Final = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD: Final = re.compile(r"\w+")


class Word(msgspec.Struct, frozen=True):
    """A bare word in upper case, or another single character, and where it begins."""

    text: str
    start: int


def is_ours(text: str) -> bool:
    """Whether a text begins like a statement of IndexTables."""
    words = leading_words(text)
    first, second, third = (next(words, Word("", len(text))).text for _ in range(3))
    if first in _DESCRIBE:
        return second in KEYWORDS and third not in _AFTER_A_NAME
    return (first in _FIRST_WORDS and second in _SECOND_WORDS) or (first, second) in _PAIRS


def leading_words(text: str) -> Iterator[Word]:
    """The words of a text, without white space and comments, up to where it ends."""
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


# Every statement there is: its syntax, what it does and what it answers. Errors and documents are made from
# here.
#
# In a syntax, words in capitals stand for themselves, in any case; `table` is a path in quotes or a table's
# name.


class Form(msgspec.Struct, frozen=True):
    """The form of one statement. `example` is about a table in the directory `logs`, partitioned by `date`."""

    kind: type[nodes.Statement]
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
        nodes.Checkpoint,
        "CHECKPOINT INDEXTABLES table",
        "Write the state of the newest version down in one place, so that readers start there instead of replaying "
        "the log. The format is that of the setting `spark.indextables.state.format`; a table in an older one is "
        "upgraded. A checkpoint that is there already stays.",
        columns.CHECKPOINT,
        "CHECKPOINT INDEXTABLES 'logs'",
    ),
    Form(
        nodes.Compact,
        "COMPACT INDEXTABLES table",
        "Write the state anew, without tombstones and fragments. A state that is compact already stays; a state is "
        "never replaced, so that a version of its own may be committed for the new one.",
        columns.CHECKPOINT,
        "COMPACT INDEXTABLES 'logs'",
    ),
    Form(
        nodes.DescribeState,
        "DESCRIBE INDEXTABLES STATE table",
        "What the state looks like, and whether it needs attention: format, version, files, manifests, tombstones, "
        "`needs_compaction`, versions since the checkpoint, protocol, gaps in the log.",
        columns.STATE,
        "DESCRIBE INDEXTABLES STATE 'logs'",
    ),
    Form(
        nodes.DescribeTransactionLog,
        "DESCRIBE INDEXTABLES TRANSACTION LOG table [INCLUDE ALL]",
        "The actions of the log, in their order: those of the checkpoint that a reader starts from, and of the "
        "versions after it; with `INCLUDE ALL`, of all version files that are still there.",
        columns.TRANSACTION_LOG,
        "DESCRIBE INDEXTABLES TRANSACTION LOG 'logs' INCLUDE ALL",
    ),
    Form(
        nodes.DescribeHistory,
        "DESCRIBE INDEXTABLES HISTORY table",
        "The commits that the log still holds, newest first.",
        columns.HISTORY,
        "DESCRIBE INDEXTABLES HISTORY 'logs'",
    ),
    Form(
        nodes.MergeSplits,
        "MERGE SPLITS table [WHERE condition] [TARGET SIZE size] [MAX DEST SPLITS n] "
        "[MAX SOURCE SPLITS PER MERGE n]",
        "Merge the small splits of each partition into larger ones, in one commit that changes no row. Splits of the "
        "target size, such as `100M` or `1G`, are left alone. `WHERE` selects partitions, `MAX DEST SPLITS` limits the "
        "new splits, `MAX SOURCE SPLITS PER MERGE` what becomes one of them. The clauses come in any order.",
        columns.MERGE,
        "MERGE SPLITS 'logs' WHERE date >= '2026-01-01' TARGET SIZE 100M MAX DEST SPLITS 10",
    ),
    Form(
        nodes.Purge,
        "PURGE INDEXTABLE table [OLDER THAN n DAYS|HOURS] [TRANSACTION LOG RETENTION n DAYS|HOURS] [DRY RUN]",
        "Delete what no version that is kept refers to and what is old enough: splits, versions, checkpoints, "
        "manifests. Without retentions the table's settings decide. Before splits go that nobody has committed, a "
        "version is committed that says so. `DRY RUN` only lists.",
        columns.PURGE,
        "PURGE INDEXTABLE 'logs' OLDER THAN 7 DAYS TRANSACTION LOG RETENTION 30 DAYS DRY RUN",
    ),
    Form(
        nodes.TruncateTimeTravel,
        "TRUNCATE INDEXTABLES TIME TRAVEL table [DRY RUN]",
        "Delete all versions before the newest one, after a checkpoint of it was written: older versions cannot be "
        "read any more. Splits that only they showed go with the next purge. `DRY RUN` only lists.",
        columns.TRUNCATE,
        "TRUNCATE INDEXTABLES TIME TRAVEL 'logs' DRY RUN",
    ),
    Form(
        nodes.DropPartitions,
        "DROP INDEXTABLES PARTITIONS FROM table WHERE condition",
        "Remove the partitions for which the condition is true, in one commit. It may name partition columns only, "
        "and compares by their types. The splits stay on disk until a purge, so that the drop can be undone with "
        "`RESTORE`.",
        columns.DROP_PARTITIONS,
        "DROP INDEXTABLES PARTITIONS FROM 'logs' WHERE date < '2026-01-31'",
    ),
    Form(
        nodes.Restore,
        "RESTORE INDEXTABLES table TO VERSION n | TO TIMESTAMP 'moment'",
        "Make files, schema and properties what they were at a version or a moment such as "
        "`2026-01-31T12:00:00Z`, as a new commit: history stays as it is.",
        columns.RESTORE,
        "RESTORE INDEXTABLES 'logs' TO VERSION 1",
    ),
    Form(
        nodes.Repair,
        "REPAIR INDEXFILES TRANSACTION LOG table [AT LOCATION 'path']",
        "Build a new log from everything that can still be read, for a table whose log is lost or damaged. It takes "
        "the place of the old one, which is kept in a folder beside it, unless nothing is wrong with that. With "
        "`AT LOCATION` the table is only read: its splits are copied to another place, and the new log is written "
        "there.",
        columns.REPAIR,
        "REPAIR INDEXFILES TRANSACTION LOG 'logs' AT LOCATION 'logs-repaired'",
    ),
    Form(
        nodes.Fsck,
        "FSCK INDEXTABLES table [DEEP]",
        "Check a table: every version, every count, every split; with `DEEP`, every byte of the live splits. Nothing "
        "is changed.",
        columns.FSCK,
        "FSCK INDEXTABLES 'logs' DEEP",
    ),
    Form(
        nodes.InvalidateLogCache,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE [FOR table]",
        "Forget what this process remembers of the log of one table or of all.",
        columns.INVALIDATE,
        "INVALIDATE INDEXTABLES TRANSACTION LOG CACHE FOR 'logs'",
    ),
    Form(
        nodes.FlushDiskCache,
        "FLUSH INDEXTABLES DISK CACHE",
        "Remove everything from this machine's cache of indexes that nobody is using.",
        columns.FLUSH,
        "FLUSH INDEXTABLES DISK CACHE",
    ),
    Form(
        nodes.DescribeDiskCache,
        "DESCRIBE INDEXTABLES DISK CACHE",
        "How full this machine's cache of indexes is.",
        columns.DISK_CACHE,
        "DESCRIBE INDEXTABLES DISK CACHE",
    ),
    Form(
        nodes.DescribeMergeJobs,
        "DESCRIBE INDEXTABLES MERGE JOBS",
        "The merges that writes of this process have started, oldest first.",
        columns.MERGE_JOBS,
        "DESCRIBE INDEXTABLES MERGE JOBS",
    ),
    Form(
        nodes.DescribeEnvironment,
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
