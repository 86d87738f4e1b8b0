"""What every reader of a format offers, and the choices that readers share."""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import msgspec
import pyarrow as pa

from indextables.ingest.bad_lines import BadLines
from indextables.ingest.columns import Columns, Target
from indextables.ingest.text import Encoding


class ReadOptions(msgspec.Struct, frozen=True):
    """How inputs are read. `delimiter` is found in the input if it is None; `column_names` are those without a header.

    `watch` is called with the raw file of each input that is opened, for the progress.
    """

    encoding: Encoding = Encoding()
    delimiter: str | None = None
    has_header: bool = True
    column_names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    watch: Callable[[BinaryIO], None] | None = None


class Source(Protocol):
    """One input in one format."""

    @property
    def name(self) -> str: ...

    def infer(self, columns: Columns, bad_lines: BadLines) -> Iterator[int]:
        """Read everything, and add to the columns. Yields the number of rows of each part."""
        ...

    def read(self, target: Target, bad_lines: BadLines) -> Iterator[pa.Table]:
        """Read everything, in the schema of the target."""
        ...
