"""How the rows of several splits are indexed together: as they were, whatever the settings of today say."""

from collections import deque
from collections.abc import Iterator, Sequence
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
from indextables.ops.uploads import delete_quietly
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping
from indextables.split.doc_mapping_settings import mapping_from_settings
from indextables.split.reader import open_split
from indextables.split.split import Split, SplitFile
from indextables.split.writer import SplitWriter, WriterOptions
from indextables.storage import relative_key

# What a column of text can be indexed as.
_TEXT_KINDS = frozenset({FieldKind.TEXT, FieldKind.STRING, FieldKind.JSON, FieldKind.IP, FieldKind.NOTHING})


def merged_mapping(
    mappings: Sequence[DocMapping],
    schema: pa.Schema,
    partition_columns: Sequence[str],
    settings: Settings,
) -> DocMapping:
    """The mapping of a split that replaces splits with these mappings.

    A column keeps its mapping if all sources have the same. Where they differ, what the settings say about the
    column counts; if they say nothing, a source in which it is searched by words, so that no search is lost.
    Raises InvalidOptionError for settings that do not fit the schema.
    """
    configured = mapping_from_settings(schema, partition_columns, settings)
    plain = mapping_from_settings(schema, partition_columns, Settings())
    distinct = list(dict.fromkeys(mappings))
    fields = zip(configured.fields, plain.fields, strict=True)
    return DocMapping(tuple(_merged(today, default, distinct) for today, default in fields))


def _merged(today: FieldMapping, default: FieldMapping, mappings: Sequence[DocMapping]) -> FieldMapping:
    found = (mapping.find(today.name) for mapping in mappings)
    before = list(
        dict.fromkeys(
            replace(field, name=today.name)
            for field in found
            if field is not None and _fits(field, default.kind)
        )
    )
    if not before:
        return today
    if len(before) == 1:
        return before[0]
    if today != default:
        return today
    return next((field for field in before if field.kind is FieldKind.TEXT), before[0])


def _fits(field: FieldMapping, natural: FieldKind) -> bool:
    """Whether a column, whose type may have changed since, can still be indexed like this."""
    if natural is FieldKind.STRING:
        return field.kind in _TEXT_KINDS
    return field.kind in (natural, FieldKind.NOTHING)


# The work of a merge: the rows of a group of splits, indexed again into one new split.


# Errors that are about a source: without it the merge can go on.
_BAD_ROWS: Final = (InvalidSchemaError, InvalidValueError)
_BAD_SOURCE: Final = (*_BAD_ROWS, SplitCorruptedError, UnsupportedSplitError, StorageError)

# A group becomes one split: it was planned by the size that a split may have.
_NO_LIMIT: Final = 1 << 62


