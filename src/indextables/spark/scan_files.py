"""The splits of a table as Spark's own file sources take them, with the partition values of the log.

Spark takes partition values from the names of folders. Where these do not say what the log says (an empty string, a
name that was too long, a file at the root of the table), the files are read in groups with constant partition values.
"""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec
import pyarrow as pa

from indextables.log.deletion_vectors import DeletionVector, parse_vector
from indextables.pruning.values import format_value, map_values, parse_values
from indextables.schema import TableShape
from indextables.split.byte_ranges import read_range
from indextables.split.parquet_footer import PARQUET_MAGIC
from indextables.storage import NULL_PARTITION, escape_partition_value, relative_key
from indextables.table import Snapshot

# Each group is a relation of its own in Spark's plans.
_MAX_GROUPS: Final = 16
# The log does not always say whose split it is; then its last bytes do.
_MAX_OPENED: Final = 64

COLUMNS: Final = (
    "path", "partitionValues", "size", "modificationTime",
    "footerStartOffset", "footerEndOffset", "uncompressedSizeBytes", "numRecords", "deletionVector",
)  # fmt: skip

PartitionTexts = tuple[str | None, ...]


class NotNativeError(Exception):
    """Spark's own reader cannot read a table; the message completes "the table is not read natively, because …"."""


class ScanFile(msgspec.Struct, frozen=True):
    """A split for Spark: its key below the root, its size, and its modification time in epoch milliseconds.

    `num_records` are its rows, if the log knows them, with the deleted ones.
    """

    key: str
    size: int
    modified_ms: int
    num_records: int | None
    deleted: DeletionVector | None


class FileGroup(msgspec.Struct, frozen=True):
    """Files that one relation of Spark reads.

    `values` are the partition values of all of them, in the form of `format_value`; None if the folders name them.
    All of them have deleted rows, or none has.
    """

    files: tuple[ScanFile, ...]
    values: PartitionTexts | None
    has_deleted: bool


def file_groups(snapshot: Snapshot, entries: pa.Table) -> list[FileGroup]:
    """Group file entries for Spark's Parquet reader. Raises NotNativeError if it cannot read one of them."""
    folders = _Folders(snapshot.shape, snapshot.context.url)
    columns = (entries[name].to_pylist() for name in COLUMNS if name != "partitionValues")
    groups: dict[tuple[PartitionTexts | None, bool], list[ScanFile]] = {}
    doubtful: list[tuple[str, int]] = []
    for texts, path, size, modified_ms, footer_start, footer_end, uncompressed, num_records, vector in zip(
        folders.texts(entries), *columns, strict=True
    ):
        key = relative_key(path, snapshot.context.url)
        folder, _, name = key.rpartition("/")
        if size < (footer_end or 1) or name.startswith((".", "_")):
            # Spark would skip the file, or the row groups beyond that size, without an error.
            raise NotNativeError(f"Spark would not read all of {key}, of {size} bytes in the log")
        # The JVM counts the bytes in front of the footer, and we count those of the rows.
        if footer_end is None or uncompressed is None or uncompressed == footer_start:
            doubtful.append((key, size))
        values = None if folders.names(folder, texts) else folders.canonical(texts)
        file = ScanFile(key, size, modified_ms, num_records, parse_vector(vector, key))
        groups.setdefault((values, file.deleted is not None), []).append(file)
    _check_own(snapshot, doubtful)
    unnamed = {values for values, _ in groups if values is not None}
    if len(unnamed) > _MAX_GROUPS:
        raise NotNativeError(f"{len(unnamed)} of its partitions are not named by the folders of their files")
    return [FileGroup(tuple(files), *group) for group, files in groups.items()]


def _check_own(snapshot: Snapshot, doubtful: Sequence[tuple[str, int]]) -> None:
    if len(doubtful) > _MAX_OPENED:
        raise NotNativeError(
            f"the log does not say whether {len(doubtful)} of its splits were written on the JVM"
        )
    for key, size in doubtful:
        end = read_range(snapshot.context.store, key, max(size - len(PARQUET_MAGIC), 0), size)
        if end != PARQUET_MAGIC:
            raise NotNativeError(f"{key} was written on the JVM")


class _Folders:
    """What the folders of a table's files say about partition values."""

    def __init__(self, shape: TableShape, url: str) -> None:
        self._fields = [shape.schema.field(name) for name in shape.partition_keys]
        self._keys = list(shape.partition_keys.values())
        # Spark looks for partition values in all folders up to one that has none.
        self._are_read = shape.is_partitioned and "=" not in url.rpartition("/")[2]
        self.names = functools.cache(self._names)
        self.canonical = functools.cache(self._canonical)

    def texts(self, entries: pa.Table) -> list[PartitionTexts]:
        """The values that the log has for each file, in the order of the partition columns."""
        values = entries["partitionValues"].combine_chunks()
        columns = [map_values(values, key).to_pylist() for key in self._keys]
        return list(zip(*columns, strict=True)) if columns else [()] * entries.num_rows

    def _names(self, folder: str, texts: PartitionTexts) -> bool:
        """Whether Spark reads exactly these values from the folder's name."""
        if not self._are_read or any(text in ("", NULL_PARTITION) for text in texts):
            return False
        segments = zip(self._fields, texts, strict=True)
        # A name that was too long for a folder is not the whole value.
        whole = "/".join(
            f"{escape_partition_value(field.name)}={escape_partition_value(text)}" for field, text in segments
        )
        return folder == whole and texts == self.canonical(texts)

    def _canonical(self, texts: PartitionTexts) -> PartitionTexts:
        return tuple(map(_canonical_text, texts, self._fields))


def _canonical_text(text: str | None, field: pa.Field) -> str | None:
    if text is None:
        return None
    parsed = parse_values(pa.array([text], pa.string()), field.type)
    canonical = format_value(parsed.values[0])
    if canonical is None:
        raise NotNativeError(
            f"partition column {field.name!r} has the value {text!r}, which is no {field.type}"
        )
    return canonical


# The list of files that Spark's streaming sink keeps beside its files. Spark takes the files of a folder with such a
# list from there and looks for none itself: ten thousand files take a second, and else a job of ten thousand tasks.

_LIST_FOLDER: Final = "_spark_metadata"
_LIST_VERSION: Final = b"v1"
# If Spark ignored the list, the folder would be an empty table. It finds a file that it cannot read instead.
_NOT_A_TABLE: Final = "not-a-table-but-a-list-of-files"


class _ListedFile(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    size: int
    modification_time: int
    is_dir: bool = False
    block_replication: int = 1
    block_size: int = 128 * 1024**2
    action: str = "add"


def write_file_list(name: str, root: str, files: Sequence[ScanFile]) -> Path:
    """Write the list of these files for Spark's file sources; returns the folder to load, called `name`, in a new one.

    `root` is the URL of the table for Hadoop, percent-encoded.
    """
    folder = Path(tempfile.mkdtemp(prefix="indextables-"), name)
    (folder / _LIST_FOLDER).mkdir(parents=True)
    encode = msgspec.json.Encoder().encode
    lines = (
        encode(_ListedFile(f"{root}/{_quoted(file.key)}", file.size, file.modified_ms)) for file in files
    )
    (folder / _LIST_FOLDER / "0").write_bytes(b"\n".join([_LIST_VERSION, *lines]))
    (folder / _NOT_A_TABLE).write_text("not Parquet")
    return folder


def _quoted(key: str) -> str:
    return quote_from_bytes(key.encode("utf-8", "surrogateescape"), safe="/=")
