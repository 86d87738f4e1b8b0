"""Keys: their validation, their relation to absolute paths, and the folder names of partitions.

Keys are never percent-decoded: '%2e%2e' is a folder of that name, not the parent folder.
"""

import hashlib
import re
from collections.abc import Iterable

from indextables.errors import InvalidOptionError, UnsafePathError
from indextables.storage.urls import is_absolute, parse_root, split_url

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# Some stores cannot address control characters, and a backslash is a separator on some systems.
_UNUSABLE_CHARACTER = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")

# The characters that Hive and Spark escape, and NUL, which they do not escape and no file system accepts.
_ESCAPES = {code: f"%{code:02X}" for code in (*range(0x20), *map(ord, "\"#%'*/:=?\\\x7f{[]^"))}
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")

# File systems allow 255 bytes per name. The digest keeps truncated names distinct.
_MAX_SEGMENT_BYTES = 255
_DIGEST_LENGTH = 32


def validate_key(key: str) -> str:
    """Return `key` if it is a valid key below a table's root.

    Raises UnsafePathError for an absolute or empty key, for empty segments, '.' and '..', and for control
    characters, backslashes and text that is not valid Unicode.
    """
    if _UNUSABLE_CHARACTER.search(key):
        raise UnsafePathError(f"{key!r} contains a character that is not allowed in a key")
    for segment in key.split("/"):
        if segment in ("", ".", ".."):
            raise UnsafePathError(
                f"{key!r} is not a plain path below the table's root: it has a segment {segment!r}"
            )
    return key


def validate_folder(prefix: str) -> str:
    """Return the key of a listing's folder: "log" for "log/", "" for the root. Raises UnsafePathError."""
    return validate_key(prefix.removesuffix("/")) if prefix else ""


def relative_key(path: str, root_url: str) -> str:
    """Return the key of a path in the log, which is relative to the root, or absolute if an older writer wrote it.

    Different spellings of a store are equal: s3a: and s3:, abfss: and wasbs:, file:/x, file:///x and /x. Raises
    UnsafePathError if the path is outside the root, or not a valid key.
    """
    if not is_absolute(path):
        return validate_key(path)
    root = parse_root(root_url)
    try:
        location = split_url(path)
    except InvalidOptionError as error:
        raise UnsafePathError(
            f"{root}: the log refers to a path in another store, which is never read"
        ) from error
    if not root.contains(location):
        raise UnsafePathError(
            f"{root}: the log refers to {path!r}, which is outside the table; was the table copied from there? "
            f"paths must be relative, or below the table's root"
        )
    return validate_key(location.path[len(root.path) + 1 :] if root.path else location.path)


def escape_partition_value(value: str | None) -> str:
    """Escape a partition value for a path, as Hive and Spark do. Null and the empty string share one name.

    So readers take partition values from the log, never from paths.
    """
    return value.translate(_ESCAPES) if value else NULL_PARTITION


def unescape_partition_value(text: str) -> str | None:
    """Reverse `escape_partition_value`; a '%' that starts no escape is literal."""
    if text == NULL_PARTITION:
        return None
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def partition_path(values: Iterable[tuple[str, str | None]]) -> str:
    """Return the folder of a partition: `date=2024-01-01/region=x`, or "" without partition columns.

    No value can leave the root: '/' is escaped, and '..' is harmless after 'column='. A name that is too long for a
    file system is truncated and ends in a digest of the full name.
    """
    return "/".join(
        _shortened(f"{column.translate(_ESCAPES)}={escape_partition_value(value)}")
        for column, value in values
    )


def _shortened(segment: str) -> str:
    encoded = segment.encode("utf-8", "surrogatepass")
    if len(encoded) <= _MAX_SEGMENT_BYTES:
        return segment
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST_LENGTH]
    kept = encoded[: _MAX_SEGMENT_BYTES - _DIGEST_LENGTH - 1].decode("utf-8", "ignore")
    return f"{kept}~{digest}"
