"""Opens splits, ours and those written on the JVM."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from indextables.errors import UnsupportedSplitError
from indextables.schema import check_partition_columns
from indextables.split.base import Split
from indextables.split.bundle import read_bundle
from indextables.split.footer import decode_info, is_ours
from indextables.split.own_split import OwnSplit
from indextables.split.table_columns import TableColumns
from indextables.storage import ObjectStore


def open_split(
    store: ObjectStore,
    key: str,
    size: int | None = None,
    footer_start: int | None = None,
    footer_end: int | None = None,
    *,
    schema: pa.Schema | None = None,
    partition_columns: Sequence[str] = (),
    partition_values: Mapping[str, str | None] | None = None,
) -> Split:
    """Open a split: one range request where the log knows the offsets of its footer, two more where not.

    `schema`, `partition_columns` and `partition_values` are the table's, from the log; rows are returned in
    that schema. Without a schema, one of our splits is read as it was written, partition values included.

    Raises ObjectNotFoundError and other storage errors, SplitCorruptedError for a file that is damaged, cut
    off or no split, and UnsupportedSplitError for a newer format, or a foreign split without a schema.
    """
    bundle = read_bundle(store, key, size, footer_start, footer_end)
    place = f"{store.url}: {key}"
    info = decode_info(bundle, place) if is_ours(bundle) else None
    if schema is not None:
        names = check_partition_columns(schema, partition_columns)
        table = TableColumns(schema, names, dict(partition_values or {}))
    elif info is not None:
        table = TableColumns(info.schema, info.partition_columns, info.partition_values)
    else:
        raise UnsupportedSplitError(
            f"{place}: this split was written on the JVM; open it with the table's schema"
        )
    if info is not None:
        return OwnSplit(store, key, bundle, table, info)
    # It indexes rows again, which splits of our own never need.
    from indextables.split.jvm import JvmSplit

    return JvmSplit(store, key, bundle, table)
