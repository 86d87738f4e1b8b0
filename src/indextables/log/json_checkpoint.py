"""JSON checkpoints: `<v>.checkpoint.json`, or above a size limit a manifest and its parts.

The manifest of a multi-part checkpoint is written last and if absent: it is the commit of the checkpoint.
"""

import uuid
from collections.abc import Sequence

import msgspec

from indextables.errors import LogCorruptedError
from indextables.log.add_lines import add_lines
from indextables.log.checkpoint import Checkpoint, build_checkpoint, header_lines
from indextables.log.codec import compress, decompress
from indextables.log.decode import LogFile, UnknownContent, decode_tail
from indextables.log.entries import empty_entries
from indextables.log.paths import (
    LOG_PREFIX,
    JsonCheckpointPart,
    json_checkpoint_key,
    json_checkpoint_part_name,
    parse_log_path,
)
from indextables.log.publishing import publish
from indextables.log.replay import removed_paths, replay_entries
from indextables.log.small_actions import scan_lines
from indextables.storage import ObjectMeta, ObjectStore, PutOutcome


class MultiPartManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `<v>.checkpoint.json` when the checkpoint is in parts."""

    version: int
    checkpoint_id: str
    parts: tuple[str, ...]
    created_time: int
    format: str = "json"


def read_json_checkpoint(
    store: ObjectStore, meta: ObjectMeta, version: int, unknown: UnknownContent
) -> Checkpoint:
    """A checkpoint, whole or in parts. Raises LogCorruptedError or ObjectNotFoundError.

    Older writers put every action since version 0 there, so the lines are replayed.
    """
    name = f"{store.url}/{meta.key}"
    lines = decompress(store.get(meta.key), name)
    manifest = _manifest(lines)
    if manifest is None:
        files = [LogFile(version, name, lines, meta.last_modified_ms)]
    else:
        _check_parts(manifest, version, name)
        files = [_read_part(store, part, version, meta.last_modified_ms) for part in manifest.parts]
    tail = decode_tail(files, unknown)
    entries = replay_entries(empty_entries(), tail)
    return build_checkpoint(tail.versions, entries, version, name, removed=removed_paths(tail))


def read_part_names(store: ObjectStore, meta: ObjectMeta) -> tuple[str, ...]:
    """The files that a checkpoint refers to: none, unless it is in parts.

    Raises LogCorruptedError if that cannot be told, and ObjectNotFoundError.
    """
    name = f"{store.url}/{meta.key}"
    lines = decompress(store.get(meta.key), name)
    manifest = _manifest(lines)
    if manifest is not None:
        return manifest.parts
    if scan_lines(name, lines).actions.metadata is None:
        raise LogCorruptedError(f"{name}: is neither a checkpoint nor the list of its parts")
    return ()


def write_json_checkpoint(
    store: ObjectStore, checkpoint: Checkpoint, *, max_part_bytes: int, created_ms: int
) -> int | None:
    """Write a checkpoint if there is none of this version yet; a loser's is thrown away.

    Returns the number of parts, or None for a checkpoint that is one file. Nobody sees anything of it before it
    is complete. After a StorageError, which is also raised for a write that took very long, parts may be left over,
    which no manifest refers to.
    """
    version = checkpoint.header.version
    adds = add_lines(checkpoint.entries)
    head = header_lines(checkpoint.header, checkpoint.entries.num_rows)
    if len(head) + len(adds) <= max_part_bytes:
        store.put_if_absent(json_checkpoint_key(version), compress(head + adds))
        return None

    checkpoint_id, started_ms = uuid.uuid4().hex, store.clock.now_ms()
    names: list[str] = []
    for number, part in enumerate([head, *_cut(adds, max_part_bytes)], start=1):
        names.append(json_checkpoint_part_name(version, checkpoint_id, number))
        store.put(LOG_PREFIX + names[-1], compress(part))
    manifest = MultiPartManifest(
        version=version, checkpoint_id=checkpoint_id, parts=tuple(names), created_time=created_ms
    )
    key, data = json_checkpoint_key(version), msgspec.json.encode(manifest)
    # A client that repeats a write of its own finds it there: only a manifest that is not ours is a lost race.
    if publish(store, key, data, version, started_ms) is PutOutcome.EXISTS and store.get(key) != data:
        store.delete_many(LOG_PREFIX + name for name in names)
    return len(names)


def _manifest(lines: bytes) -> MultiPartManifest | None:
    """The manifest, if that is what the lines are."""
    try:
        return msgspec.json.decode(lines, type=MultiPartManifest)
    except (ValueError, RecursionError):
        return None


def _check_parts(manifest: MultiPartManifest, version: int, name: str) -> None:
    """Every part belongs to this checkpoint, by its name, and so nothing else is ever read in its place."""
    if manifest.version != version:
        raise LogCorruptedError(f"{name}: lists the parts of version {manifest.version}, not of {version}")
    for part in manifest.parts:
        match parse_log_path(LOG_PREFIX + part):
            case JsonCheckpointPart(part_version, checkpoint_id) if (
                part_version == version and checkpoint_id == manifest.checkpoint_id
            ):
                continue
            case _:
                raise LogCorruptedError(f"{name}: {part!r} is not the name of one of its parts")


def _read_part(store: ObjectStore, file_name: str, version: int, modified_ms: int) -> LogFile:
    key = LOG_PREFIX + file_name
    name = f"{store.url}/{key}"
    return LogFile(version, name, decompress(store.get(key), name), modified_ms)


def _cut(lines: bytes, max_bytes: int) -> Sequence[bytes]:
    """The lines in pieces of at most `max_bytes`, cut between lines; a longer line is a piece of its own."""
    pieces: list[bytes] = []
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + max_bytes) + 1
        if end <= start:
            end = lines.find(b"\n", start) + 1
        pieces.append(lines[start:end])
        start = end
    return pieces
