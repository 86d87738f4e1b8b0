"""The options of DataFrame readers and writers, batch and streaming, parsed and checked.

Spark hands option keys over in lower case. A data source cannot see the session that it works for, so on a session
that `enable` prepared, the session's settings travel as options under SESSION_PREFIX.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from indextables._caching import shared_memo
from indextables.config import Settings
from indextables.config.kinds import Boolean, Names, Size
from indextables.config.setting import OLDER_PREFIX, PREFIX
from indextables.config.settings import FamilyMatch, SettingMatch, find, is_ours
from indextables.errors import InvalidOptionError
from indextables.log.actions import TransactionAction
from indextables.predicates import BoundPredicate, Predicate, bind, parse_predicate
from indextables.predicates.literals import timestamp_ms
from indextables.schema import find_column
from indextables.search.conditions import Condition, condition_from_json
from indextables.spark.releases import settings_of
from indextables.spark.session import ENABLED
from indextables.storage import ObjectStore, StoreLocation
from indextables.table import Snapshot, TableContext, load_snapshot
from indextables.table.commit import PURGE_APP_ID
from indextables.table.conflict import INDEXING_PREFIX
from indextables.table.history import version_at

SESSION_PREFIX: Final = "indextables.session."

# Readers and writers.
PATH: Final = "path"

# Readers.
COLUMNS: Final = "columns"
QUERY: Final = "query"
QUERY_FIELDS: Final = "queryFields"
SEARCH: Final = "search"
WHERE: Final = "where"
# A condition of several searches, as `condition_to_json` encodes it; `spark.sql` sets it for the search operators.
CONDITION: Final = "indextables.condition"
VERSION_AS_OF: Final = "versionAsOf"
TIMESTAMP_AS_OF: Final = "timestampAsOf"

# Stream readers.
STARTING_VERSION: Final = "startingVersion"
STARTING_TIMESTAMP: Final = "startingTimestamp"
LATEST: Final = "latest"
MAX_FILES: Final = "maxFilesPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
IGNORE_DELETES: Final = "ignoreDeletes"
IGNORE_CHANGES: Final = "ignoreChanges"
SKIP_CHANGE_COMMITS: Final = "skipChangeCommits"

# Writers.
PARTITION_BY: Final = "partitionBy"
REPLACE_WHERE: Final = "replaceWhere"
OVERWRITE_MODE: Final = "partitionOverwriteMode"
SAVE_MODE: Final = "saveMode"
MERGE_SCHEMA: Final = "mergeSchema"
TXN_APP_ID: Final = "txnAppId"
TXN_VERSION: Final = "txnVersion"

# Spark's own settings, which only an enabled session passes on.
SPECULATION: Final = "spark.speculation"
SESSION_OVERWRITE_MODE: Final = "spark.sql.sources.partitionOverwriteMode"
_PASSED_ON_PREFIXES: Final = (PREFIX, OLDER_PREFIX, "spark.hadoop.fs.")

# A table read for the first time may have a million splits: one batch must not take all of them.
DEFAULT_MAX_FILES: Final = 1000

_NOT_FOR_STREAMS: Final[Mapping[str, str]] = {
    VERSION_AS_OF: f"a stream does not stay at one version; set where it starts with {STARTING_VERSION}",
    TIMESTAMP_AS_OF: f"a stream does not stay at one timestamp; set where it starts with {STARTING_TIMESTAMP}",
    SEARCH: f"the rows of a stream have no scores; search with the option {QUERY} alone",
}


class TablePlace(msgspec.Struct, frozen=True):
    """A table's location and settings, picklable. Its repr shows no credentials."""

    location: StoreLocation
    settings: Settings

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TablePlace":
        """Read the table's path and settings from options. Raises InvalidOptionError."""
        own, session = _separate_session(options)
        path = own.get(PATH)
        if not path:
            raise InvalidOptionError(
                "the options have no path. Use .load(path), .save(path), or CREATE TEMPORARY VIEW v USING indextables "
                "OPTIONS (path '…'). Spark does not tell Python data sources where a table with a name is; tables "
                "with names work in spark.sql, spark.table, saveAsTable and insertInto of a session that is enabled: "
                "indextables.spark.enable(spark)"
            )
        location = StoreLocation.of(path, options={**session, **own})
        return cls(location, Settings.resolve(own, session=session))

    @property
    def url(self) -> str:
        return self.location.url

    def store(self) -> ObjectStore:
        """The table's store, opened once per process."""
        return _open_store(self.location)

    def context(self) -> TableContext:
        return TableContext(self.store(), self.settings, self.location)


