"""Tables for the tests of the state, built through the real write path."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from indextables import AddAction, IndexTable
from indextables.state.source import StateSource
from indextables.state.state_manifest import StateManifest

SCHEMA = pa.schema([("id", pa.int64()), ("region", pa.string()), ("day", pa.int32()), ("note", pa.string())])

Options = dict[str, str]


def split(number: int, *, size: int = 0, **partition: str | None) -> AddAction:
    """An add action for a split that does not exist in the store."""
    return AddAction(
        path=f"part-{number:05d}.split",
        partition_values=partition,
        size=size or 100 + number,
        modification_time=1_700_000_000_000 + number,
        data_change=True,
        num_records=10,
        min_values={"id": str(number * 10)},
        max_values={"id": str(number * 10 + 9)},
    )


@dataclass
class TableBuilder:
    """Creates a table without automatic checkpoints and opens it with the given options."""

    path: str
    partition_by: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    storage_options: Options = field(default_factory=dict, repr=False)

    def create(self) -> IndexTable:
        IndexTable.create(
            self.path, SCHEMA, partition_by=self.partition_by, storage_options=self.storage_options
        )
        return self.open()

    def open(self, **options: str) -> IndexTable:
        return IndexTable(self.path, storage_options=self.storage_options, options=self._options(options))

    def at(self, version: int) -> IndexTable:
        return IndexTable(
            self.path, version=version, storage_options=self.storage_options, options=self._options({})
        )

    def _options(self, more: Options) -> Options:
        defaults = {"checkpoint.enabled": "false", "transaction.cache.enabled": "false"}
        merged = {
            **defaults,
            **self.options,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return {f"spark.indextables.{key}": value for key, value in merged.items()}


def paths(table: IndexTable) -> list[str]:
    return sorted(table.files(columns=["path"])["path"].to_pylist())


def numbered(numbers: Iterable[int]) -> list[str]:
    return sorted(f"part-{number:05d}.split" for number in numbers)


def state_of(table: IndexTable) -> StateManifest:
    """The state manifest of the base that a table was opened from."""
    source = table._snapshot.source
    assert isinstance(source, StateSource)
    return source.state
