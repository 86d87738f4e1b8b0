"""What a merge did, as data."""

import msgspec
import pyarrow as pa

from indextables.ops.merge.task import BadSource

REPORT_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("merged_groups", pa.int64()),
        ("source_splits", pa.int64()),
        ("new_splits", pa.int64()),
        ("rows", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("skipped", pa.list_(pa.struct([("path", pa.string()), ("reason", pa.string())]))),
        ("given_up", pa.list_(pa.struct([("paths", pa.list_(pa.string())), ("reason", pa.string())]))),
    ]
)


class GivenUpGroup(msgspec.Struct, frozen=True):
    """Splits that were to be merged and stay, or were taken away by others, as they are; and why."""

    paths: tuple[str, ...]
    reason: str


class MergeReport(msgspec.Struct, frozen=True):
    """What a merge did. `version` is None if nothing was committed; `skipped` were left out and stay live.

    Bytes are those of the merged splits before, and of the new ones.
    """

    version: int | None = None
    merged_groups: int = 0
    source_splits: int = 0
    new_splits: int = 0
    rows: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    skipped: tuple[BadSource, ...] = ()
    given_up: tuple[GivenUpGroup, ...] = ()

    def to_arrow(self) -> pa.Table:
        """The report as a table of one row."""
        row = {name: getattr(self, name) for name in REPORT_SCHEMA.names}
        row["skipped"] = [{"path": each.path, "reason": each.reason} for each in self.skipped]
        row["given_up"] = [{"paths": list(each.paths), "reason": each.reason} for each in self.given_up]
        return pa.Table.from_pylist([row], REPORT_SCHEMA)
