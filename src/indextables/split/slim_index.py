"""Slim indexes: no stored documents, no field norms where values are single terms, one segment in row order.

Tantivy's Python package has no options for these and no call that merges segments. So this module writes and edits
the files by which Tantivy is told what to do, before its writer starts and after it has ended.
"""

import contextlib
import shutil
import struct
import tempfile
import uuid
import zlib
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import tantivy

from indextables._caching import shared_memo
from indextables.errors import SplitWriteError
from indextables.split.doc_mapping import ROW_FIELD, DocMapping
from indextables.split.index_files import META_FILE

# Tantivy's limits for one thread.
MIN_HEAP_BYTES: Final = 15_000_000
MAX_HEAP_BYTES: Final = 4_000_000_000

# Documents are not worth compressing, because none of their fields is stored.
_BUILD_SETTINGS: Final = {"docstore_compression": "none", "docstore_compress_dedicated_thread": False}

# Sorted segments cost more to write, but Tantivy may merge them at any time.
_SORTED: Final = {"sort_by_field": {"field": ROW_FIELD, "order": "Asc"}}

# Every file ends with JSON that holds the version and the CRC-32 of the bytes before, its length, and a magic number.
_FILE_END: Final = struct.Struct("<II")
_FILE_MAGIC: Final = 1337

# A `.store` ends with its version, the offset of its index of blocks, and a compressor.
_STORE_END: Final = struct.Struct("<IQB15x")
_STORE_VERSION: Final = 2
_NO_BLOCKS: Final = b"\x80"  # the variable-length integer 0

# Tantivy's merge policy waits for this number of segments of about the same size.
_SEGMENTS_PER_MERGE: Final = 8

# Tantivy writes nothing to it before it completes a segment.
_LAST_FILE: Final = ".term"

# So many row numbers are compared at a time.
_ORDER_STEP: Final = 64 * 1024


class RowsOutOfOrderError(SplitWriteError):
    """Tantivy has merged segments that are not sorted, so that documents are no longer in row order."""


# One thread writes segments in row order, sorted or not. But a merge of segments that are not sorted puts the larger
# ones first, and Tantivy merges eight segments at any time. So an index is not sorted until the heap overflows for the
# first time, which most indexes never see.


