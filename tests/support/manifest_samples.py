"""File entries for manifests, and foreign readers of manifests."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datafusion
import fastavro
import pyarrow as pa
from hypothesis import strategies as st

from indextables.log.entries import FILE_ENTRY_SCHEMA
from indextables.log.fields import DELETION_VECTOR

REQUIRED_VALUES: Mapping[str, Any] = {
    "path": "splits/a.split",
    "partitionValues": {},
    "size": 0,
    "modificationTime": 0,
    "dataChange": True,
    "hasFooterOffsets": False,
    "addedAtVersion": 0,
    "addedAtTimestamp": 0,
}

FULL_VALUES: Mapping[str, Any] = {
    "path": "date=2024-01-01/part-ü.split",
    "partitionValues": {"date": "2024-01-01", "region": "eu"},
    "size": 2**40,
    "modificationTime": 1_775_007_206_490,
    "dataChange": True,
    "stats": '{"numRecords": 3}',
    "minValues": {"id": "1", "text": "a"},
    "maxValues": {"id": "9", "text": "ÿ€😀"},
    "numRecords": 3,
    "footerStartOffset": 100,
    "footerEndOffset": 200,
    "hasFooterOffsets": True,
    "splitTags": ["hot", ""],
    "numMergeOps": 2,
    "docMappingRef": "z7TwwZ-tDWGD-uX5",
    "uncompressedSizeBytes": 300,
    "tags": {"owner": "me"},
    "hotcacheStartOffset": 5,
    "hotcacheLength": 6,
    "timeRangeStart": "2024-01-01T00:00:00Z",
    "timeRangeEnd": "2024-01-02T00:00:00Z",
    "deleteOpstamp": 7,
    "docMappingJson": "[]",
    "companionSourceFiles": ["x.parquet"],
    "companionDeltaVersion": 8,
    "companionFastFieldMode": "HYBRID",
    "deletionVector": {
        "storageType": "p",
        "pathOrInlineDv": "deletion_vector_x.bin",
        "offset": 1,
        "sizeInBytes": 34,
        "cardinality": 1,
    },
    "addedAtVersion": 9,
    "addedAtTimestamp": 1_775_007_206_580,
    "unknownFields": '{"later": 1}',
}

LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
TEXT_MAPS = st.dictionaries(TEXTS, TEXTS, max_size=4)

_STRATEGIES: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.int64(): LONGS,
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.bool_(): st.booleans(),
    pa.map_(pa.string(), pa.string()): TEXT_MAPS,
    pa.list_(pa.string()): st.lists(TEXTS, max_size=3),
    DELETION_VECTOR: st.fixed_dictionaries(
        {
            "storageType": st.none() | TEXTS,
            "pathOrInlineDv": st.none() | TEXTS,
            "offset": st.none() | st.integers(0, 2**31 - 1),
            "sizeInBytes": st.none() | st.integers(0, 2**31 - 1),
            "cardinality": st.none() | LONGS,
        }
    ).map(lambda vector: {name: vector[name] for name in DELETION_VECTOR.names}),
}


def entry_rows() -> st.SearchStrategy[dict[str, Any]]:
    """Entries with arbitrary values in all columns."""
    return st.fixed_dictionaries(
        {
            field.name: st.none() | _STRATEGIES[field.type] if field.nullable else _STRATEGIES[field.type]
            for field in FILE_ENTRY_SCHEMA
        }
    )


def entries(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """File entries from Avro values: maps are dictionaries, and missing values are null."""
    columns = [
        pa.array([_arrow_form(row.get(field.name)) for row in rows], field.type)
        for field in FILE_ENTRY_SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=FILE_ENTRY_SCHEMA)


def numbered_entries(count: int) -> pa.Table:
    """`count` different entries like those of real tables."""
    return entries(
        [
            {
                **REQUIRED_VALUES,
                "path": f"date=2024-01-{number % 28 + 1:02d}/part-{number}.split",
                "partitionValues": {"date": f"2024-01-{number % 28 + 1:02d}"},
                "size": number * 1000,
                "minValues": {"id": str(number), "text": "a"},
                "maxValues": {"id": str(number + 9), "text": "z"},
                "numRecords": number,
                "addedAtVersion": number // 10,
                "addedAtTimestamp": 1_775_000_000_000 + number,
            }
            for number in range(count)
        ]
    )


def avro_form(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as an Avro reader returns them."""
    return [
        {name: _avro_form(value, table.schema.field(name).type) for name, value in row.items()}
        for row in table.to_pylist()
    ]


def fastavro_rows(data: bytes) -> list[dict[str, Any]]:
    """What fastavro reads."""
    return list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]


def datafusion_rows(data: bytes, folder: Path) -> list[dict[str, Any]]:
    """What DataFusion reads."""
    file = folder / "foreign.avro"
    file.write_bytes(data)
    batches = datafusion.SessionContext().read_avro(str(file)).collect()
    return avro_form(pa.Table.from_batches(batches)) if batches else []


def avro_schema(data: bytes) -> dict[str, Any]:
    """The schema in a file's header, as fastavro reads it."""
    return fastavro.reader(io.BytesIO(data)).writer_schema  # type: ignore[return-value]


def fastavro_file(schema: Any, rows: Sequence[Mapping[str, Any]], codec: str = "zstandard") -> bytes:
    """A file that fastavro wrote."""
    stream = io.BytesIO()
    fastavro.writer(stream, schema, rows, codec=codec)
    return stream.getvalue()


def _arrow_form(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def _avro_form(value: Any, arrow: pa.DataType) -> Any:
    return dict(value) if value is not None and pa.types.is_map(arrow) else value
