"""The rows at a place, in memory: of a table, or of files in any format that is indexed."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from indextables.errors import InvalidOptionError, TableNotFoundError
from indextables.index_table import IndexTable
from indextables.ingest.operation import IngestRequest, read_all

_DELTA_LOG = "_delta_log"


def read_rows(place: str, storage_options: Mapping[str, str], options: Mapping[str, str]) -> pa.Table:
    """The rows of a table, or else of the files at a place, with the columns and types that their values show.

    Raises InvalidOptionError for a place where there is nothing, or a table of Delta Lake, whose files alone do not
    tell its rows, and what `ingest` raises for inputs that cannot be read.
    """
    if Path(place, _DELTA_LOG).is_dir():
        raise InvalidOptionError(
            f"{place} is a table of Delta Lake; read it with deltalake or Spark, and pass its rows to IndexTable.merge"
        )
    try:
        return IndexTable(place, storage_options=storage_options, options=options).to_arrow()
    except TableNotFoundError:
        request = IngestRequest(places=(place,), path="", options=options, storage_options=storage_options)
        return read_all(request)
