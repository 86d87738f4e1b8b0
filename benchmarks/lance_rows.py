"""The peer Lance: the same rows in a dataset with a full-text index and the same tokenization."""

from collections.abc import Mapping
from pathlib import Path

import lance
import pyarrow as pa

from benchmarks.rows import TEXT_COLUMN


def build_dataset(path: Path, rows: pa.Table, fragment_rows: int = 1024**2) -> None:
    """Build a dataset with these rows, in fragments of so many; its index has positions, like ours."""
    dataset = lance.write_dataset(rows, str(path), max_rows_per_file=fragment_rows)
    dataset.create_scalar_index(
        TEXT_COLUMN, "INVERTED", with_position=True, stem=False, remove_stop_words=False
    )


def open_dataset(path: Path | str, storage_options: Mapping[str, str] | None = None) -> lance.LanceDataset:
    """Open the dataset; its caches live as long as the object."""
    return lance.dataset(
        str(path), storage_options=None if storage_options is None else dict(storage_options)
    )


def search(dataset: lance.LanceDataset, words: str, limit: int) -> pa.Table:
    """The best rows for some terms, with all columns."""
    return dataset.scanner(full_text_query=words, limit=limit).to_table()