class ReadOptions(msgspec.Struct, frozen=True):
    """The options of a reader, apart from the table's place. Only a search has a score."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    query: str | None = None
    query_fields: tuple[str, ...] = ()
    has_score: bool = False
    version: int | None = None
    timestamp: str | None = None
    condition: Condition | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ReadOptions":
        """Parse options, with keys in lower case. Raises InvalidOptionError."""
        version, timestamp = options.get(VERSION_AS_OF.lower()), options.get(TIMESTAMP_AS_OF.lower())
        if version is not None and timestamp is not None:
            raise InvalidOptionError(f"give {VERSION_AS_OF} or {TIMESTAMP_AS_OF}, not both")
        query, has_score = options.get(QUERY), _flag(options, SEARCH, default="false")
        condition = options.get(CONDITION)
        if has_score and query is None:
            raise InvalidOptionError(
                f"option {SEARCH} needs the option {QUERY}, such as {QUERY} 'title:spark': Spark may answer several "
                f"queries of a DataFrame or view with one scan, so a condition such as _query = '…' cannot search; "
                f"load the table, or create a view, for each search"
            )
        return cls(
            where=options.get(WHERE),
            columns=_columns(options),
            query=query,
            query_fields=parse_names(options.get(QUERY_FIELDS.lower(), "")),
            has_score=has_score,
            version=None if version is None else _integer(VERSION_AS_OF, version),
            timestamp=timestamp,
            condition=None if condition is None else condition_from_json(condition),
        )

    @property
    def is_search(self) -> bool:
        """Whether the index selects the rows."""
        return self.query is not None or self.condition is not None

    def at(self, version: int) -> "ReadOptions":
        """The same options for this version of the table."""
        return msgspec.structs.replace(self, version=version, timestamp=None)

    def predicate(self, schema: pa.Schema) -> BoundPredicate | None:
        """The option `where`, bound to the schema; None reads all rows. Raises InvalidPredicateError."""
        return None if self.where is None else bind(parse_predicate(self.where), schema)

    def snapshot(self, place: TablePlace) -> Snapshot:
        """Load the requested version of the table. Raises what `load_snapshot` raises."""
        context = place.context()
        if self.timestamp is None:
            return load_snapshot(context, self.version)
        newest = load_snapshot(context)
        return load_snapshot(context, version_at(context, newest.version, timestamp_ms(self.timestamp)))


class ReadLimits(msgspec.Struct, frozen=True):
    """Limits for one batch of a stream; None is unlimited. A single file may exceed `max_bytes`."""

    max_files: int | None = None
    max_bytes: int | None = None


NO_LIMITS: Final = ReadLimits()


class StreamOptions(msgspec.Struct, frozen=True):
    """The options of a stream reader. Without a start, the stream begins with all existing rows.

    `starting_version` is None, a number, or "latest". `change_feed.new_files` explains what is ignored and skipped.
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
        """Parse options, with keys in lower case. Raises InvalidOptionError."""
        for name, remedy in _NOT_FOR_STREAMS.items():
            if options.get(name.lower(), "false").lower() != "false":
                raise InvalidOptionError(f"option {name} does not work for streams: {remedy}")
        version, timestamp = options.get(STARTING_VERSION.lower()), options.get(STARTING_TIMESTAMP.lower())
        if version is not None and timestamp is not None:
            raise InvalidOptionError(f"give {STARTING_VERSION} or {STARTING_TIMESTAMP}, not both")
        if timestamp is not None and timestamp.strip().lower() == LATEST:
            version, timestamp = LATEST, None
        return cls(
            limits=_limits(options),
            starting_version=None if version is None else _starting_version(version),
            starting_timestamp=timestamp,
            fails_on_data_loss=_flag(options, FAIL_ON_DATA_LOSS, default="true"),
            ignores_deletes=_flag(options, IGNORE_DELETES, default="false"),
            ignores_changes=_flag(options, IGNORE_CHANGES, default="false"),
            skips_changes=_flag(options, SKIP_CHANGE_COMMITS, default="false"),
        )


