"""The hash that identifies a doc mapping: equal mappings have equal hashes, whatever the order of their keys."""

import base64
import hashlib
from typing import Any

import orjson

HASH_LENGTH = 16


def doc_mapping_hash(mapping_json: str) -> str:
    """The hash of a doc mapping's JSON, by its canonical form. Raises ValueError if it is not JSON."""
    digest = hashlib.sha256(canonical_json(mapping_json)).digest()
    return base64.urlsafe_b64encode(digest).decode()[:HASH_LENGTH]


def hash_or_none(mapping_json: str) -> str | None:
    """The hash of a doc mapping's JSON, or None if it is not JSON."""
    try:
        return doc_mapping_hash(mapping_json)
    except ValueError:
        return None


def canonical_json(text: str) -> bytes:
    """Keys sorted, arrays of named objects sorted by name, no white space."""
    return orjson.dumps(_canonical(orjson.loads(text)), option=orjson.OPT_SORT_KEYS)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        items = [_canonical(item) for item in value]
        if items and all(isinstance(item, dict) and "name" in item for item in items):
            return sorted(items, key=lambda item: str(item["name"]))
        return items
    return value
