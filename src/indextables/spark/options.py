"""What people say by the options of a DataFrame reader or writer.

Spark hands option keys over in lower case. On a session that `enable` has equipped, the session's own settings
come along under SESSION_PREFIX, because a data source cannot see the session that it works for.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

import msgspec
import pyarrow as pa

from indextables.config import Settings
from indextables.config.kinds import Boolean, Names, Size
from indextables.config.settings import FamilyMatch, SettingMatch, find, is_ours
from indextables.errors import InvalidOptionError
from indextables.log.actions import TransactionAction
from indextables.predicates import BoundPredicate, Predicate, bind, parse_predicate
from indextables.predicates.literals import timestamp_ms
from indextables.schema import find_column
from indextables.storage import ObjectStore, StoreLocation
from indextables.table import Snapshot, TableContext, load_snapshot
from indextables.table.commit import PURGE_APP_ID
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.history import version_at

SESSION_PREFIX: Final = "indextables.session."

PATH: Final = "path"
COLUMNS: Final = "columns"
QUERY: Final = "query"
QUERY_FIELDS: Final = "queryFields"
SEARCH: Final = "search"
WHERE: Final = "where"
SCAN_ID: Final = "indextables.scan"
VERSION_AS_OF: Final = "versionAsOf"
TIMESTAMP_AS_OF: Final = "timestampAsOf"
PARTITION_BY: Final = "partitionBy"
REPLACE_WHERE: Final = "replaceWhere"
OVERWRITE_MODE: Final = "partitionOverwriteMode"
SAVE_MODE: Final = "saveMode"
TXN_APP_ID: Final = "txnAppId"
TXN_VERSION: Final = "txnVersion"
# Spark's own settings, which only sessions tell.
SPECULATION: Final = "spark.speculation"
SESSION_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"


class TablePlace(msgspec.Struct, frozen=True):
    """Where a table is and by which settings, ready to be sent to another process. Shows no credentials."""

    location: StoreLocation
    settings: Settings

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TablePlace":
        """The table that the options name. Raises InvalidOptionError."""
        own, session = _by_source(options)
        path = own.get(PATH)
        if not path:
            raise InvalidOptionError(
                "the options name no path. Give one: .load(path), .save(path), or CREATE TEMPORARY VIEW v USING "
                "indextables OPTIONS (path '…'). Tables of a catalog (CREATE TABLE, saveAsTable, insertInto) do not "
                "work: Spark keeps their options from data sources in Python"
            )
        location = StoreLocation.of(path, options={**session, **own})
        return cls(location, Settings.resolve(own, session=session))

    @property
    def url(self) -> str:
        """The table's root, for messages."""
        return self.location.url

    def store(self) -> ObjectStore:
        """The store, opened once in each process."""
        return _opened(self.location)

    def context(self) -> TableContext:
        """How the table is reached from this process."""
        return TableContext(self.store(), self.settings, self.location)


class ReadOptions(msgspec.Struct, frozen=True):
    """What a reader is asked for, beside the place of the table.

    `scan_id` is one for everything that Spark may plan together; if `is_marked`, each scan of it has a filter.
    """

    scan_id: str
    is_marked: bool = False
    columns: tuple[str, ...] | None = None
    where: str | None = None
    query: str | None = None
    query_fields: tuple[str, ...] = ()
    has_search_columns: bool = False
    version: int | None = None
    timestamp: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], source_id: str) -> "ReadOptions":
        """The reader's options; `source_id` is that of the data source. Raises InvalidOptionError."""
        version, timestamp = options.get(VERSION_AS_OF.lower()), options.get(TIMESTAMP_AS_OF.lower())
        if version is not None and timestamp is not None:
            raise InvalidOptionError(f"give {VERSION_AS_OF} or {TIMESTAMP_AS_OF}, not both")
        scan_id = options.get(SCAN_ID)
        return cls(
            scan_id=scan_id or source_id,
            is_marked=bool(scan_id),
            where=options.get(WHERE),
            columns=_columns(options),
            query=options.get(QUERY),
            query_fields=names_of(options.get(QUERY_FIELDS.lower(), "")),
            has_search_columns=_switch(options, SEARCH),
            version=None if version is None else _whole_number(VERSION_AS_OF, version),
            timestamp=timestamp,
        )

    def predicate(self, schema: pa.Schema) -> BoundPredicate | None:
        """The rows that the option restricts a read to; None: all. Raises InvalidPredicateError."""
        return None if self.where is None else bind(parse_predicate(self.where), schema)

    def snapshot(self, place: TablePlace) -> Snapshot:
        """The table at the version that is asked for. Raises what `load_snapshot` raises."""
        context = place.context()
        if self.timestamp is None:
            return load_snapshot(context, self.version)
        newest = load_snapshot(context)
        return load_snapshot(context, version_at(context, newest.version, timestamp_ms(self.timestamp)))


