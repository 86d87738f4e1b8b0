"""Version files, whatever state they are in: whole ones together, damaged ones by themselves."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError
from indextables.log.decode import LogFile, Tail, UnknownContent, decode_tail
from indextables.log.version_file import read_version_files
from indextables.ops.repair_lines import whole_lines
from indextables.ops.repair_report import Problem
from indextables.ops.stored_files import key_or_path, normalised_paths
from indextables.storage import ObjectMeta
from indextables.table import TableContext

_FILES_AT_ONCE: Final = 64


class Run(msgspec.Struct, frozen=True):
    """Consecutive versions, decoded; paths are keys below the table's root.

    A version with a `problem` is a run of its own, with what could be read of it.
    """

    first: int
    last: int
    tail: Tail
    problem: Problem | None = None

    @property
    def paths(self) -> pa.ChunkedArray:
        """Every path that is added or removed."""
        return pa.chunked_array(
            [*self.tail.adds["path"].chunks, *self.tail.removes["path"].chunks], pa.string()
        )


def read_runs(
    context: TableContext, files: Sequence[tuple[int, ObjectMeta]], ends: Collection[int] = ()
) -> list[Run]:
    """Version files, given in order, as runs in that order; one ends at each of `ends`. Raises StorageError."""
    runs: list[Run] = []
    start = 0
    for index in range(1, len(files) + 1):
        last = files[index - 1][0]
        is_end = index == len(files) or files[index][0] != last + 1 or last in ends
        if is_end or index - start == _FILES_AT_ONCE:
            runs += _read(context, files[start:index])
            start = index
    return runs


def with_keys(actions: pa.Table, root_url: str) -> pa.Table:
    """Actions or entries whose paths are keys below the root; paths that lead out of it stay as they are."""
    keys = normalised_paths(actions["path"].combine_chunks(), root_url, key_or_path)
    index = actions.schema.get_field_index("path")
    return actions.set_column(index, actions.schema.field(index), pc.cast(keys, pa.string()))


def keyed(tail: Tail, root_url: str) -> Tail:
    """A tail whose paths are keys."""
    return Tail(tail.versions, with_keys(tail.adds, root_url), with_keys(tail.removes, root_url))


def _read(context: TableContext, files: Sequence[tuple[int, ObjectMeta]]) -> list[Run]:
    try:
        read = read_version_files(context.store, files, parallelism=context.read_parallelism)
        tail = decode_tail(read, UnknownContent.KEEP)
    except LogCorruptedError as error:
        if len(files) > 1:
            # Which one it is shows when they are read in halves.
            middle = len(files) // 2
            return [*_read(context, files[:middle]), *_read(context, files[middle:])]
        return [_salvaged(context, files[0], error)]
    return [Run(files[0][0], files[-1][0], keyed(tail, context.url))]


def _salvaged(context: TableContext, file: tuple[int, ObjectMeta], error: LogCorruptedError) -> Run:
    version, meta = file
    name = f"{context.url}/{meta.key}"
    lines = whole_lines(context.store.get(meta.key), name)
    tail = decode_tail([LogFile(version, name, lines, meta.last_modified_ms)], UnknownContent.KEEP)
    return Run(version, version, keyed(tail, context.url), Problem(meta.key, str(error)))
