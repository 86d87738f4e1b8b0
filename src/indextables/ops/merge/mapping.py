"""How the rows of several splits are indexed together: as they were, whatever the settings of today say."""

from collections.abc import Sequence

import pyarrow as pa
from msgspec.structs import replace

from indextables.config import Settings
from indextables.split.doc_mapping import DocMapping, FieldKind, FieldMapping

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
    configured = DocMapping.from_schema(schema, partition_columns, settings)
    plain = DocMapping.from_schema(schema, partition_columns, Settings())
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
