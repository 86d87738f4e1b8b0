"""Can a checkpoint be read to the last entry? Asked before anything is deleted on its word."""

import logging
from collections.abc import Iterable

import msgspec
import pyarrow.compute as pc

from indextables.errors import LogCorruptedError, ObjectNotFoundError
from indextables.log.decode import UnknownContent
from indextables.log.segment import Base
from indextables.table import TableContext
from indextables.table.log_reader import read_base_uncached

logger = logging.getLogger(__name__)


class EntryCount(msgspec.Struct, frozen=True):
    """The files and bytes that a checkpoint has, and those that it says it has."""

    found: tuple[int, int]
    promised: tuple[int, int]


def read_entries(context: TableContext, base: Base) -> EntryCount:
    """Read every entry of a checkpoint. Raises LogCorruptedError if that is not possible."""
    try:
        _, source = read_base_uncached(context, base, UnknownContent.IGNORE)
        entries = source.load(None, ["path", "size"]).entries
    except ObjectNotFoundError as error:
        raise LogCorruptedError(f"{context.url}/{base.meta.key}: a part of it is missing: {error}") from error
    return EntryCount(
        found=(entries.num_rows, pc.sum(entries["size"]).as_py() or 0),
        promised=(source.num_files, source.total_bytes),
    )


def has_whole_checkpoint(context: TableContext, bases: Iterable[Base]) -> bool:
    """Whether at least one of the checkpoints of a version can be read, and holds what it says that it does."""
    for base in bases:
        try:
            count = read_entries(context, base)
        except LogCorruptedError as error:
            logger.warning("%s: the checkpoint at %d is damaged: %s", context.url, base.version, error)
            continue
        if count.found == count.promised:
            return True
        logger.warning(
            "%s: the checkpoint at %d has %d files of %d bytes, and says that it has %d of %d",
            context.url, base.version, *count.found, *count.promised,
        )  # fmt: skip
    return False
