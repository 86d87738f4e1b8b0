"""Checkpoints and states, whatever state they are in: to the last entry, or what is left of them."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.checkpoint import Checkpoint
from indextables.log.decode import NO_VERSIONS, LogFile, Tail, UnknownContent, decode_tail
from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.paths import JsonCheckpoint, JsonCheckpointPart, ManifestFile, parse_log_path
from indextables.log.replay import LogHeader
from indextables.log.segment import Base, BaseFormat
from indextables.ops.repair_lines import whole_lines
from indextables.ops.repair_report import Problem
from indextables.ops.repair_runs import Run, keyed, with_keys
from indextables.state.manifest_reader import read_manifest
from indextables.state.source import StateSource, with_foreign_columns_folded
from indextables.state.state_manifest import header_of, manifest_key, read_state_manifest
from indextables.storage import ObjectMeta
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

_UNREADABLE = (LogCorruptedError, ObjectNotFoundError)


class BrokenBase(msgspec.Struct, frozen=True):
    """A checkpoint that cannot be read to the last entry, and what is left of it.

    `run` has the entries that could be read as adds, and its tombstones as removes; `header` what it says of the table.
    """

    problem: Problem
    run: Run
    header: LogHeader | None = None


def read_whole_base(context: TableContext, base: Base) -> Checkpoint:
    """A checkpoint with all its entries. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.KEEP)
    entries = (
        source.load_for_rewrite() if isinstance(source, StateSource) else source.load(None, None).entries
    )
    return Checkpoint(header, with_keys(entries, context.url))


def read_base_paths(context: TableContext, base: Base) -> tuple[LogHeader, pa.ChunkedArray]:
    """The header of a checkpoint, and its live paths. Raises LogCorruptedError and ObjectNotFoundError."""
    header, source = read_base_uncached(context, base, UnknownContent.IGNORE)
    return header, with_keys(source.load(None, ["path"]).entries, context.url)["path"]


def salvage_base(
    context: TableContext, base: Base, metas: Sequence[ObjectMeta], error: Exception
) -> BrokenBase:
    """What is left of a checkpoint that cannot be read as a whole. `metas` are all files of the log."""
    problem = Problem(base.meta.key, str(error))
    header: LogHeader | None = None
    match base.format:
        case BaseFormat.AVRO_STATE:
            tail, header = _salvaged_state(context, base)
        case BaseFormat.JSON:
            tail = _salvaged_json(context, base, metas)
        case BaseFormat.PARQUET:
            tail = NO_VERSIONS
    return BrokenBase(problem, Run(base.version, base.version, keyed(tail, context.url), problem), header)


def loose_entries(context: TableContext, metas: Iterable[ObjectMeta]) -> Iterator[pa.Table]:
    """The entries of every manifest that can be read, whether a state refers to it or not."""
    for meta in metas:
        if isinstance(parse_log_path(meta.key), ManifestFile):
            entries = _manifest_entries(context, meta.key)
            if entries is not None:
                yield with_keys(entries, context.url)


def paths_of(runs: Iterable[Run]) -> pa.Array:
    """All paths that runs mention, each once."""
    chunks = [chunk for run in runs for chunk in run.paths.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _salvaged_state(context: TableContext, base: Base) -> tuple[Tail, LogHeader | None]:
    """The manifests of a state that can be read, without what its tombstones hide."""
    try:
        manifest = read_state_manifest(context.store, base)
        keys = [manifest_key(info.path, base.version) for info in manifest.manifests]
    except _UNREADABLE:
        return NO_VERSIONS, None
    found = [entries for key in keys if (entries := _manifest_entries(context, key)) is not None]
    entries = pa.concat_tables([FILE_ENTRY_SCHEMA.empty_table(), *found], promote_options="default")
    live = StateSource(context.store, manifest, 1).live(entries)
    return _as_tail(live, manifest.tombstones, base.version), header_of(manifest)


def _manifest_entries(context: TableContext, key: str) -> pa.Table | None:
    try:
        entries = read_manifest(context.store.get(key), name=f"{context.url}/{key}")
    except _UNREADABLE:
        return None
    return with_foreign_columns_folded(entries)


def _as_tail(entries: pa.Table, tombstones: pa.StringArray, version: int) -> Tail:
    """A state as actions: what it hides is removed first, and what it holds added after that."""
    count = len(tombstones)
    schema = NO_VERSIONS.removes.schema
    columns = {field.name: pa.nulls(count, field.type) for field in schema}
    columns["path"] = tombstones
    columns["version"] = pa.array(np.full(count, version, dtype=np.int64))
    columns["sequence"] = pa.array(np.arange(count, dtype=np.int64))
    sequence = pa.array(np.arange(count, count + entries.num_rows, dtype=np.int64))
    adds = entries.append_column(NO_VERSIONS.adds.schema.field("sequence"), sequence)
    return Tail((), adds, pa.table(columns, schema=schema))


def _salvaged_json(context: TableContext, base: Base, metas: Sequence[ObjectMeta]) -> Tail:
    """The lines of a JSON checkpoint, and of all parts of that version: whoever wrote them, they say the same."""
    files = [meta for meta in metas if _is_of_json_checkpoint(meta.key, base.version)]
    lines: list[LogFile] = []
    for meta in files:
        name = f"{context.url}/{meta.key}"
        try:
            data = context.store.get(meta.key)
        except ObjectNotFoundError:
            continue
        lines.append(LogFile(base.version, name, whole_lines(data, name), meta.last_modified_ms))
    return decode_tail(lines, UnknownContent.KEEP)


def _is_of_json_checkpoint(key: str, version: int) -> bool:
    path = parse_log_path(key)
    return isinstance(path, JsonCheckpoint | JsonCheckpointPart) and path.version == version
