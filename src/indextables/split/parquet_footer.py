"""The metadata of a Parquet file as Thrift structs: an entry is added to it, and it is reduced to some pages.

The numbers are the field ids of the Parquet format.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from indextables.split.thrift import Items, Struct, decode_struct, encode_struct, i64, structs

PARQUET_MAGIC: Final = b"PAR1"
# A Parquet file ends with the length of its metadata and four magic bytes.
PARQUET_TAIL_BYTES: Final = 8

_SCHEMA, _NUM_ROWS, _ROW_GROUPS, _ENTRIES, _COLUMN_ORDERS = 2, 3, 4, 5, 7
_NAME, _NUM_CHILDREN, _REPETITION = 4, 5, 3
_REPEATED: Final = 2
_COLUMNS, _TOTAL_SIZE, _GROUP_ROWS = 1, 2, 3
_META_DATA, _OFFSET_INDEX, _OFFSET_INDEX_SIZE, _COLUMN_INDEX, _COLUMN_INDEX_SIZE = 3, 4, 5, 6, 7
_PATH, _STATISTICS = 3, 12
_NUM_VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 5, 6, 7, 9, 11
# What a reader needs of a column chunk besides its places: type, encodings, path and codec.
_KEPT: Final = (1, 2, 3, 4)


class PagesPlace(NamedTuple):
    """The pages of one leaf in one row group, in a file of selected pages."""

    num_values: int
    size: int
    data_page: int
    dictionary_page: int | None


class Leaf(msgspec.Struct, frozen=True):
    """A leaf column: its number, and whether a row may have several values of it, or none."""

    number: int
    is_repeated: bool


def detach_metadata(path: Path) -> Struct:
    """Cut the metadata off a Parquet file, and return it. Raises OSError, and ValueError if there is none."""
    with path.open("r+b") as file:
        file.seek(-PARQUET_TAIL_BYTES, 2)
        end = file.tell()
        length = int.from_bytes(file.read(4), "little")
        file.seek(end - length)
        metadata, _ = decode_struct(file.read(length))
        file.truncate(end - length)
    return metadata


def metadata_with_entry(metadata: Struct, key: bytes, value: bytes) -> bytes:
    """Encode metadata with one more entry, the last one."""
    entries = metadata[_ENTRIES].values if _ENTRIES in metadata else []
    return encode_struct({**metadata, _ENTRIES: structs([*entries, {1: key, 2: value}])})


def without_statistics(metadata: Struct, chunks: Collection[tuple[int, str]]) -> Struct:
    """Return the metadata without the bounds of some chunks: pairs of a row group and a top-level column."""
    groups = []
    for number, group in enumerate(metadata[_ROW_GROUPS].values):
        columns = [
            _without_bounds(chunk) if (number, _top_level_name(chunk)) in chunks else chunk
            for chunk in group[_COLUMNS].values
        ]
        groups.append({**group, _COLUMNS: structs(columns)})
    return {**metadata, _ROW_GROUPS: structs(groups)}


def _without_bounds(chunk: Struct) -> Struct:
    meta = {field: value for field, value in chunk[_META_DATA].items() if field != _STATISTICS}
    kept = {
        field: value for field, value in chunk.items() if field not in (_COLUMN_INDEX, _COLUMN_INDEX_SIZE)
    }
    return {**kept, _META_DATA: meta}


def _top_level_name(chunk: Struct) -> str:
    path = chunk[_META_DATA][_PATH].values
    return str(path[0].decode()) if len(path) == 1 else ""


def uncompressed_bytes(metadata: Struct) -> int:
    """Return the size of all row groups before compression."""
    return sum(int(group[_TOTAL_SIZE].value) for group in metadata[_ROW_GROUPS].values)


def column_chunks(metadata: Struct) -> list[list[Struct]]:
    """Return the column chunks of each row group, by leaf."""
    return [group[_COLUMNS].values for group in metadata[_ROW_GROUPS].values]


def rows_of_groups(metadata: Struct) -> list[int]:
    """Return the number of rows of each row group."""
    return [int(group[_GROUP_ROWS].value) for group in metadata[_ROW_GROUPS].values]


def offset_index_place(chunk: Struct) -> tuple[int, int] | None:
    """Return the byte range of the places of a chunk's pages."""
    return _place(chunk, _OFFSET_INDEX, _OFFSET_INDEX_SIZE)


