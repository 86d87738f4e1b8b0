"""The names of options: which are known, and other spellings of them.

A name that is not known is an error, because a misspelled `query` would read all rows. Names of the Python API work,
too: `partition_by` for `partitionBy`, `text` for the index type of columns, `version` for `versionAsOf`.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from indextables.config.registry import INDEXING_TYPEMAP
from indextables.config.settings import is_ours
from indextables.errors import InvalidOptionError
from indextables.spark.options import (
    COLUMNS,
    CONDITION,
    FAIL_ON_DATA_LOSS,
    IGNORE_CHANGES,
    IGNORE_DELETES,
    MAX_BYTES,
    MAX_FILES,
    MERGE_SCHEMA,
    OVERWRITE_MODE,
    PARTITION_BY,
    PATH,
    QUERY,
    QUERY_FIELDS,
    REPLACE_WHERE,
    SAVE_MODE,
    SEARCH,
    SESSION_PREFIX,
    SKIP_CHANGE_COMMITS,
    STARTING_TIMESTAMP,
    STARTING_VERSION,
    TIMESTAMP_AS_OF,
    TXN_APP_ID,
    TXN_VERSION,
    VERSION_AS_OF,
    WHERE,
    parse_names,
)

TEXT: Final = "text"

# Spark's own options of a stream, which it passes on to its sink.
STREAM_OPTIONS_OF_SPARK: Final = (
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
)

# Options that only this package sets. No message suggests them.
_INTERNAL: Final = (CONDITION, SAVE_MODE)
READER: Final = (PATH, COLUMNS, QUERY, QUERY_FIELDS, SEARCH, WHERE, VERSION_AS_OF, TIMESTAMP_AS_OF, CONDITION)
WRITER: Final = (
    PATH,
    PARTITION_BY,
    TEXT,
    REPLACE_WHERE,
    OVERWRITE_MODE,
    MERGE_SCHEMA,
    TXN_APP_ID,
    TXN_VERSION,
)
STREAM_READER: Final = (
    *READER, STARTING_VERSION, STARTING_TIMESTAMP, MAX_FILES, MAX_BYTES,
    FAIL_ON_DATA_LOSS, IGNORE_DELETES, IGNORE_CHANGES, SKIP_CHANGE_COMMITS,
)  # fmt: skip
STREAM_WRITER: Final = (PATH, PARTITION_BY, TEXT, REPLACE_WHERE, OVERWRITE_MODE, *STREAM_OPTIONS_OF_SPARK)
# The options of a view apply to reads of it and to INSERT INTO it, so a source cannot tell them apart.
ALL: Final = tuple(dict.fromkeys((*STREAM_READER, *WRITER, *STREAM_WRITER, SAVE_MODE)))

_OTHER_NAMES: Final[Mapping[str, str]] = {
    "version": VERSION_AS_OF,
    "timestamp": TIMESTAMP_AS_OF,
    "fields": QUERY_FIELDS,
}
# What Spark's catalog passes to the source of a table with a name, besides the options of the table.
_PROPERTIES_OF_CATALOGS: Final = frozenset(
    {"collation", "comment", "external", "is_managed_location", "location", "owner", "provider"}
)
_OPTIONS_OF_CATALOGS: Final = "option."
# Settings of stores, under the names of Hadoop.
_STORES: Final = ("fs.", "spark.hadoop.")


def options_of_source(options: Mapping[str, str]) -> dict[str, str]:
    """The options that Spark passes to a data source, as `known_options` returns them."""
    own = {
        key: value
        for key, value in options.items()
        if key.lower() not in _PROPERTIES_OF_CATALOGS and not key.lower().startswith(_OPTIONS_OF_CATALOGS)
    }
    return known_options(own, ALL)


def known_options(options: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Options under the names that the other modules look up, in lower case; `names` are those that apply.

    Settings of ours, of stores and of the session pass: `Settings` and the stores judge them. Raises InvalidOptionError
    for an unknown name, and for two names of one option with different values.
    """
    found: dict[str, str] = {}
    for given, value in options.items():
        for key, text in _spelled_out(given, value, names).items():
            if found.setdefault(key, text) != text:
                raise InvalidOptionError(
                    f"option {given} contradicts another name of it: {text!r}, {found[key]!r}"
                )
    return found


def _spelled_out(given: str, value: str, names: Collection[str]) -> dict[str, str]:
    lower = given.lower()
    if is_ours(lower) or lower.startswith((SESSION_PREFIX, *_STORES)):
        return {lower: value}
    plain = lower.replace("_", "")
    name = _OTHER_NAMES.get(plain, plain).lower()
    if name not in {each.lower() for each in names}:
        raise InvalidOptionError(f"unknown option {given!r}; {_remedy(name, names)}")
    if name == TEXT:
        return {f"{INDEXING_TYPEMAP.prefix}{column}".lower(): "text" for column in parse_names(value)}
    return {name: value}


def _remedy(name: str, names: Collection[str]) -> str:
    spelling = {each.lower(): each for each in names if each not in _INTERNAL}
    near = get_close_matches(name, spelling, n=1)
    if near:
        return f"did you mean {spelling[near[0]]!r}?"
    if name in {each.lower() for each in ALL}:
        return "it does not apply here; the options here are " + ", ".join(spelling.values())
    return (
        f"the options are {', '.join(spelling.values())}; settings begin with spark.indextables., and those of stores "
        f"with fs. or spark.hadoop."
    )
