"""The files that every side lists, generated with a fixed seed.

Tables are partitioned by date, and each file has a row count and the minimum and maximum of three columns. The files do
not exist: only metadata is measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [("date", pa.date32()), ("id", pa.int64()), ("score", pa.float64()), ("name", pa.string())]
)
PARTITION_COLUMN = "date"

_SEED = 20_260_131
_FIRST_DATE = date(2022, 1, 1)
_FIRST_MODIFIED_MS = 1_700_000_000_000
_HEX_DIGITS_PER_NAME = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """The metadata of one file."""

    path: str
    date: date
    size: int
    modified_ms: int
    num_records: int
    min_id: int
    max_id: int
    min_score: float
    max_score: float
    min_name: str
    max_name: str


def generate_files(count: int, files_per_partition: int, *, batch: int = 0) -> Iterator[DataFile]:
    """Generate `count` files in partition order. Batches differ only in paths."""
    random = np.random.default_rng((_SEED, batch))
    names = random.bytes(count * _HEX_DIGITS_PER_NAME // 2).hex()
    sizes = random.integers(1_000_000, 200_000_000, count).tolist()
    records = random.integers(1_000, 1_000_000, count).tolist()
    scores = random.random((count, 2)).round(6)
    lows, highs = scores.min(axis=1).tolist(), scores.max(axis=1).tolist()
    id_ = 0
    for row in range(count):
        day = partition_date(row // files_per_partition)
        name = names[row * _HEX_DIGITS_PER_NAME : (row + 1) * _HEX_DIGITS_PER_NAME]
        yield DataFile(
            path=f"{PARTITION_COLUMN}={day}/part-{name}.split",
            date=day,
            size=sizes[row],
            modified_ms=_FIRST_MODIFIED_MS + row,
            num_records=records[row],
            min_id=id_,
            max_id=id_ + records[row] - 1,
            min_score=lows[row],
            max_score=highs[row],
            min_name=f"a-{name[:8]}",
            max_name=f"z-{name[8:16]}",
        )
        id_ += records[row]


def partition_date(number: int) -> date:
    """The value of a partition by its number, oldest first."""
    return _FIRST_DATE + timedelta(days=number)


def in_chunks(files: Iterator[DataFile], chunk_files: int) -> Iterator[Sequence[DataFile]]:
    """The same files in chunks."""
    chunk: list[DataFile] = []
    for file in files:
        chunk.append(file)
        if len(chunk) == chunk_files:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
