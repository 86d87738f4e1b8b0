"""Reads the footers of splits. Our own splits describe themselves completely, splits of the JVM only in part."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from indextables.errors import AccessDeniedError, IndexTablesError, TransientStorageError
from indextables.log.actions import AddAction
from indextables.ops.repair.report import Problem
from indextables.ops.runner import Interruption, Runner, Task, TaskStore, results
from indextables.ops.write import add_of
from indextables.split.bundle import Bundle, SplitInfo, read_bundle
from indextables.split.doc_mapping import DocMapping
from indextables.split.index_files import META_FILE
from indextables.split.jvm import IndexedField, decode_meta
from indextables.split.jvm_bundle import JvmBundle, read_member
from indextables.split.split import SplitFile
from indextables.storage import ObjectMeta, ObjectStore, unescape_partition_value

_SPLITS_PER_TASK: Final = 16


class OwnDescription(msgspec.Struct, frozen=True):
    """What our own splits record about their table, and splits of the JVM do not."""

    schema_string: str
    partition_columns: tuple[str, ...]
    mapping: DocMapping
    created_ms: int
    merged_from: tuple[str, ...]


class FoundSplit(msgspec.Struct, frozen=True):
    """A readable split, and the action that adds it to the log.

    `own` is None for a split of the JVM. Its `fields` are those of its index; its partition values come from its path.
    """

    add: AddAction
    own: OwnDescription | None = None
    fields: tuple[IndexedField, ...] = ()

    @property
    def path(self) -> str:
        """Its key below the table's root."""
        return self.add.path

    @property
    def merged_from(self) -> tuple[str, ...]:
        """The sources of a merged split, as far as it records them."""
        return self.own.merged_from if self.own is not None else ()

    @property
    def is_merged_on_the_jvm(self) -> bool:
        """Whether its name is one that JVM merges give. Such a split does not record its sources."""
        return self.own is None and not self.path.rpartition("/")[2].startswith("part-")


class SplitSurvey(msgspec.Struct, frozen=True):
    """The readable and the unreadable splits, by path."""

    found: dict[str, FoundSplit]
    unreadable: dict[str, Problem]


def survey_splits(store: TaskStore, stored: pa.Table, runner: Runner) -> SplitSurvey:
    """Read the footers of splits. Raises AccessDeniedError and TransientStorageError, which prove no damage."""
    metas = [
        ObjectMeta(*values)
        for values in zip(*(stored[name].to_pylist() for name in ("path", "size", "modifiedMs")), strict=True)
    ]
    tasks = [
        DescribeSplits(store, tuple(metas[start : start + _SPLITS_PER_TASK]))
        for start in range(0, len(metas), _SPLITS_PER_TASK)
    ]
    found: dict[str, FoundSplit] = {}
    unreadable: dict[str, Problem] = {}
    shared: dict[Hashable, Any] = {}
    for batch in results(runner, "reading the footers of splits", tasks):
        for split in batch:
            if isinstance(split, FoundSplit):
                found[split.path] = _with_shared_values(split, shared)
            else:
                unreadable[split.path] = split
    return SplitSurvey(dict(sorted(found.items())), dict(sorted(unreadable.items())))


@dataclass(frozen=True, slots=True)
class DescribeSplits(Task[tuple[FoundSplit | Problem, ...]]):
    """Reads the footers of a batch of splits: what each one records, or why it is unreadable."""

    store: TaskStore
    metas: tuple[ObjectMeta, ...]

    def run(self, interruption: Interruption) -> tuple[FoundSplit | Problem, ...]:
        described: list[FoundSplit | Problem] = []
        for meta in self.metas:
            interruption.check()
            described.append(_describe(self.store.store, meta))
        return tuple(described)


def values_of_path(path: str) -> dict[str, str | None]:
    """The partition values in the folder names of a path. Folder names do not distinguish null from empty strings."""
    named = (folder.partition("=") for folder in path.split("/")[:-1])
    return {
        unescape_partition_value(name) or name: unescape_partition_value(value)
        for name, sign, value in named
        if sign and name
    }


def mappings_of(splits: Iterable[FoundSplit]) -> dict[str, str]:
    """The doc mappings of our own splits, by hash."""
    distinct = dict.fromkeys(split.own.mapping for split in splits if split.own is not None)
    return {mapping.hash: mapping.to_json() for mapping in distinct}


def newest_first(splits: Iterable[FoundSplit]) -> Sequence[OwnDescription]:
    """The descriptions in our own splits, the newest first."""
    own = [split.own for split in splits if split.own is not None]
    return sorted(own, key=lambda description: description.created_ms, reverse=True)


def _with_shared_values(split: FoundSplit, shared: dict[Hashable, Any]) -> FoundSplit:
    """The same split; values that the splits of a table have in common are kept in memory once."""
    if split.own is None:
        return replace(split, fields=shared.setdefault(split.fields, split.fields))
    own = replace(
        split.own,
        schema_string=shared.setdefault(split.own.schema_string, split.own.schema_string),
        mapping=shared.setdefault(split.own.mapping, split.own.mapping),
    )
    return replace(split, own=own)


def _describe(store: ObjectStore, meta: ObjectMeta) -> FoundSplit | Problem:
    try:
        bundle = read_bundle(store, meta.key, meta.size)
        place = f"{store.url}: {meta.key}"
        if isinstance(bundle, Bundle):
            return _describe_own(meta, bundle, bundle.info)
        index = decode_meta(read_member(store, meta.key, bundle, META_FILE), place)
        return FoundSplit(_jvm_add(meta, bundle, index.num_docs), fields=tuple(index.fields.values()))
    except (AccessDeniedError, TransientStorageError):
        raise  # the store failed: no evidence about the split
    except IndexTablesError as error:
        return Problem(meta.key, str(error))


def _describe_own(meta: ObjectMeta, bundle: Bundle, info: SplitInfo) -> FoundSplit:
    file = SplitFile(
        path=meta.key,
        partition_values=dict(info.partition_values),
        size=meta.size,
        modification_time_ms=info.created_time_ms,
        num_records=info.num_records,
        min_values=info.statistics.min_values,
        max_values=info.statistics.max_values,
        footer_start_offset=bundle.footer_start,
        footer_end_offset=bundle.footer_end,
        uncompressed_size_bytes=info.uncompressed_size_bytes,
        doc_mapping_ref=info.mapping.hash,
        doc_mapping_json=info.mapping.to_json(),
        split_tags=info.split_tags,
    )
    add = msgspec.structs.replace(add_of(file), num_merge_ops=1 if info.merged_from else 0)
    own = OwnDescription(
        info.schema_string,
        info.partition_columns,
        info.mapping,
        info.created_time_ms,
        info.merged_from,
    )
    return FoundSplit(add, own)


def _jvm_add(meta: ObjectMeta, bundle: JvmBundle, num_docs: int) -> AddAction:
    values = values_of_path(meta.key)
    return AddAction(
        path=meta.key,
        partition_values={name: value for name, value in values.items() if value is not None},
        size=meta.size,
        modification_time=meta.last_modified_ms,
        data_change=True,
        num_records=num_docs,
        footer_start_offset=bundle.footer_start,
        footer_end_offset=bundle.footer_end,
        has_footer_offsets=True,
    )