def column_index_place(chunk: Struct) -> tuple[int, int] | None:
    """Return the byte range of the statistics of a chunk's pages."""
    return _place(chunk, _COLUMN_INDEX, _COLUMN_INDEX_SIZE)


def dictionary_place(chunk: Struct) -> tuple[int, int] | None:
    """Return the byte range of a chunk's dictionary; None if it has none."""
    meta = chunk[_META_DATA]
    if _DICTIONARY_PAGE not in meta or meta[_DICTIONARY_PAGE].value <= 0:
        return None
    return meta[_DICTIONARY_PAGE].value, meta[_DATA_PAGE].value


def _place(chunk: Struct, start: int, size: int) -> tuple[int, int] | None:
    if start not in chunk or size not in chunk:
        return None
    return chunk[start].value, chunk[start].value + chunk[size].value


class RowsSchema:
    """The schema of a Parquet file, by top-level column."""

    def __init__(self, metadata: Struct) -> None:
        elements: list[Struct] = metadata[_SCHEMA].values
        self._root = elements[0]
        self._elements: dict[str, list[Struct]] = {}
        self.leaves: dict[str, list[Leaf]] = {}
        position, leaf = 1, 0
        while position < len(elements):
            end, is_repeated = _subtree(elements, position, is_repeated=False)
            name = elements[position][_NAME].decode()
            self._elements[name] = elements[position:end]
            self.leaves[name] = [Leaf(leaf + number, repeated) for number, repeated in enumerate(is_repeated)]
            leaf += len(is_repeated)
            position = end

    def selected(self, columns: Sequence[str]) -> Items:
        """Return the schema of a file with only these columns."""
        chosen = [element for name in columns for element in self._elements[name]]
        root = {**self._root, _NUM_CHILDREN: self._root[_NUM_CHILDREN]._replace(value=len(columns))}
        return structs([root, *chosen])


def _subtree(elements: list[Struct], position: int, *, is_repeated: bool) -> tuple[int, list[bool]]:
    """Return the position after an element and its children, and whether each of its leaves is repeated."""
    element = elements[position]
    repetition = element.get(_REPETITION)
    is_repeated = is_repeated or (repetition is not None and repetition.value == _REPEATED)
    children = element[_NUM_CHILDREN].value if _NUM_CHILDREN in element else 0
    position += 1
    if not children:
        return position, [is_repeated]
    leaves: list[bool] = []
    for _ in range(children):
        position, found = _subtree(elements, position, is_repeated=is_repeated)
        leaves += found
    return position, leaves


def encode_selected(
    metadata: Struct, schema: Items, groups: Sequence[tuple[int, Sequence[tuple[Struct, PagesPlace]]]]
) -> bytes:
    """Encode the metadata of a file of selected pages: for each row group, its rows and the pages of each leaf."""
    row_groups = []
    for num_rows, chunks in groups:
        columns = [_chunk_of(chunk, pages) for chunk, pages in chunks]
        size = sum(pages.size for _, pages in chunks)
        row_groups.append({_COLUMNS: structs(columns), _TOTAL_SIZE: i64(size), _GROUP_ROWS: i64(num_rows)})
    selected = {field: value for field, value in metadata.items() if field not in (_ENTRIES, _COLUMN_ORDERS)}
    selected |= {
        _SCHEMA: schema,
        _NUM_ROWS: i64(sum(num_rows for num_rows, _ in groups)),
        _ROW_GROUPS: structs(row_groups),
    }
    return encode_struct(selected)


def _chunk_of(chunk: Struct, pages: PagesPlace) -> Struct:
    meta = {field: chunk[_META_DATA][field] for field in _KEPT}
    meta |= {
        _NUM_VALUES: i64(pages.num_values),
        _UNCOMPRESSED: i64(pages.size),
        _COMPRESSED: i64(pages.size),
        _DATA_PAGE: i64(pages.data_page),
    }
    start = pages.data_page
    if pages.dictionary_page is not None:
        meta[_DICTIONARY_PAGE] = i64(pages.dictionary_page)
        start = pages.dictionary_page
    return {2: i64(start), _META_DATA: meta}
