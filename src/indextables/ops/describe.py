"""DESCRIBE STATE and DESCRIBE TRANSACTION LOG: the state of a table, and the actions of its log as rows.

Credentials in table properties are redacted.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables._results import MOMENT, Column, iso, schema_of
from indextables.config.registry import SKIPPED_FILES_COOLDOWN_HOURS
from indextables.config.settings import FamilyMatch, SettingMatch, find
from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.actions import ACTION_NAMES, AnyAction, Metadata, TransactionAction
from indextables.log.decode import Tail, VersionSummary
from indextables.log.paths import version_key
from indextables.log.replay import DOC_MAPPING_PROPERTY_PREFIX, LogHeader
from indextables.log.segment import Base, VersionEntry, list_log
from indextables.state.compaction import CompactionRules, why_compaction_is_due
from indextables.state.source import StateSource
from indextables.state.state_manifest import StateManifest
from indextables.storage.redaction import REDACTED
from indextables.table import Snapshot, TableContext
from indextables.table.history import history_table, read_commits
from indextables.table.log_reader import read_base, read_tail

STATE_COLUMNS: Final = (
    Column("property", pa.string(), "the name of the property", nullable=False),
    Column("value", pa.string(), "its value as text; null: there is none"),
)
STATE_SCHEMA: Final = schema_of(STATE_COLUMNS)


_STATE_PROPERTIES: Final = (
    "numManifests",
    "numTombstones",
    "tombstoneRatio",
    "needs_compaction",
    "compaction_reason",
    "createdAt",
)

# How a column is searched; a tokenizer other than the default one follows in parentheses.
FULL_TEXT: Final = "full text"
_SEARCH_OF_KIND: Final = {
    "text": FULL_TEXT,
    "string": "exact value",
    "json": "values inside, by path",
    "ip": "address and network",
    "bool": "value",
    "bytes": "not searchable",
    "nothing": "not searchable",
}
_SEARCH_OF_RANGES: Final = "value and range"
_SEARCH_OF_PARTITIONS: Final = "partition value"

LOG_COLUMNS: Final = (
    Column("version", pa.int64(), "the version of the log file"),
    Column("log_file", pa.string(), "the log file, relative to the table"),
    Column("is_checkpoint", pa.bool_(), "whether the log file is a checkpoint"),
    Column(
        "action",
        pa.string(),
        "`protocol`, `metaData`, `add`, `remove`, `mergeskip`, `txn` or `commitInfo`; `unreadable` stands for a whole "
        "file, with the reason in `details`",
    ),
    Column("path", pa.string(), "the split that is added, removed or skipped"),
    Column("partition_values", pa.map_(pa.string(), pa.string()), "its partition"),
    Column("size", pa.int64(), "its bytes"),
    Column("num_records", pa.int64(), "its rows"),
    Column("data_change", pa.bool_(), "false if rows only move, as in a merge"),
    Column("timestamp", MOMENT, "when the split was written, removed or skipped, or the commit was made"),
    Column(
        "details", pa.string(), "the whole action as JSON, except for adds and removes; never credentials"
    ),
)
LOG_SCHEMA: Final = schema_of(LOG_COLUMNS)

UNREADABLE: Final = "unreadable"

_ENTRY_COLUMNS: Final = (
    "path",
    "partitionValues",
    "size",
    "numRecords",
    "dataChange",
    "modificationTime",
)
# Small actions come first in their file, whatever their line; adds and removes keep their order.
_SORT_KEYS: Final = [("version", "ascending"), ("is_checkpoint", "ascending"), ("sequence", "ascending")]
_FIRST: Final = -1
_SEQUENCE: Final = pa.field("sequence", pa.int64())

# Parts of property names that hold credentials in other systems.
_SECRET_WORDS: Final = (
    "accesskey",
    "access.key",
    "access_key",
    "accountkey",
    "account.key",
    "account_key",
    "bearer",
    "connectionstring",
    "credential",
    "passw",
    "privatekey",
    "sas",
    "secret",
    "token",
)


def describe_state(snapshot: Snapshot) -> pa.Table:
    """The state as properties and values, both strings. Properties that the format does not have are null.

    The table's name and description follow, if it has them, and every open skip: the property `openSkip.<path>` has the
    reason, the number of failed attempts and the time of the next one, as JSON.
    """
    segment = snapshot.segment
    properties: dict[str, object] = {
        "format": segment.base.format.value if segment.base is not None else "none",
        "version": snapshot.version,
        "numFiles": snapshot.num_files,
        "totalBytes": snapshot.total_bytes,
    }
    source = snapshot.source
    if isinstance(source, StateSource):
        properties |= _state_properties(snapshot, source.state)
    else:
        properties |= dict.fromkeys(_STATE_PROPERTIES)
    properties |= {
        "checkpointVersion": segment.base.version if segment.base is not None else None,
        "versionsSinceCheckpoint": len(segment.version_files),
        "protocolVersion": snapshot.protocol.min_reader_version,
        "openSkips": len(snapshot.header.skips),
        "gap": None
        if snapshot.gap is None
        else f"version {snapshot.gap.first_missing} is missing or unreadable, version {snapshot.gap.newest} exists",
    }
    metadata = snapshot.metadata
    named = {"name": metadata.name, "description": metadata.description}
    properties |= {name: value for name, value in named.items() if value is not None}
    properties |= _open_skips(snapshot)
    return pa.table(
        {
            "property": list(properties),
            "value": [None if value is None else str(value) for value in properties.values()],
        },
        schema=STATE_SCHEMA,
    )


def describe_history(snapshot: Snapshot, limit: int | None = None) -> pa.Table:
    """The commits up to the snapshot that the log still holds, newest first, at most `limit` of them."""
    commits = read_commits(snapshot.context, snapshot.version)
    return history_table(commits if limit is None else commits[-limit:] if limit > 0 else [])


def describe_log(snapshot: Snapshot, *, include_all: bool) -> pa.Table:
    """The actions of the snapshot's checkpoint and of the versions after it, in their order.

    With `include_all`, the actions of all version files, and a row with the error for each unreadable one; older
    checkpoints are not included. Raises LogCorruptedError if the checkpoint cannot be read or, without `include_all`,
    if a version cannot be read.
    """
    context, segment = snapshot.context, snapshot.segment
    parts = [_rows_with_sequence(_of_checkpoint(snapshot, segment.base))] if segment.base is not None else []
    if include_all:
        parts += _of_all_versions(context, list_log(context.store).version_files)
    else:
        parts += _of_versions(read_tail(context, segment.version_files))
    rows = pa.concat_tables(parts) if parts else LOG_SCHEMA.append(_SEQUENCE).empty_table()
    return rows.sort_by(_SORT_KEYS).drop_columns(["sequence"])


def column_search(snapshot: Snapshot) -> dict[str, str]:
    """How each column is searched, by its name. Raises InvalidOptionError for index settings that do not fit."""
    # Imports Tantivy, which nothing else here needs.
    from indextables.split.doc_mapping import DEFAULT, FieldKind
    from indextables.split.doc_mapping_settings import mapping_from_settings

    shape = snapshot.shape.checked()
    search = {field.name: _SEARCH_OF_PARTITIONS for field in shape.schema}
    for field in mapping_from_settings(shape, snapshot.context.settings):
        how = _SEARCH_OF_KIND.get(field.kind.value, _SEARCH_OF_RANGES)
        is_special = field.kind is FieldKind.TEXT and field.tokenizer != DEFAULT
        search[field.name] = f"{how} ({field.tokenizer})" if is_special else how
    return search


def shown_properties(configuration: Mapping[str, str]) -> dict[str, str]:
    """The properties sorted by key, with redacted credentials."""
    return {key: REDACTED if _is_secret(key) else configuration[key] for key in sorted(configuration)}


def is_doc_mapping(key: str) -> bool:
    """Whether a property belongs to the log's registry of doc mappings."""
    return key.startswith(DOC_MAPPING_PROPERTY_PREFIX)