class MergeSource(msgspec.Struct, frozen=True):
    """A split that is to be merged, and what its successor inherits."""

    ref: SplitRef
    num_merge_ops: int = 0
    split_tags: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path in the log."""
        return self.ref.path


class BadSource(msgspec.Struct, frozen=True):
    """A split that could not be merged, and why. It stays as it is."""

    path: str
    reason: str


class MergedGroup(msgspec.Struct, frozen=True):
    """What became of a group: `sources` are replaced by `files`; none of both if too few could be read."""

    sources: tuple[MergeSource, ...] = ()
    files: tuple[SplitFile, ...] = ()
    bad_sources: tuple[BadSource, ...] = ()


@dataclass(frozen=True, slots=True)
class MergeTask(Task[MergedGroup]):
    """Merges one group. Sources that cannot be read are left out; of the rest, memory holds a few batches."""

    store: TaskStore
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    settings: Settings = field(repr=False)
    sources: tuple[MergeSource, ...]

    def run(self, interruption: Interruption) -> MergedGroup:
        """Upload one split with the rows of all sources that can be read.

        Raises SplitWriteError and storage errors if that is not possible for reasons that are not in a source, and
        OperationInterruptedError; nothing is uploaded then.
        """
        bad: dict[str, str] = {}
        while True:
            sources = self._opened(bad, interruption)
            if len(sources) < 2:
                return MergedGroup(bad_sources=_bad_sources(bad))
            try:
                merged = tuple(source.source for source in sources)
                return MergedGroup(merged, self._rewrite(sources, interruption), _bad_sources(bad))
            except _BadSourceError as error:
                # Some of its rows are in the new split already: that one is begun again without them.
                bad[error.path] = error.reason

    def discard(self, result: MergedGroup) -> None:
        """Delete what was uploaded."""
        delete_quietly(self.store.store, [file.path for file in result.files])

    def _opened(self, bad: dict[str, str], interruption: Interruption) -> "deque[_OpenSource]":
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
        split = open_split(
            store,
            relative_key(ref.path, store.url),
            ref.size,
            ref.footer_start_offset,
            ref.footer_end_offset,
            schema=self.schema,
            partition_columns=self.partition_columns,
            partition_values=ref.partition_values,
        )
        if ref.num_records is not None and ref.num_records != split.num_records:
            raise SplitCorruptedError(
                f"{store.url}: {ref.path} holds {split.num_records} rows, where the log says {ref.num_records}"
            )
        if split.unreadable_columns:
            raise UnsupportedSplitError(
                f"{store.url}: {ref.path} has columns that are indexed and not stored "
                f"({', '.join(split.unreadable_columns)}); indexing its rows again would lose them"
            )
        return _OpenSource(source, split)

    def _rewrite(self, sources: "deque[_OpenSource]", interruption: Interruption) -> tuple[SplitFile, ...]:
        mapping = merged_mapping(
            [source.split.mapping for source in sources], self.schema, self.partition_columns, self.settings
        )
        tags = {tag for source in sources for tag in source.source.split_tags}
        expected = sum(source.split.num_records for source in sources)
        store = self.store.store
        options = WriterOptions(
            target_bytes=_NO_LIMIT,
            heap_bytes=self.settings[INDEX_WRITER_HEAP_SIZE],
            split_tags=tuple(sorted(tags)),
            merged_from=tuple(relative_key(source.source.path, store.url) for source in sources),
        )
        with SplitWriter(
            store, self.schema, self.partition_columns, self.settings, options, mapping=mapping
        ) as writer:
            while sources:
                # Let go of as soon as it is read: an open split may hold files and memory.
                _copy(sources.popleft(), writer, interruption)
            interruption.check()
            files = writer.commit()
        written = sum(file.num_records for file in files)
        if written != expected:
            delete_quietly(store, [file.path for file in files])
            raise SplitCorruptedError(
                f"{store.url}: {written} rows were written of {expected} that were to be merged"
            )
        return files


class _OpenSource(msgspec.Struct, frozen=True):
    source: MergeSource
    split: Split


class _BadSourceError(Exception):
    """A source turned out to be bad after some of its rows were copied."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path)
        self.path = path
        self.reason = reason


def _copy(source: _OpenSource, writer: SplitWriter, interruption: Interruption) -> None:
    count = 0
    for batch in _batches(source):
        interruption.check()
        count += batch.num_rows
        try:
            writer.write(batch)
        except _BAD_ROWS as error:
            raise _BadSourceError(source.source.path, _reason(error)) from error
    if count != source.split.num_records:
        raise _BadSourceError(
            source.source.path, f"only {count} of its {source.split.num_records} rows can be read"
        )


def _batches(source: _OpenSource) -> Iterator[pa.RecordBatch]:
    try:
        yield from source.split.scan()
    except _BAD_SOURCE as error:
        raise _BadSourceError(source.source.path, _reason(error)) from error


def _reason(error: IndexTablesError) -> str:
    return f"{type(error).__name__}: {error}"


def _bad_sources(bad: dict[str, str]) -> tuple[BadSource, ...]:
    return tuple(BadSource(path, reason) for path, reason in bad.items())
