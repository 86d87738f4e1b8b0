"""Replay: a base and the versions after it give the header and the live files of a table. Pure, and columnar."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError
from indextables.log.actions import Metadata, ProtocolAction, SkipAction
from indextables.log.decode import Tail, VersionSummary
from indextables.log.entries import FILE_ENTRY_SCHEMA

DOC_MAPPING_PROPERTY_PREFIX = "docMappingSchema."

# The number of commit ids that a checkpoint keeps. A writer that stalled can look up whether its commit landed after
# its version file was cleaned up.
RECENT_COMMITS = 200


class LogHeader(msgspec.Struct, frozen=True):
    """The content of a table at `version` apart from its files.

    `timestamp_ms` never decreases from one version to the next, even if clocks run backwards. `doc_mappings` is the
    doc-mapping registry: it maps hashes to JSON. `skips` holds the open skip of each path, `transactions` the last
    batch of each streaming writer, `recent_commits` the ids of the newest commits by version. `has_unlogged_protocol`
    means that a checkpoint raised the protocol: the next transaction carries it, for clients that read no checkpoints.
    """

    version: int
    timestamp_ms: int
    protocol: ProtocolAction | None
    metadata: Metadata | None
    doc_mappings: Mapping[str, str] = msgspec.field(default_factory=dict)
    skips: Mapping[str, SkipAction] = msgspec.field(default_factory=dict)
    transactions: Mapping[str, int] = msgspec.field(default_factory=dict)
    recent_commits: Mapping[int, str] = msgspec.field(default_factory=dict)
    unknown_actions: tuple[str, ...] = ()
    has_unlogged_protocol: bool = False


EMPTY_HEADER = LogHeader(version=-1, timestamp_ms=0, protocol=None, metadata=None)


def registered_doc_mappings(metadata: Metadata | None) -> dict[str, str]:
    """The doc mappings, by hash, that a metaData action registers in its configuration."""
    if metadata is None:
        return {}
    return {
        key.removeprefix(DOC_MAPPING_PROPERTY_PREFIX): value
        for key, value in metadata.configuration.items()
        if key.startswith(DOC_MAPPING_PROPERTY_PREFIX)
    }


def replay_header(
    base: LogHeader, versions: Sequence[VersionSummary], removed: Mapping[str, int]
) -> LogHeader:
    """The header after `versions`. Replaying in one step or in several gives the same result.

    `removed` maps each path to the last of these versions that removes it. A remove closes earlier skips of the path:
    there is nothing left to retry.
    """
    if not versions:
        return base
    protocol, metadata, timestamp_ms = base.protocol, base.metadata, base.timestamp_ms
    skips = {path: skip for path, skip in base.skips.items() if path not in removed}
    doc_mappings, transactions = dict(base.doc_mappings), dict(base.transactions)
    recent_commits, unknown_actions = dict(base.recent_commits), list(base.unknown_actions)
    for version in versions:
        actions = version.actions
        timestamp_ms = max(timestamp_ms, version.timestamp_ms)
        protocol = actions.protocol or protocol
        metadata = actions.metadata or metadata
        doc_mappings |= registered_doc_mappings(actions.metadata)
        skips |= {s.path: s for s in actions.skips if removed.get(s.path, -1) < version.version}
        transactions |= {transaction.app_id: transaction.version for transaction in actions.transactions}
        unknown_actions += version.unknown_actions
        if actions.commit_info is not None:
            recent_commits[version.version] = actions.commit_info.commit_id
    return LogHeader(
        version=versions[-1].version,
        timestamp_ms=timestamp_ms,
        protocol=protocol,
        metadata=metadata,
        doc_mappings=doc_mappings,
        skips=skips,
        transactions=transactions,
        recent_commits=dict(sorted(recent_commits.items())[-RECENT_COMMITS:]),
        unknown_actions=tuple(unknown_actions),
        has_unlogged_protocol=base.has_unlogged_protocol
        and all(version.actions.protocol is None for version in versions),
    )


def check_partition_values(versions: Sequence[VersionSummary], metadata: Metadata | None, name: str) -> None:
    """Raise LogCorruptedError for an add without partitionValues in a partitioned table.

    Its rows would appear in the partition of nulls. An add with the field but without a key is valid: null is an absent
    key. `name` is of the table or of the checkpoint. In a history, each version is checked with the metadata of its
    time; `metadata` is for the first ones, if they have none themselves.
    """
    for version in versions:
        metadata = version.actions.metadata or metadata
        if version.without_partition_values and metadata is not None and metadata.partition_columns:
            raise LogCorruptedError(
                f"{name}: version {version.version} adds {version.without_partition_values[0]!r} without "
                f"partitionValues, but the table is partitioned by {', '.join(metadata.partition_columns)}; restore "
                f"the file from a backup, or rebuild the log with REPAIR INDEXFILES TRANSACTION LOG"
            )


def replay_entries(base: pa.Table, tail: Tail) -> pa.Table:
    """The live file entries after `tail`.

    The last action on a path wins: an add makes the path live with this entry and replaces an older entry, and a remove
    removes it. Removing a path that is not live has no effect.
    """
    if not tail.adds.num_rows and not tail.removes.num_rows:
        return base
    adds = _last_adds(tail)
    touched = pc.unique(_touched_paths(tail))
    is_touched = pc.is_in(base["path"], value_set=touched)
    # Most tails only add new paths. The base, which may be large, is not copied then.
    untouched = base.filter(pc.invert(is_touched)) if pc.any(is_touched).as_py() else base
    if not adds.num_rows:
        return untouched
    if not adds.schema.equals(FILE_ENTRY_SCHEMA):
        adds = adds.cast(FILE_ENTRY_SCHEMA)
    if not untouched.num_rows and untouched.schema.equals(FILE_ENTRY_SCHEMA):
        return adds
    return pa.concat_tables([untouched, adds], promote_options="default")


def removed_paths(tail: Tail) -> dict[str, int]:
    """The paths that a tail removes, with the last version that removes them. Some may be live again."""
    if not tail.removes.num_rows:
        return {}
    last = tail.removes.group_by("path", use_threads=False).aggregate([("version", "max")])
    return dict(zip(last["path"].to_pylist(), last["version_max"].to_pylist(), strict=True))


def _last_adds(tail: Tail) -> pa.Table:
    """The adds that no later action of the tail removes or replaces, in log order."""
    add_count = tail.adds.num_rows
    codes = _touched_paths(tail).combine_chunks().dictionary_encode().indices.to_numpy()
    sequence = np.concatenate([tail.adds["sequence"].to_numpy(), tail.removes["sequence"].to_numpy()])
    last = np.full(codes.max(initial=-1) + 1, -1, dtype=np.int64)
    np.maximum.at(last, codes, sequence)
    is_last = last[codes[:add_count]] == sequence[:add_count]
    # Usually every path is added once, and no copy is needed.
    adds = tail.adds if is_last.all() else tail.adds.filter(pa.array(is_last))
    return adds.drop_columns(["sequence"])


def _touched_paths(tail: Tail) -> pa.ChunkedArray:
    """The path of every add, then of every remove."""
    return pa.chunked_array([*tail.adds["path"].chunks, *tail.removes["path"].chunks], pa.string())
