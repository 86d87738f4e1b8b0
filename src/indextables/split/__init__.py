"""Split files: the bundle, its index and its rows, how they are written and how they are read."""

from indextables.split.base import Split
from indextables.split.cache import IndexCache
from indextables.split.mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.reader import open_split
from indextables.split.writer import SplitFile, SplitWriter, WriterOptions

__all__ = [
    "DocMapping",
    "FieldKind",
    "FieldMapping",
    "IndexCache",
    "Split",
    "SplitFile",
    "SplitWriter",
    "WriterOptions",
    "open_split",
]