class WriteOptions(msgspec.Struct, frozen=True):
    """The options of a writer, apart from the table's place.

    `partition_by` is None if the option is not set. `save_mode` is the requested mode where an enabled session replaced
    it, because Spark rejects it. A `transaction` makes a repeated write a no-op. `is_speculative` is False only if an
    enabled session says that speculation is off. `is_dynamic` comes from the call; `is_session_dynamic` comes from the
    session and applies if the call sets neither `partitionOverwriteMode` nor `replaceWhere`. With `merges_schema`, an
    append adds the columns that the table does not have.
    """

    partition_by: tuple[str, ...] | None = None
    replace_where: str | None = None
    is_dynamic: bool = False
    is_session_dynamic: bool = False
    save_mode: str | None = None
    transaction: TransactionAction | None = None
    is_speculative: bool = True
    merges_schema: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Parse options. Raises InvalidOptionError."""
        partition_by = options.get(PARTITION_BY.lower())
        is_dynamic = _is_dynamic(options, OVERWRITE_MODE)
        is_session_dynamic = _is_dynamic(options, f"{SESSION_PREFIX}{SESSION_OVERWRITE_MODE}")
        replace_where = options.get(REPLACE_WHERE.lower())
        if replace_where is not None and is_dynamic:
            raise InvalidOptionError(f"give {REPLACE_WHERE} or {OVERWRITE_MODE}=dynamic, not both")
        return cls(
            partition_by=None if partition_by is None else parse_names(partition_by),
            replace_where=replace_where,
            is_dynamic=bool(is_dynamic),
            is_session_dynamic=bool(is_session_dynamic) and is_dynamic is None and replace_where is None,
            save_mode=options.get(SAVE_MODE.lower()),
            transaction=_transaction(options),
            is_speculative=options.get(f"{SESSION_PREFIX}{SPECULATION}".lower()) != "false",
            merges_schema=_flag(options, MERGE_SCHEMA, default="false"),
        )

    def where(self) -> Predicate | None:
        """The partitions that an overwrite replaces; None replaces all. Raises InvalidPredicateError."""
        return None if self.replace_where is None else parse_predicate(self.replace_where)


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list, or a JSON array for names with commas. Raises InvalidOptionError."""
    if not text.strip().startswith("["):
        return Names().read(text)
    try:
        names = json.loads(text)
    except ValueError as error:
        raise InvalidOptionError(f"{text!r} is not a list of names: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidOptionError(f'{text!r} is not a list of names; write ["a", "b"]')
    return tuple(names)


def index_settings(options: Mapping[str, str], schema: pa.Schema) -> dict[str, str]:
    """The indexing options, which a new table stores so that later splits are indexed the same way.

    Keys get the case of the settings and of the table's columns.
    """
    own, session = _separate_session(options)
    found: dict[str, str] = {}
    for key, value in {**session, **own}.items():
        match = find(key) if is_ours(key) else None
        if isinstance(match, SettingMatch) and match.setting.key.startswith(INDEXING_PREFIX):
            found[match.setting.key] = value
        elif isinstance(match, FamilyMatch) and match.family.prefix.startswith(INDEXING_PREFIX):
            column = find_column(schema, match.ending)
            found[f"{match.family.prefix}{match.ending if column is None else column.name}"] = value
    return found


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The session settings that a data source needs: ours, Hadoop's file systems, speculation, overwrite mode."""
    settings = settings_of(spark)
    passed_on = {
        key: value
        for key, value in settings.items()
        if key != ENABLED and (key.startswith(_PASSED_ON_PREFIXES) or key == SESSION_OVERWRITE_MODE)
    }
    return {**passed_on, SPECULATION: settings.get(SPECULATION, "false")}


def as_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Session settings as options, under SESSION_PREFIX."""
    return {f"{SESSION_PREFIX}{key}": value for key, value in settings.items()}


@shared_memo("spark.options.stores", "open stores by location", max_entries=16)
def _open_store(location: StoreLocation) -> ObjectStore:
    return location.open()


def _separate_session(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the call itself, and the settings of its session."""
    lowered = {key.lower(): value for key, value in options.items()}
    session = {
        key.removeprefix(SESSION_PREFIX): value
        for key, value in lowered.items()
        if key.startswith(SESSION_PREFIX)
    }
    return {key: value for key, value in lowered.items() if not key.startswith(SESSION_PREFIX)}, session


def _columns(options: Mapping[str, str]) -> tuple[str, ...] | None:
    text = options.get(COLUMNS)
    names = None if text is None else parse_names(text)
    if names == ():
        raise InvalidOptionError(
            f"option {COLUMNS} is empty; name a column, or omit the option to read all columns"
        )
    return names


def _flag(options: Mapping[str, str], name: str, *, default: str) -> bool:
    text = options.get(name.lower(), default)
    try:
        return Boolean().read(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be true or false") from error


def _is_dynamic(options: Mapping[str, str], name: str) -> bool | None:
    """Whether an overwrite replaces only the partitions it has rows for; None if the option is not set."""
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
        raise InvalidOptionError(f"give both {TXN_APP_ID} and {TXN_VERSION}, or neither")
    if app_id == PURGE_APP_ID:
        raise InvalidOptionError(f"{TXN_APP_ID} {app_id!r} is reserved for purges; choose another name")
    return TransactionAction(app_id=app_id, version=_integer(TXN_VERSION, version))


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InvalidOptionError(f"option {name} is {text!r}, but must be an integer such as 3") from error


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


def _starting_version(text: str) -> int | str:
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
