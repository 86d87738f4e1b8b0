"""The work of a merge: reads the rows of a group of splits, and indexes them again into one new split.

The new split is indexed like its sources, even if the table's settings have changed since.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.config import Settings
from indextables.config.registry import INDEX_WRITER_HEAP_SIZE
from indextables.errors import (
    IndexTablesError,
    InvalidSchemaError,
    InvalidValueError,
    SplitCorruptedError,
    StorageError,
    UnsupportedSplitError,
)
from indextables.ops.read import SplitRef
from indextables.ops.runner import Interruption, Task, TaskStore
from indextables.ops.write import delete_quietly
from indextables.schema import TableShape, canonical_schema
from indextables.split.builder import CHUNK_BYTES, CHUNK_ROWS
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.index_builder import DocumentEncoder
from indextables.split.split import Split, SplitFile
from indextables.split.writer import SplitWriter, WriterOptions, conform
from indextables.storage import relative_key

# Errors of a source. The merge continues without it.
_BAD_SOURCE: Final = (
    InvalidSchemaError,
    InvalidValueError,
    SplitCorruptedError,
    UnsupportedSplitError,
    StorageError,
)

# A group becomes exactly one split: the plan has limited its size.
_NO_LIMIT: Final = 1 << 62

# The kinds of fields that a string column can be indexed as.
_TEXT_KINDS: Final = frozenset(
    {FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON, FieldKind.IP, FieldKind.NOTHING}
)


class MergeSource(msgspec.Struct, frozen=True):
    """A split to merge, and what the new split inherits from it."""

    ref: SplitRef
    num_merge_ops: int = 0
    split_tags: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.ref.path


class BadSource(msgspec.Struct, frozen=True):
    """A split that could not be merged, and why. It stays live."""

    path: str
    reason: str


class MergedGroup(msgspec.Struct, frozen=True):
    """The outcome of a group: `files` replace `sources`.

    Both are empty if fewer than two sources are readable, unless the only one has deleted rows.
    """

    sources: tuple[MergeSource, ...] = ()
    files: tuple[SplitFile, ...] = ()
    bad_sources: tuple[BadSource, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeTask(Task[MergedGroup]):
    """Merges one group, without its unreadable sources. Holds only a few batches in memory."""

    store: TaskStore
    shape: TableShape
    settings: Settings = field(repr=False)
    sources: tuple[MergeSource, ...]

    def run(self, interruption: Interruption) -> MergedGroup:
        """Upload one split with the rows of all readable sources.

        With nothing uploaded, raises SplitWriteError and StorageError for failures outside of the sources, and
        OperationInterruptedError.
        """
        bad: dict[str, str] = {}
        while True:
            sources = self._open_sources(bad, interruption)
            if not sources or (len(sources) == 1 and not sources[0].split.num_deleted):
                return MergedGroup(bad_sources=_bad_sources(bad))
            mapping = merged_mapping([source.split.mapping for source in sources], self.shape, self.settings)
            merged = tuple(source.source for source in sources)
            # The new split already has rows of a source that turns out to be bad: start over without it.
            try:
                return MergedGroup(merged, self._rewrite(sources, mapping, interruption), _bad_sources(bad))
            except _BadSourceError as error:
                bad[error.path] = error.reason
            except InvalidValueError:
                unindexable = self._unindexable(merged, mapping, interruption)
                if not unindexable:
                    raise
                bad |= unindexable

    def discard(self, result: MergedGroup) -> None:
        delete_quietly(self.store.store, [file.path for file in result.files])

    def _open_sources(self, bad: dict[str, str], interruption: Interruption) -> "deque[_OpenSource]":
        opened: deque[_OpenSource] = deque()
        for source in self.sources:
            if source.path in bad:
                continue
            interruption.check()
            try:
                opened.append(self._open(source))
            except _BAD_SOURCE as error:
                bad[source.path] = _reason(error)
        return opened

    def _open(self, source: MergeSource) -> "_OpenSource":
        store, ref = self.store.store, source.ref
        split = ref.open(store, self.shape)
        if ref.num_records is not None and ref.num_records != split.num_records:
            raise SplitCorruptedError(
                f"{store.url}: {ref.path} holds {split.num_records} rows, but the log records {ref.num_records}"
            )
        if split.unreadable_columns:
            raise UnsupportedSplitError(
                f"{store.url}: {ref.path} has columns that are indexed but not stored "
                f"({', '.join(split.unreadable_columns)}); a merge would lose them"
            )
        return _OpenSource(source, split)

    def _rewrite(
        self, sources: "deque[_OpenSource]", mapping: DocMapping, interruption: Interruption
    ) -> tuple[SplitFile, ...]:
        tags = {tag for source in sources for tag in source.source.split_tags}
        expected = sum(source.num_rows for source in sources)
        store = self.store.store
        options = WriterOptions(
            target_bytes=_NO_LIMIT,
            heap_bytes=self.settings[INDEX_WRITER_HEAP_SIZE],
            split_tags=tuple(sorted(tags)),
            merged_from=tuple(relative_key(source.source.path, store.url) for source in sources),
        )
        with SplitWriter(store, self.shape, self.settings, options, mapping=mapping) as writer:
            for rows in _joined(self._rows(sources, interruption)):
                interruption.check()
                writer.write(rows)
            interruption.check()
            files = writer.commit()
        written = sum(file.num_records for file in files)
        if written != expected:
            delete_quietly(store, [file.path for file in files])
            raise SplitCorruptedError(
                f"{store.url}: the merge wrote {written} rows, but its sources have {expected}; check them with fsck"
            )
        return files

    def _rows(self, sources: "deque[_OpenSource]", interruption: Interruption) -> Iterator[pa.Table]:
        """Yield the rows of all sources. Raises _BadSourceError for a source that does not have the rows it should."""
        schema = canonical_schema(self.shape.schema)
        while sources:
            interruption.check()
            # popleft releases each source once it is read: an open split may hold files and memory.
            source = sources.popleft()
            count = 0
            try:
                for batch in source.split.scan():
                    count += batch.num_rows
                    yield conform(batch, schema)
            except _BAD_SOURCE as error:
                raise _BadSourceError(source.source.path, _reason(error)) from error
            if count != source.num_rows:
                raise _BadSourceError(
                    source.source.path, f"only {count} of its {source.num_rows} rows can be read"
                )

    def _unindexable(
        self, sources: Sequence[MergeSource], mapping: DocMapping, interruption: Interruption
    ) -> dict[str, str]:
        """Find the sources with values that do not fit the mapping, and why: rows are indexed many sources at once."""
        encoder = DocumentEncoder(mapping)
        bad: dict[str, str] = {}
        for source in sources:
            interruption.check()
            try:
                for batch in self._open(source).split.scan():
                    deque(encoder.documents(batch, 0), maxlen=0)
            except _BAD_SOURCE as error:
                bad[source.path] = _reason(error)
        return bad


def merged_mapping(mappings: Sequence[DocMapping], shape: TableShape, settings: Settings) -> DocMapping:
    """The doc mapping of a split that replaces splits with the given mappings.

    A column keeps its mapping if all sources agree. Where they differ, the table's settings for the column decide.
    Without a setting, a source that indexes it as text wins, so that full-text search keeps working. Raises
    InvalidOptionError for settings that do not fit the schema.
    """
    configured = mapping_from_settings(shape, settings)
    plain = mapping_from_settings(shape, Settings())
    distinct = list(dict.fromkeys(mappings))
    fields = zip(configured.fields, plain.fields, strict=True)
    return DocMapping(tuple(_merged_field(current, default, distinct) for current, default in fields))


class _OpenSource(msgspec.Struct, frozen=True):
    source: MergeSource
    split: Split

    @property
    def num_rows(self) -> int:
        """The number of rows to merge: those that are not deleted."""
        return self.split.num_records - self.split.num_deleted


class _BadSourceError(Exception):
    """A source failed while its rows were read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path)
        self.path = path
        self.reason = reason