class WriteOptions(msgspec.Struct, frozen=True):
    """What a writer is asked for, beside the place of the table.

    `partition_by` is None if nobody said anything. `save_mode` is what the user of an enabled session asked for,
    where Spark itself offers less. `transaction` is what makes a write that is repeated do nothing. That Spark does
    not speculate is known from enabled sessions alone. `is_dynamic` is what the call says about overwrites, and
    `is_session_dynamic` what is meant where neither it nor `replace_where` says anything.
    """

    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    is_dynamic: bool = False
    is_session_dynamic: bool = False
    save_mode: str | None = None
    transaction: TransactionAction | None = None
    is_speculative: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """The writer's options. Raises InvalidOptionError."""
        partition_by = options.get(PARTITION_BY.lower())
        is_dynamic = _is_dynamic(options, OVERWRITE_MODE)
        of_session = _is_dynamic(options, f"{SESSION_PREFIX}{SESSION_OVERWRITE_MODE}")
        replace_where = options.get(REPLACE_WHERE.lower())
        if replace_where is not None and is_dynamic:
            raise InvalidOptionError(f"give {REPLACE_WHERE} or {OVERWRITE_MODE}=dynamic, not both")
        return cls(
            partition_by=None if partition_by is None else names_of(partition_by),
            replace_where=replace_where,
            is_dynamic=bool(is_dynamic),
            is_session_dynamic=bool(of_session) and is_dynamic is None and replace_where is None,
            save_mode=options.get(SAVE_MODE.lower()),
            transaction=_transaction(options),
            is_speculative=options.get(f"{SESSION_PREFIX}{SPECULATION}".lower()) != "false",
        )

    def where(self) -> Predicate | None:
        """The partitions that an overwrite replaces; None: all. Raises InvalidPredicateError."""
        return None if self.replace_where is None else parse_predicate(self.replace_where)


