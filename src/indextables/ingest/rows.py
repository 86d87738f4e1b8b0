"""The rows at a place, in memory: of a table, or of files in any format that is indexed."""

from collections.abc import Mapping

import pyarrow as pa

from indextables.errors import TableNotFoundError
from indextables.index_table import IndexTable
from indextables.ingest.operation import IngestRequest, read_all


def read_rows(place: str, storage_options: Mapping[str, str], options: Mapping[str, str]) -> pa.Table:
    """The rows of a table, or else of the files at a place; see `read_files`."""
    try:
        return IndexTable(place, storage_options=storage_options, options=options).to_arrow()
    except TableNotFoundError:
        return read_files(place, storage_options, options)


def read_files(place: str, storage_options: Mapping[str, str], options: Mapping[str, str]) -> pa.Table:
    """The rows of the files at a place, with the columns and types that their values show.

    Raises InvalidOptionError for a place where there is nothing, or a table of another format, and what `ingest` raises
    for inputs that cannot be read.
    """
    request = IngestRequest(places=(place,), path="", options=options, storage_options=storage_options)
    return read_all(request)
