"""The published Delta log: what it holds, and how a version is added to it or removed from it.

A commit is a file of JSON lines under the number of the version, written with put-if-absent. All writers of a version
write the same, so it does not matter whose file it is. A checkpoint holds all files of a version: the log starts at one
if it does not start at version 0.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import arro3.io
import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from indextables.errors import ObjectNotFoundError, PublishedLogChangedError
from indextables.ops.publish.delta_actions import ADD, WRITER_FEATURE
from indextables.storage import ObjectStore, PutOutcome

LOG_FOLDER: Final = "_delta_log/"

_LAST_CHECKPOINT: Final = f"{LOG_FOLDER}_last_checkpoint"
_NAME: Final = re.compile(r"_delta_log/(?P<version>[0-9]{20})(?P<kind>\.json|\.checkpoint\.parquet)")


class PublishedLog(msgspec.Struct, frozen=True):
    """The versions of a published log: those with a commit, and those with a checkpoint."""

    commits: frozenset[int] = frozenset()
    checkpoints: frozenset[int] = frozenset()

    @property
    def newest(self) -> int:
        """The newest published version; -1 if nothing is published."""
        return max(self.commits | self.checkpoints, default=-1)

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: version 0, or that of the oldest checkpoint."""
        return 0 if 0 in self.commits else min(self.checkpoints, default=-1)

    @property
    def newest_checkpoint(self) -> int:
        return max(self.checkpoints, default=0)


def read_published(store: ObjectStore) -> PublishedLog:
    """List the published log."""
    commits: set[int] = set()
    checkpoints: set[int] = set()
    for meta in store.list(LOG_FOLDER):
        match = _NAME.fullmatch(meta.key)
        if match is not None:
            (commits if match["kind"] == ".json" else checkpoints).add(int(match["version"]))
    return PublishedLog(frozenset(commits), frozenset(checkpoints))


def check_own(store: ObjectStore, version: int, table_id: str) -> None:
    """Raise PublishedLogChangedError unless this table published the version."""
    place = f"{store.url}: version {version} of the published Delta log"
    try:
        lines = store.get(_commit_key(version)).splitlines()
        info = orjson.loads(lines[0])["commitInfo"][WRITER_FEATURE]
        owner = info["tableId"], info["version"]
    except ObjectNotFoundError:
        return  # a checkpoint whose commit is still to come
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        raise PublishedLogChangedError(
            f"{place} was written by another engine; the log is derived from the table, and only PUBLISH may write it. "
            f"Write to the table itself; delete the folder {LOG_FOLDER} and publish again"
        ) from error
    if owner != (table_id, version):
        raise PublishedLogChangedError(
            f"{place} is that of another table; was this folder a copy, or the table dropped and created again? Delete "
            f"the folder {LOG_FOLDER} and publish again"
        )


def write_commit(
    store: ObjectStore,
    version: int,
    table_id: str,
    actions: Sequence[Mapping[str, Any]],
    files: Mapping[str, pa.StructArray],
) -> None:
    """Write a version, unless another writer of the table has. Raises PublishedLogChangedError."""
    data = bytearray(b"".join(orjson.dumps(action) + b"\n" for action in actions))
    for kind, rows in files.items():
        if len(rows):
            lines = io.BytesIO()
            arro3.io.write_ndjson(pa.table({kind: rows}), lines)
            data += lines.getvalue()
    if store.put_if_absent(_commit_key(version), bytes(data)) is not PutOutcome.WRITTEN:
        check_own(store, version, table_id)


def write_checkpoint(
    store: ObjectStore,
    version: int,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    adds: pa.StructArray,
) -> None:
    """Write a checkpoint with all files of a version, and point to it."""
    text_list = pa.list_(pa.string())
    texts = pa.map_(pa.string(), pa.string())
    protocol_type = pa.struct(
        [
            *(pa.field(name, pa.int32()) for name in ("minReaderVersion", "minWriterVersion")),
            *(pa.field(name, text_list) for name in ("readerFeatures", "writerFeatures")),
        ]
    )
    metadata_type = pa.struct(
        [
            *(pa.field(name, pa.string()) for name in ("id", "name", "description", "schemaString")),
            pa.field("format", pa.struct([pa.field("provider", pa.string()), pa.field("options", texts)])),
            pa.field("partitionColumns", text_list),
            pa.field("configuration", texts),
            pa.field("createdTime", pa.int64()),
        ]
    )
    of_texts = {"configuration": [], "format": {"provider": "parquet", "options": []}}
    rows = len(adds)
    table = pa.table(
        {
            "protocol": pa.array([dict(protocol), None], protocol_type).take(_first_of(0, rows)),
            "metaData": pa.array([{**metadata, **of_texts}, None], metadata_type).take(_first_of(1, rows)),
            "add": pa.concat_arrays([pa.nulls(2, ADD), adds]),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    store.put(_checkpoint_key(version), buffer.getvalue())
    store.put(_LAST_CHECKPOINT, orjson.dumps({"version": version, "size": table.num_rows}))


def remove_versions(store: ObjectStore, published: PublishedLog, before: int) -> int:
    """Remove the versions before the checkpoint of a version. Returns their number."""
    old = {version for version in published.commits | published.checkpoints if version < before}
    store.delete_many(_commit_key(version) for version in sorted(old & published.commits))
    store.delete_many(_checkpoint_key(version) for version in sorted(old & published.checkpoints))
    return len(old)


def _first_of(place: int, rows: int) -> pa.Array:
    """Indices of a column that has its only value in one row."""
    return pa.array([0 if row == place else 1 for row in range(2)] + [1] * rows, pa.int64())


def _commit_key(version: int) -> str:
    return f"{LOG_FOLDER}{version:020d}.json"


def _checkpoint_key(version: int) -> str:
    return f"{LOG_FOLDER}{version:020d}.checkpoint.parquet"
