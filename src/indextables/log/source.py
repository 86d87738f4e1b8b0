"""Where the file entries of a base come from: already in memory, or behind manifests that can be skipped."""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.predicates import Predicate


class Selection(msgspec.Struct, frozen=True):
    """A bound predicate, and what is needed to judge a manifest by it."""

    predicate: Predicate
    schema: pa.Schema
    partition_columns: tuple[str, ...]


class PathSelection(msgspec.Struct, frozen=True):
    """Files by their paths."""

    paths: pa.Array


class LoadedEntries(msgspec.Struct, frozen=True):
    """File entries, and how many manifests were there and were skipped to get them."""

    entries: pa.Table
    manifests: int = 0
    manifests_skipped: int = 0


class EntrySource(Protocol):
    """The live file entries of one checkpoint or state. Immutable; may read when asked."""

    @property
    def num_files(self) -> int:
        """How many entries are live."""
        ...

    @property
    def total_bytes(self) -> int:
        """The sum of their sizes."""
        ...

    def load(
        self, selection: Selection | PathSelection | None, columns: Sequence[str] | None
    ) -> LoadedEntries:
        """Entries that may be selected: at least those that are. None asks for all.

        With `columns`, at least these are there. Raises LogCorruptedError if entries cannot be read.
        """
        ...


class MemorySource(msgspec.Struct, frozen=True):
    """Entries that a checkpoint of the older formats gave, all at once."""

    entries: pa.Table

    @property
    def num_files(self) -> int:
        """How many entries are live."""
        return int(self.entries.num_rows)

    @property
    def total_bytes(self) -> int:
        """The sum of their sizes."""
        return pc.sum(self.entries["size"]).as_py() or 0

    def load(
        self,
        selection: Selection | PathSelection | None,  # noqa: ARG002
        columns: Sequence[str] | None,  # noqa: ARG002
    ) -> LoadedEntries:
        """All entries: there is nothing to skip."""
        return LoadedEntries(self.entries)