def names_of(text: str) -> tuple[str, ...]:
    """Names separated by commas, or a JSON array of them where a name has a comma. Raises InvalidOptionError."""
    if not text.strip().startswith("["):
        return Names().read(text)
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InvalidOptionError(f"{text!r} is no list of names: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidOptionError(f'{text!r} is no list of names; write ["a", "b"]')
    return tuple(names)


def index_settings(options: Mapping[str, str], schema: pa.Schema) -> dict[str, str]:
    """The options that say how columns are indexed, as a new table keeps them: later splits must not differ.

    Keys are spelled as the settings and the columns are, whatever their case was.
    """
    own, session = _by_source(options)
    found: dict[str, str] = {}
    for key, value in {**session, **own}.items():
        match = find(key) if is_ours(key) else None
        if isinstance(match, SettingMatch) and match.setting.key.startswith(INDEXING_PREFIX):
            found[match.setting.key] = value
        elif isinstance(match, FamilyMatch) and match.family.prefix.startswith(INDEXING_PREFIX):
            column = find_column(schema, match.ending)
            found[f"{match.family.prefix}{match.ending if column is None else column.name}"] = value
    return found


def as_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of a session under the names by which a data source knows them from the options of a call."""
    return {f"{SESSION_PREFIX}{key}": value for key, value in settings.items()}


@lru_cache(maxsize=16)
def _opened(location: StoreLocation) -> ObjectStore:
    return location.open()


def _by_source(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options that belong to the call, and the settings of its session."""
    lowered = {key.lower(): value for key, value in options.items()}
    session = {
        key.removeprefix(SESSION_PREFIX): value
        for key, value in lowered.items()
        if key.startswith(SESSION_PREFIX)
    }
    return {key: value for key, value in lowered.items() if not key.startswith(SESSION_PREFIX)}, session


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    text = options.get(COLUMNS)
    names = None if text is None else names_of(text)
    if names == ():
        raise InvalidOptionError(f"option {COLUMNS} names no column; name one, or leave it out to read all")
    return names


def _switch(options: Mapping[str, str], name: str) -> bool:
    try:
        return Boolean().read(options.get(name.lower(), "false"))
    except ValueError as error:
        raise InvalidOptionError(
            f"option {name} is {options[name.lower()]!r}, but must be true or false"
        ) from error


def _is_dynamic(options: Mapping[str, str], name: str) -> bool | None:
    """Whether an overwrite replaces only partitions that rows come for; None if nothing is said about it."""
    mode = options.get(name.lower())
    if mode is None:
        return None
    if mode.lower() not in ("static", "dynamic"):
        shown = name.removeprefix(SESSION_PREFIX)
        raise InvalidOptionError(f"{shown} is {mode!r}, but must be static or dynamic")
    return mode.lower() == "dynamic"


def _transaction(options: Mapping[str, str]) -> TransactionAction | None:
    app_id, version = options.get(TXN_APP_ID.lower()), options.get(TXN_VERSION.lower())
    if not app_id and version is None:
        return None
    if not app_id or version is None:
        raise InvalidOptionError(f"give both {TXN_APP_ID} and {TXN_VERSION}, or none of them")
    if app_id == PURGE_APP_ID:
        raise InvalidOptionError(f"{TXN_APP_ID} {app_id!r} is what purges write under; choose another name")
    return TransactionAction(app_id=app_id, version=_whole_number(TXN_VERSION, version))


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOptionError(
            f"option {name} is {text!r}, but must be a whole number such as 3"
        ) from error


# What people say by the options of a streaming reader: where to start, how much at once, and what to put up
# with.


STARTING_VERSION: Final = "startingVersion"
STARTING_TIMESTAMP: Final = "startingTimestamp"
LATEST: Final = "latest"
MAX_FILES: Final = "maxFilesPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
IGNORE_DELETES: Final = "ignoreDeletes"
IGNORE_CHANGES: Final = "ignoreChanges"
SKIP_CHANGE_COMMITS: Final = "skipChangeCommits"

# A table that nobody has read yet may have a million splits: they do not come in one batch.
DEFAULT_MAX_FILES: Final = 1000

_NOT_FOR_STREAMS: Final[Mapping[str, str]] = {
    VERSION_AS_OF: f"a stream does not stand still at a version; say where it starts with {STARTING_VERSION}",
    TIMESTAMP_AS_OF: f"a stream does not stand still at a moment; say where it starts with {STARTING_TIMESTAMP}",
    SEARCH: "filters do not reach a stream; search with the option query",
}


class ReadLimits(msgspec.Struct, frozen=True):
    """How much one batch may hold; None: no limit. A single file may be larger than the limit in bytes."""

    max_files: int | None = None
    max_bytes: int | None = None


NO_LIMITS: Final = ReadLimits()


class StreamOptions(msgspec.Struct, frozen=True):
    """How a table is followed. Without a start, the stream begins with all rows that are there.

    `starting_version` is None, a number, or "latest". See `change_feed.new_files` for what is ignored and skipped.
    """

    limits: ReadLimits
    starting_version: int | str | None = None
    starting_timestamp: str | None = None
    fails_on_data_loss: bool = True
    ignores_deletes: bool = False
    ignores_changes: bool = False
    skips_changes: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "StreamOptions":
        """The stream's options; keys are in lower case. Raises InvalidOptionError."""
        for name, remedy in _NOT_FOR_STREAMS.items():
            if options.get(name.lower(), "false").lower() != "false":
                raise InvalidOptionError(f"the option {name} is not for streams: {remedy}")
        version, timestamp = options.get(STARTING_VERSION.lower()), options.get(STARTING_TIMESTAMP.lower())
        if version is not None and timestamp is not None:
            raise InvalidOptionError(f"give {STARTING_VERSION} or {STARTING_TIMESTAMP}, not both")
        if timestamp is not None and timestamp.strip().lower() == LATEST:
            version, timestamp = LATEST, None
        return cls(
            limits=_limits(options),
            starting_version=None if version is None else _version(version),
            starting_timestamp=timestamp,
            fails_on_data_loss=_stream_switch(options, FAIL_ON_DATA_LOSS, "true"),
            ignores_deletes=_stream_switch(options, IGNORE_DELETES, "false"),
            ignores_changes=_stream_switch(options, IGNORE_CHANGES, "false"),
            skips_changes=_stream_switch(options, SKIP_CHANGE_COMMITS, "false"),
        )


def _limits(options: Mapping[str, str]) -> ReadLimits:
    files, size = options.get(MAX_FILES.lower()), options.get(MAX_BYTES.lower())
    max_files = None if files is None else _positive(MAX_FILES, files, int)
    max_bytes = None if size is None else _positive(MAX_BYTES, size, Size().read)
    if max_files is None and max_bytes is None:
        max_files = DEFAULT_MAX_FILES
    return ReadLimits(max_files, max_bytes)


def _positive(name: str, text: str, read: Callable[[str], int]) -> int:
    try:
        number = read(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be a positive number") from error
    if number < 1:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be at least 1")
    return number


def _version(text: str) -> int | str:
    if text.strip().lower() == LATEST:
        return LATEST
    try:
        version = int(text)
    except ValueError as error:
        raise InvalidOptionError(
            f"option {STARTING_VERSION} is {text!r}, but must be a version such as 3, or {LATEST}"
        ) from error
    if version < 0:
        raise InvalidOptionError(f"option {STARTING_VERSION} is {version}, but versions start at 0")
    return version


def _stream_switch(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name.lower(), default)
    try:
        return Boolean().read(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be true or false") from error