def _state_properties(snapshot: Snapshot, state: StateManifest) -> dict[str, object]:
    rules = CompactionRules.from_settings(snapshot.context.settings)
    ratio = len(state.tombstones) / max(state.num_files, 1)
    reason = why_compaction_is_due(state, rules, snapshot.shape)
    values = (
        len(state.manifests),
        len(state.tombstones),
        f"{ratio:.2%}",
        str(reason is not None).lower(),
        reason,
        datetime.fromtimestamp(state.created_at_ms / 1000, UTC).isoformat(timespec="seconds"),
    )
    return dict(zip(_STATE_PROPERTIES, values, strict=True))


def _open_skips(snapshot: Snapshot) -> dict[str, str]:
    """The splits that merges could not read and leave alone for a while, by path."""
    cooldown_hours = snapshot.context.settings[SKIPPED_FILES_COOLDOWN_HOURS]
    skips = sorted(snapshot.header.skips.items())
    return {
        f"openSkip.{path}": msgspec.json.encode(
            {
                "reason": skip.reason,
                "skipCount": skip.skip_count,
                "retryAfter": iso(skip.retried_from_ms(cooldown_hours)),
            }
        ).decode()
        for path, skip in skips
    }


def _of_checkpoint(snapshot: Snapshot, base: Base) -> pa.Table:
    header, _ = read_base(snapshot.context, base)
    small = _small_rows(_actions_of_header(header), base.version, base.meta.key, is_checkpoint=True)
    entries = snapshot.source.load(None, _ENTRY_COLUMNS).entries
    versions = pa.array(np.full(entries.num_rows, base.version, dtype=np.int64))
    files = pa.array(np.full(entries.num_rows, base.meta.key, dtype=object), pa.string())
    return pa.concat_tables([small, _file_rows("add", entries, versions, files, is_checkpoint=True)])


def _rows_with_sequence(rows: pa.Table) -> pa.Table:
    return rows.append_column(_SEQUENCE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))


