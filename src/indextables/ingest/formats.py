"""The formats of inputs: found by name or by content, and the source that reads each."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from indextables.errors import InvalidOptionError
from indextables.ingest.inputs import Input
from indextables.ingest.source import ReadOptions, Source


class Format(StrEnum):
    """The supported formats."""

    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    LINES = "lines"
    PARQUET = "parquet"
    ARROW = "arrow"
    AVRO = "avro"


_OF_SUFFIX: Final = {
    "csv": Format.CSV,
    "tsv": Format.TSV,
    "tab": Format.TSV,
    "json": Format.JSON,
    "jsonl": Format.JSON,
    "ndjson": Format.JSON,
    "parquet": Format.PARQUET,
    "arrow": Format.ARROW,
    "arrows": Format.ARROW,
    "feather": Format.ARROW,
    "ipc": Format.ARROW,
    "avro": Format.AVRO,
    "log": Format.LINES,
    "txt": Format.LINES,
}
_COMPRESSIONS: Final = frozenset({"gz", "gzip", "zst", "zstd", "bz2", "xz"})
_OF_MAGIC: Final = (
    (b"PAR1", Format.PARQUET),
    (b"ARROW1", Format.ARROW),
    (b"Obj\x01", Format.AVRO),
)
_HEAD_BYTES: Final = 4096
_JSON_START: Final = re.compile(rb'\s*(\{\s*("|\}|$)|\[\s*(\{\s*"|\]|$))')


def format_of_name(name: str) -> Format | None:
    """The format that a name shows, apart from its compression."""
    suffixes = name.lower().rpartition("/")[2].split(".")[1:]
    while suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return _OF_SUFFIX.get(suffixes[-1]) if suffixes else None


def format_of(source: Input) -> Format:
    """The format of an input, by its content if its name leaves it open. Raises InvalidOptionError."""
    named = format_of_name(source.name)
    head = source.head(_HEAD_BYTES)
    by_content = next((format_ for magic, format_ in _OF_MAGIC if head.startswith(magic)), None)
    if by_content is not None:
        return by_content
    # Logs are JSON lines as often as plain text.
    if named in (None, Format.LINES) and _JSON_START.match(head):
        return Format.JSON
    if named is None:
        raise InvalidOptionError(
            f"the format of {source.name} cannot be told from its name or its content; pass --format "
            f"{', '.join(Format)}"
        )
    return named


def open_source(source: Input, format_: Format, options: ReadOptions) -> Source:
    """The reader of an input."""
    return _SOURCES[format_](source, options)


def _csv(source: Input, options: ReadOptions) -> Source:
    from indextables.ingest.delimited import csv_source

    return csv_source(source, options)


def _tsv(source: Input, options: ReadOptions) -> Source:
    return _csv(source, replace(options, delimiter=options.delimiter or "\t"))


def _lines(source: Input, options: ReadOptions) -> Source:
    from indextables.ingest.delimited import lines_source

    return lines_source(source, options)


def _json(source: Input, options: ReadOptions) -> Source:
    from indextables.ingest.json_source import JsonSource

    return JsonSource(source, options)


def _typed(format_: Format) -> Callable[[Input, ReadOptions], Source]:
    def open_typed(source: Input, options: ReadOptions) -> Source:
        from indextables.ingest.typed_source import TypedSource

        return TypedSource(source, options, format_.value)

    return open_typed


_SOURCES: Final[dict[Format, Callable[[Input, ReadOptions], Source]]] = {
    Format.CSV: _csv,
    Format.TSV: _tsv,
    Format.LINES: _lines,
    Format.JSON: _json,
    **{format_: _typed(format_) for format_ in (Format.PARQUET, Format.ARROW, Format.AVRO)},
}