def _joined(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join rows to large tables, because every table that is written has its price."""
    waiting: list[pa.Table] = []
    num_rows = num_bytes = 0
    for table in tables:
        waiting.append(table)
        num_rows += table.num_rows
        num_bytes += table.nbytes
        if num_rows >= CHUNK_ROWS or num_bytes >= CHUNK_BYTES:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, num_rows, num_bytes = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _reason(error: IndexTablesError) -> str:
    return f"{type(error).__name__}: {error}"


def _bad_sources(bad: dict[str, str]) -> tuple[BadSource, ...]:
    return tuple(BadSource(path, reason) for path, reason in bad.items())


def _merged_field(
    current: FieldMapping, default: FieldMapping, mappings: Sequence[DocMapping]
) -> FieldMapping:
    found = (mapping.find(current.name) for mapping in mappings)
    previous = list(
        dict.fromkeys(
            replace(field, name=current.name, stored_name=current.stored_name)
            for field in found
            if field is not None and _fits(field, default)
        )
    )
    if not previous:
        return current
    if len(previous) == 1:
        return previous[0]
    if current != default:
        return current
    return next((field for field in previous if field.kind is FieldKind.TEXT), previous[0])


def _fits(field: FieldMapping, default: FieldMapping) -> bool:
    """Whether a column can still be indexed like this: its type may have changed since."""
    if default.kind is FieldKind.STRING:
        return field.kind in _TEXT_KINDS
    is_same_type = field.kind is default.kind and field.scale == default.scale
    return is_same_type or field.kind is FieldKind.NOTHING