def _of_all_versions(context: TableContext, files: Sequence[VersionEntry]) -> list[pa.Table]:
    try:
        return _of_versions(read_tail(context, files))
    except (LogCorruptedError, ObjectNotFoundError):
        return [part for file in files for part in _of_one_version(context, file)]


def _of_one_version(context: TableContext, file: VersionEntry) -> list[pa.Table]:
    try:
        return _of_versions(read_tail(context, [file]))
    except (LogCorruptedError, ObjectNotFoundError) as error:
        row = {
            "version": file.version,
            "log_file": file.meta.key,
            "is_checkpoint": False,
            "action": UNREADABLE,
        }
        return [_rows_with_sequence(pa.Table.from_pylist([{**row, "details": str(error)}], LOG_SCHEMA))]


def _of_versions(tail: Tail) -> list[pa.Table]:
    small = [
        _small_rows(_actions_of_version(summary), summary.version, version_key(summary.version))
        for summary in tail.versions
    ]
    parts = [
        rows.append_column(_SEQUENCE, pa.array(np.full(rows.num_rows, _FIRST, dtype=np.int64)))
        for rows in small
    ]
    for action, rows, version in (("add", tail.adds, "addedAtVersion"), ("remove", tail.removes, "version")):
        versions = rows[version].combine_chunks()
        table = _file_rows(action, rows, versions, _keys(versions), is_checkpoint=False)
        parts.append(table.append_column(_SEQUENCE, rows["sequence"].cast(pa.int64())))
    return parts


def _keys(versions: pa.Array) -> pa.Array:
    known = pc.unique(versions)
    keys = pa.array([version_key(version) for version in known.to_pylist()], pa.string())
    return keys.take(pc.index_in(versions, value_set=known))


def _file_rows(
    action: str, rows: pa.Table, versions: pa.Array, files: pa.Array, *, is_checkpoint: bool
) -> pa.Table:
    count = rows.num_rows
    moment = "modificationTime" if action == "add" else "deletionTimestamp"
    is_add = "numRecords" in rows.column_names
    return pa.table(
        {
            "version": versions,
            "log_file": files,
            "is_checkpoint": pa.array(np.full(count, is_checkpoint)),
            "action": pa.array(np.full(count, action, dtype=object), pa.string()),
            "path": rows["path"],
            "partition_values": rows["partitionValues"],
            "size": rows["size"],
            "num_records": rows["numRecords"] if is_add else pa.nulls(count, pa.int64()),
            "data_change": rows["dataChange"],
            "timestamp": rows[moment].cast(pa.timestamp("ms", tz="UTC")),
            "details": pa.nulls(count, pa.string()),
        },
        schema=LOG_SCHEMA,
    )


class _SmallAction(msgspec.Struct, frozen=True):
    """An action other than add and remove, and its values that have a column of their own."""

    action: AnyAction
    path: str | None = None
    size: int | None = None
    timestamp_ms: int | None = None


def _actions_of_header(header: LogHeader) -> Iterable[_SmallAction]:
    for action in (header.protocol, header.metadata):
        if action is not None:
            yield _SmallAction(action)
    for skip in header.skips.values():
        yield _SmallAction(skip, skip.path, skip.size, skip.skip_timestamp)
    for app_id, version in header.transactions.items():
        yield _SmallAction(TransactionAction(app_id=app_id, version=version))


def _actions_of_version(summary: VersionSummary) -> Iterable[_SmallAction]:
    actions = summary.actions
    if actions.commit_info is not None:
        yield _SmallAction(actions.commit_info, timestamp_ms=actions.commit_info.timestamp)
    for action in (actions.protocol, actions.metadata):
        if action is not None:
            yield _SmallAction(action)
    for skip in actions.skips:
        yield _SmallAction(skip, skip.path, skip.size, skip.skip_timestamp)
    for transaction in actions.transactions:
        yield _SmallAction(transaction, timestamp_ms=transaction.last_updated)


def _small_rows(
    actions: Iterable[_SmallAction], version: int, key: str, *, is_checkpoint: bool = False
) -> pa.Table:
    rows: list[Mapping[str, Any]] = [
        {
            "version": version,
            "log_file": key,
            "is_checkpoint": is_checkpoint,
            "action": ACTION_NAMES[type(small.action)],
            "path": small.path,
            "size": small.size,
            "timestamp": small.timestamp_ms,
            "details": _json(small.action),
        }
        for small in actions
    ]
    return pa.Table.from_pylist(rows, LOG_SCHEMA)


def _json(action: AnyAction) -> str:
    if isinstance(action, Metadata):
        action = msgspec.structs.replace(
            action,
            configuration=shown_properties(action.configuration),
            format=msgspec.structs.replace(action.format, options=shown_properties(action.format.options)),
        )
    fields = msgspec.to_builtins(action)
    fields.pop("unknown", None)
    return msgspec.json.encode(fields).decode()


def _is_secret(key: str) -> bool:
    match find(key):
        case SettingMatch():
            return False
        case FamilyMatch(family):
            return family.secret
        case None:
            return any(word in key.lower() for word in _SECRET_WORDS) and not is_doc_mapping(key)