class SegmentWatch:
    """Watches the directory of an index that is not sorted, while it is written.

    `only_segment` is the segment that Tantivy was still writing when there was no other one, and so not merged.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.only_segment: str | None = None

    def has_overflowed(self) -> bool:
        """Whether there is more than one segment."""
        files = {path.name: path for path in self._directory.iterdir()}
        segments = {name.partition(".")[0] for name in files if name[0] != "." and name != META_FILE}
        if len(segments) == 1 and not any(
            _has_bytes(files[name]) for name in files if name.endswith(_LAST_FILE)
        ):
            (self.only_segment,) = segments
        return len(segments) > 1


def create_index(directory: Path, mapping: DocMapping, *, is_sorted: bool = False) -> tantivy.Index:
    """Create an index without rows in an empty directory. If it is not sorted, watch its segments."""
    schema = orjson.loads(_slim_schema(mapping))
    settings = _BUILD_SETTINGS | (_SORTED if is_sorted else {})
    _write_meta(directory, {"index_settings": settings, "segments": [], "schema": schema, "opstamp": 0})
    return _open(directory, mapping)


def sort_index(directory: Path, mapping: DocMapping) -> tantivy.Index:
    """Have a committed index sort and merge by row number from now on. No writer may be active.

    Raises RowsOutOfOrderError if that is too late.
    """
    _check_order(directory, mapping)
    meta = _read_meta(directory)
    _write_meta(directory, {**meta, "index_settings": _BUILD_SETTINGS | _SORTED})
    return _open(directory, mapping)


def complete_index(directory: Path, mapping: DocMapping, only_segment: str | None = None) -> None:
    """Reduce a committed index to what searches need. No writer may be active.

    `only_segment` is what a watch found. Raises SplitWriteError if segments cannot be merged, and RowsOutOfOrderError.
    """
    meta = _read_meta(directory)
    is_sorted = meta["index_settings"].keys() >= _SORTED.keys()
    if not is_sorted and [_segment_name(segment) for segment in meta["segments"]] != [only_segment]:
        _check_order(directory, mapping)
    if len(meta["segments"]) > 1:
        _write_meta(directory, {**meta, "index_settings": _BUILD_SETTINGS | _SORTED})
        _merge_segments(directory, mapping)
    meta = _read_meta(directory)
    for segment in meta["segments"]:
        _empty_store(_segment_file(directory, segment, ".store"))
    _write_meta(directory, {**meta, "index_settings": _BUILD_SETTINGS})


def _has_bytes(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # a merge has removed it
        return path.stat().st_size > 0
    return True


def _check_order(directory: Path, mapping: DocMapping) -> None:
    """Raise RowsOutOfOrderError unless the documents of every segment are in row order."""
    index = _open(directory, mapping)
    # Its watcher must not read files that are about to change.
    index.config_reader("manual")
    searcher = index.searcher()
    for number, segment in enumerate(_read_meta(directory)["segments"]):
        last = -1
        for start in range(0, segment["max_doc"], _ORDER_STEP):
            end = min(start + _ORDER_STEP, segment["max_doc"])
            addresses = list(map(tantivy.DocAddress, repeat(number), range(start, end)))
            rows = np.array([last, *searcher.fast_field_values(ROW_FIELD, addresses)])
            if (np.diff(rows) <= 0).any():
                raise RowsOutOfOrderError(
                    f"Tantivy has merged segments of the index in {directory} out of row order; raise "
                    f"spark.indextables.indexWriter.heapSize"
                )
            last = int(rows[-1])


@shared_memo("split.slim_index.schemas", "schemas of slim indexes as JSON", max_entries=64)
def _slim_schema(mapping: DocMapping) -> bytes:
    # What a schema is pickled as is what Tantivy writes into meta.json.
    pickled: Any = mapping.tantivy_schema().__reduce__()[1][0]
    schema = pickled["inner"]
    without_norms = {field.index_name for field in mapping if not field.has_norms}
    for field in schema:
        if field["name"] in without_norms and "indexing" in field["options"]:
            field["options"]["indexing"]["fieldnorms"] = False
    return orjson.dumps(schema)


# Segments are merged by Tantivy's merge policy. It merges eight segments at once if they hold about as many documents,
# and ignores those above ten million. It takes these numbers from meta.json, but a merge takes the documents that are
# left of a segment from its `.del` file. So meta.json claims for a moment that every segment has one document left,
# while the `.del` files keep all rows, and placeholders without any document make up the number.


def _merge_segments(directory: Path, mapping: DocMapping) -> None:
    meta = _read_meta(directory)
    segments = meta["segments"]
    row_count = sum(segment["max_doc"] for segment in segments)
    placeholders = _add_placeholders(directory, mapping, _SEGMENTS_PER_MERGE - len(segments))
    for segment in segments:
        _claim_one_document(directory, segment, meta["opstamp"], is_alive=True)
    for segment in placeholders:
        _claim_one_document(directory, segment, meta["opstamp"], is_alive=False)
    _write_meta(directory, {**meta, "segments": [*segments, *placeholders]})
    writer = _open(directory, mapping).writer(MIN_HEAP_BYTES, num_threads=1)
    writer.commit()
    writer.wait_merging_threads()
    merged = [(segment["max_doc"], segment["deletes"]) for segment in _read_meta(directory)["segments"]]
    if merged != [(row_count, None)]:
        raise SplitWriteError(
            f"Tantivy did not merge the {len(segments)} segments of the index in {directory}; free disk space, or, "
            f"if this is another version of Tantivy than 0.27, raise spark.indextables.indexWriter.heapSize"
        )
    for segment in [*segments, *placeholders]:
        for path in directory.glob(f"{_segment_name(segment)}.*"):
            path.unlink()


def _add_placeholders(directory: Path, mapping: DocMapping, count: int) -> list[dict[str, Any]]:
    """Add the files of segments with one document, in front of row 0 and without values."""
    # Tantivy's thread that watches an index may create its lock again while the folder is removed. What is then left of
    # it goes with `directory`.
    with tempfile.TemporaryDirectory(
        prefix="placeholder-", dir=directory, ignore_cleanup_errors=True
    ) as scratch:
        template = Path(scratch)
        writer = create_index(template, mapping).writer(MIN_HEAP_BYTES, num_threads=1)
        document = tantivy.Document()
        document.add_integer(ROW_FIELD, -1)
        writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        (segment,) = _read_meta(template)["segments"]
        files = list(template.glob(f"{_segment_name(segment)}.*"))
        # A segment that has no document left is not merged, so there must have been two.
        placeholders = [{"segment_id": str(uuid.uuid4()), "max_doc": 2} for _ in range(count)]
        for placeholder in placeholders:
            for path in files:
                shutil.copyfile(path, _segment_file(directory, placeholder, path.suffix))
    return placeholders


def _claim_one_document(directory: Path, segment: dict[str, Any], opstamp: int, *, is_alive: bool) -> None:
    """Have meta.json claim that one document is left, while the `.del` file says that all are alive, or none."""
    count = segment["max_doc"]
    segment["deletes"] = {"num_deleted_docs": count - 1, "opstamp": opstamp}
    bits = np.packbits(np.full(count, is_alive), bitorder="little").tobytes()
    words = bits.ljust(-(-count // 64) * 8, b"\0")
    version = _read_end(_segment_file(directory, segment, ".fast"), 0)[1]
    _write_file(
        _segment_file(directory, segment, f".{opstamp}.del"), struct.pack("<I", count) + words, version
    )


def _empty_store(path: Path) -> None:
    """Remove the documents, which are empty, from a `.store`. Tantivy refuses to open a segment without one."""
    end, version = _read_end(path, _STORE_END.size)
    store_version, _, compressor = _STORE_END.unpack(end)
    if store_version == _STORE_VERSION:
        _write_file(path, _NO_BLOCKS + _STORE_END.pack(store_version, 0, compressor), version)


def _read_end(path: Path, size: int) -> tuple[bytes, dict[str, Any]]:
    """Return the last bytes of the content of a file, and the version of its format."""
    with path.open("rb") as file:
        json_end = file.seek(-_FILE_END.size, 2)
        json_length, magic = _FILE_END.unpack(file.read())
        if magic != _FILE_MAGIC:
            raise SplitWriteError(f"{path} does not end like the files of Tantivy 0.27; install that version")
        file.seek(json_end - json_length - size)
        content = file.read(size)
        version: dict[str, Any] = orjson.loads(file.read(json_length))["version"]
    return content, version


def _write_file(path: Path, content: bytes, version: dict[str, Any]) -> None:
    end = orjson.dumps({"version": version, "crc": zlib.crc32(content)})
    # A file that Tantivy has mapped into memory must not become shorter: a thread of an index that was closed just now
    # may still read it.
    new = path.with_name(f".{path.name}")
    new.write_bytes(content + end + _FILE_END.pack(len(end), _FILE_MAGIC))
    new.replace(path)


def _segment_file(directory: Path, segment: dict[str, Any], ending: str) -> Path:
    return directory / f"{_segment_name(segment)}{ending}"


def _segment_name(segment: dict[str, Any]) -> str:
    name: str = segment["segment_id"].replace("-", "")
    return name


def _open(directory: Path, mapping: DocMapping) -> tantivy.Index:
    index = tantivy.Index.open(str(directory))
    mapping.register_tokenizers(index)
    return index


def _read_meta(directory: Path) -> dict[str, Any]:
    meta: dict[str, Any] = orjson.loads((directory / META_FILE).read_bytes())
    return meta


def _write_meta(directory: Path, meta: dict[str, Any]) -> None:
    (directory / META_FILE).write_bytes(orjson.dumps(meta))
