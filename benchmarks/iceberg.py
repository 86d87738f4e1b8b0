"""The peer pyiceberg: the same files as manifest entries of a table in a local SQLite catalog."""

from collections.abc import Iterable
from datetime import date
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile as IcebergDataFile,
)
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    clear_manifest_cache,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

from benchmarks.files import PARTITION_COLUMN, DataFile, in_chunks

_TABLE = "bench.files"
_DATE, _ID, _SCORE, _NAME = 1, 2, 3, 4
_SCHEMA = Schema(
    NestedField(_DATE, PARTITION_COLUMN, DateType()),
    NestedField(_ID, "id", LongType()),
    NestedField(_SCORE, "score", DoubleType()),
    NestedField(_NAME, "name", StringType()),
)
_SPEC = PartitionSpec(PartitionField(_DATE, 1000, IdentityTransform(), PARTITION_COLUMN))
_MANIFEST_FILES = 10_000


def build_table(path: Path, files: Iterable[DataFile]) -> None:
    """Build a table with these files, in manifests of `_MANIFEST_FILES` entries."""
    path.mkdir(parents=True)
    catalog = _catalog(path)
    catalog.create_namespace("bench")
    table = catalog.create_table(_TABLE, _SCHEMA, partition_spec=_SPEC)
    for chunk in in_chunks(iter(files), _MANIFEST_FILES):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in chunk:
                append.append_data_file(_data_file(table, file))


def list_files(path: str | Path) -> list[FileScanTask]:
    """Open a table and list all files."""
    clear_manifest_cache()
    return list(_catalog(Path(path)).load_table(_TABLE).scan().plan_files())


def _catalog(path: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{path}/catalog.db", warehouse=path.as_uri())


def _data_file(table: Table, file: DataFile) -> IcebergDataFile:
    data_file = IcebergDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record((file.date - date(1970, 1, 1)).days),
        record_count=file.num_records,
        file_size_in_bytes=file.size,
        column_sizes={},
        value_counts=dict.fromkeys((_ID, _SCORE, _NAME), file.num_records),
        null_value_counts=dict.fromkeys((_ID, _SCORE, _NAME), 0),
        nan_value_counts={},
        lower_bounds=_bounds(file.min_id, file.min_score, file.min_name),
        upper_bounds=_bounds(file.max_id, file.max_score, file.max_name),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    data_file.spec_id = table.spec().spec_id
    return data_file


def _bounds(id_: int, score: float, name: str) -> dict[int, bytes]:
    return {_ID: to_bytes(LongType(), id_), _SCORE: to_bytes(DoubleType(), score), _NAME: name.encode()}
