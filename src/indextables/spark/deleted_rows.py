"""Deleted rows in native scans: Spark numbers the rows of a Parquet file, and leaves out those that the log names.

A row of a relation has a key: the place of its file among the files of the relation, and its number in the file. Spark
takes the modification times of files from the list that it is given, and offers them to conditions. So the list has
the place of a file as its modification time.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention
from pyspark.sql.types import LongType, StructField, StructType

from indextables.config.registry import READ_PARALLELISM
from indextables.log.deletion_vectors import read_vector
from indextables.ops.runner import parallel_map
from indextables.schema import find_column
from indextables.spark.releases import frame_of
from indextables.spark.scan_files import NotNativeError, ScanFile
from indextables.table import Snapshot

Keys = npt.NDArray[np.int64]

_METADATA: Final = "_metadata"
_ROW_BITS: Final = 32
_KEY: Final = (
    f"shiftleft(unix_millis({_METADATA}.file_modification_time), {_ROW_BITS}) + {_METADATA}.row_index"
)
_KEY_COLUMN: Final = "indextables deleted row"

# A condition needs no job of its own, but is a part of every task.
_MAX_LISTED: Final = 1000
# Each task looks rows up in a table in memory, of about 16 bytes for each of these.
_MAX_DELETED: Final = 20_000_000


def numbered(files: Sequence[ScanFile]) -> tuple[ScanFile, ...]:
    """The files with their places as modification times."""
    return tuple(replace(file, modified_ms=place) for place, file in enumerate(files))


def deleted_keys(snapshot: Snapshot, files: Sequence[ScanFile]) -> Keys:
    """The keys of all deleted rows of these files, each of which has some.

    Raises NotNativeError if Spark cannot leave them out, and what `read_vector` raises.
    """
    context = snapshot.context
    if find_column(snapshot.shape.stored.schema, _METADATA) is not None:
        raise NotNativeError(f"its column {_METADATA!r} hides from which rows the deleted ones are told")
    count = sum(file.deleted.cardinality for file in files if file.deleted is not None)
    if count > _MAX_DELETED:
        raise NotNativeError(
            f"{count} of its rows are deleted, more than {_MAX_DELETED}; MERGE SPLITS removes them from the splits"
        )

    def keys_of(place: int) -> Keys:
        file = files[place]
        assert file.deleted is not None
        rows = read_vector(context.store, file.deleted, f"{context.url}: {file.key}", file.num_records)
        if rows[-1] >= min(file.num_records or 1 << _ROW_BITS, 1 << _ROW_BITS):
            raise NotNativeError(f"deleted rows of {file.key} are not in that file")
        return rows + (place << _ROW_BITS)

    return np.concatenate(parallel_map(keys_of, range(len(files)), context.settings[READ_PARALLELISM]))


def without_deleted(spark: SparkSession, relation: DataFrame, keys: Keys) -> DataFrame:
    """The rows of a relation over `numbered` files that have none of these keys."""
    if len(keys) <= _MAX_LISTED:
        return relation.where(f"{_KEY} NOT IN ({', '.join(f'{key}L' for key in keys)})")
    schema = StructType([StructField(_KEY_COLUMN, LongType(), nullable=False)])
    deleted = frame_of(spark, pa.table({_KEY_COLUMN: keys}), schema)
    return relation.join(F.broadcast(deleted), F.expr(_KEY) == deleted[_KEY_COLUMN], "left_anti")
