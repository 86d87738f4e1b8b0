"""Tables of other formats among the inputs: their files alone do not tell their rows.

They hold rows that were deleted and versions that were replaced; only the log of the table says which files count.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from indextables.errors import InvalidOptionError

_DELTA: Final = "Delta Lake"
_HUDI: Final = "Apache Hudi"
_ICEBERG: Final = "Apache Iceberg"
_OF_FOLDER: Final = {"_delta_log": _DELTA, ".hoodie": _HUDI}
_READERS: Final = {_DELTA: "deltalake or Spark", _HUDI: "Spark", _ICEBERG: "pyiceberg or Spark"}

_METADATA: Final = "metadata"
_METADATA_FILES: Final = "*.metadata.json"
_KEY: Final = re.compile(
    r"(?P<table>(?:[^/]+/)*?)(?:(?P<log>_delta_log|\.hoodie)/|metadata/[^/]+\.metadata\.json$)"
)


def check_folders(folders: Iterable[Path]) -> None:
    """Raise InvalidOptionError if a local folder is a table of another format."""
    for folder in folders:
        for name, kind in _OF_FOLDER.items():
            if (folder / name).is_dir():
                raise _error(str(folder), kind)
        if any((folder / _METADATA).glob(_METADATA_FILES)):
            raise _error(str(folder), _ICEBERG)


def check_keys(url: str, keys: Iterable[str], inputs: Iterable[str]) -> None:
    """Raise InvalidOptionError if one of the inputs lies in a table of another format.

    Args:
        url: The URL that the keys are below.
        keys: The keys of all objects.
        inputs: The keys of the objects to read.
    """
    tables = {
        found["table"]: _OF_FOLDER.get(found["log"], _ICEBERG) for found in map(_KEY.match, keys) if found
    }
    if not tables:
        return
    for key in inputs:
        parts = key.split("/")
        for depth in range(len(parts)):
            folder = "".join(f"{part}/" for part in parts[:depth])
            if folder in tables:
                raise _error(f"{url.rstrip('/')}/{folder}".rstrip("/"), tables[folder])


def _error(place: str, kind: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"{place} is a table of {kind}, whose files also hold rows that it no longer has; read it with "
        f"{_READERS[kind]}, and pass its rows to indextables.write or IndexTable.merge"
    )
