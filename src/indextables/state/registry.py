"""Doc mappings, stored once: entries carry the hash, the registry the JSON.

Tables of the first protocol versions carry the JSON in every entry. Other writers may have hashed the same mapping
in several spellings; above a threshold those are brought together again.
"""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from indextables.schema.mapping_hash import hash_or_none


def deduplicate(entries: pa.Table, registry: Mapping[str, str]) -> tuple[pa.Table, dict[str, str]]:
    """Entries without inline doc mappings, and the registry with those that they had.

    A mapping that is no JSON stays where it is. An entry that has a reference already keeps it.
    """
    inline = entries["docMappingJson"]
    if inline.null_count == entries.num_rows:
        return entries, dict(registry)
    found: dict[str, str] = {}
    hashes: dict[str, str | None] = {}
    for mapping in pc.unique(inline.drop_null()).to_pylist():
        hashes[mapping] = hash_or_none(mapping)
        if (hash_ := hashes[mapping]) is not None:
            found[hash_] = mapping
    references = _translated(inline, hashes)
    is_moved = pc.is_valid(references)
    entries = _with_column(entries, "docMappingRef", pc.coalesce(entries["docMappingRef"], references))
    left = pc.if_else(is_moved, pa.scalar(None, pa.string()), inline)
    return _with_column(entries, "docMappingJson", left), {**found, **registry}


def is_renormalization_due(registry: Mapping[str, str], threshold: int) -> bool:
    """Whether there are more mappings than `threshold`, and some of them under another hash than the canonical one."""
    return len(registry) > threshold and any(
        hash_or_none(mapping) not in (None, hash_) for hash_, mapping in registry.items()
    )


def renormalize(
    entries: pa.Table, registry: Mapping[str, str], threshold: int
) -> tuple[pa.Table, dict[str, str]]:
    """References by canonical hash, if there are more mappings than `threshold`."""
    references = entries["docMappingRef"]
    if not is_renormalization_due(registry, threshold) or references.null_count == entries.num_rows:
        return entries, dict(registry)
    canonical: dict[str, str | None] = {}
    merged = dict(registry)
    for reference in pc.unique(references.drop_null()).to_pylist():
        mapping = registry.get(reference)
        hash_ = hash_or_none(mapping) if mapping is not None else None
        canonical[reference] = hash_ or reference
        if hash_ is not None and mapping is not None:
            merged.setdefault(hash_, mapping)
    return _with_column(entries, "docMappingRef", _translated(references, canonical)), merged


def _translated(column: pa.ChunkedArray, translation: Mapping[str, str | None]) -> pa.ChunkedArray:
    """A column through a dictionary of its few distinct values."""
    encoded = column.combine_chunks().dictionary_encode()
    values = pa.array([translation[value] for value in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([values.take(encoded.indices)])


def _with_column(entries: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    index = entries.schema.get_field_index(name)
    return entries.set_column(index, entries.schema.field(index), column)
