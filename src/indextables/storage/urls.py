"""URLs of tables, keys of objects, and folder names of partitions.

Every spelling of a URL becomes one canonical `Location`; every key passes `validate_key`. A table's file: URL is
percent-decoded, as RFC 8089 defines it. Everything else is literal, as in Hadoop's `Path`: local paths, keys of object
stores, and paths in the log, where '%20' is three characters and '%2e%2e' is not the parent folder.
"""

import enum
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from indextables.errors import InvalidOptionError, UnsafePathError


class Scheme(enum.Enum):
    """The kinds of stores. Each value is the scheme of the canonical URL."""

    LOCAL = "file"
    S3 = "s3"
    AZURE = "az"
    GCS = "gs"
    HDFS = "hdfs"
    MEMORY = "memory"


NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


_SPELLINGS = {
    "file": Scheme.LOCAL,
    "s3": Scheme.S3,
    "s3a": Scheme.S3,
    "s3n": Scheme.S3,
    "az": Scheme.AZURE,
    "azure": Scheme.AZURE,
    "abfs": Scheme.AZURE,
    "abfss": Scheme.AZURE,
    "wasb": Scheme.AZURE,
    "wasbs": Scheme.AZURE,
    "gs": Scheme.GCS,
    "gcs": Scheme.GCS,
    "hdfs": Scheme.HDFS,
    "memory": Scheme.MEMORY,
}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
_AZURE_AUTHORITY = re.compile(
    r"(?P<container>[^@:]+)@(?P<account>[^@:.]+)\.(?:dfs|blob)\.(?P<suffix>[A-Za-z0-9.-]+)"
)

# Some stores cannot address control characters, and a backslash is a separator on some systems.
_UNUSABLE_CHARACTER = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")

# What RFC 3986 allows unescaped in a path.
_PLAIN_IN_URL = "/!$&'()*+,;=:@~"

_ENCODED_SEPARATOR = re.compile(r"%(?:2[Ff]|00)")

# The characters that Hive and Spark escape, and NUL, which they do not escape and no file system accepts.
_ESCAPES = {code: f"%{code:02X}" for code in (*range(0x20), *map(ord, "\"#%'*/:=?\\\x7f{[]^"))}
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")

# File systems allow 255 bytes per name. The digest keeps truncated names distinct.
_MAX_SEGMENT_BYTES = 255
_DIGEST_LENGTH = 32


class AzureAccount(msgspec.Struct, frozen=True):
    """The account in a URL: `<name>.dfs.<suffix>`."""

    name: str
    suffix: str


class Location(msgspec.Struct, frozen=True):
    """A place in a store. `path` is not validated and has no '/' at either end; `str` returns the canonical URL.

    `parse_root` reverses `str`: the path of a file: URL is percent-encoded, those of object stores are literal.
    `container` is the bucket or container, the NameNode or name service of HDFS (empty for the default one), or the
    name of a memory store; it is empty on local disk.
    """

    scheme: Scheme
    container: str
    path: str
    account: AzureAccount | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self._start(), self._url_path()) if part)

    def _url_path(self) -> str:
        if self.scheme is not Scheme.LOCAL:
            return self.path
        return quote_from_bytes(os.fsencode(self.path), safe=_PLAIN_IN_URL)

    def _start(self) -> str:
        if self.scheme is Scheme.LOCAL:
            return "file://"
        if self.account is not None:
            return f"abfss://{self.container}@{self.account.name}.dfs.{self.account.suffix}"
        return f"{self.scheme.value}://{self.container}"

    def contains(self, other: "Location") -> bool:
        """Whether the other location is in the same store, by its URL, and below this path.

        An Azure URL without an account matches any account, because the settings name it.
        """
        if (self.scheme, self.container) != (other.scheme, other.container):
            return False
        if self.account is not None and other.account is not None and self.account.name != other.account.name:
            return False
        return not self.path or other.path.startswith(f"{self.path}/")


def is_absolute(path: str) -> bool:
    """Whether a path is a URL, or starts at the root of the file system."""
    return path.startswith("/") or _URL.fullmatch(path) is not None


def split_url(path: str) -> Location:
    """Split an absolute path or URL; its path stays literal, without '/' at either end.

    Raises InvalidOptionError for an unsupported scheme and for credentials in the URL. The message does not repeat the
    URL, which may contain a secret.
    """
    if path.startswith("/"):
        return Location(Scheme.LOCAL, "", path.strip("/"))
    match = _URL.fullmatch(path)
    if match is None:
        raise InvalidOptionError("the path must be absolute: a URL, or a path that starts with '/'")
    spelling, rest = match["scheme"].lower(), match["rest"]
    scheme = _SPELLINGS.get(spelling)
    if scheme is None:
        raise InvalidOptionError(
            f"{spelling}: URLs are not supported; use a local path or one of {', '.join(sorted(_SPELLINGS))}"
        )
    authority, path_part = _split_authority(rest)
    if scheme is Scheme.LOCAL:
        return _local(authority, path_part)
    if scheme is Scheme.AZURE and "@" in authority:
        return _azure(authority, path_part)
    return _plain(scheme, spelling, authority, path_part)


def parse_root(path: str | os.PathLike[str]) -> Location:
    """Return the location of a table's root; a path without a scheme is local, relative to the working directory.

    Raises the errors of `split_url`, InvalidOptionError for a file: URL that encodes a slash or NUL, and
    UnsafePathError for '.' and '..' in a URL of an object store.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise InvalidOptionError("the table's path is empty or contains a NUL character")
    location = split_url(text if is_absolute(text) else str(Path(text).absolute()))
    if location.scheme is Scheme.LOCAL:
        local_path = _decoded(location.path) if _URL.fullmatch(text) else location.path
        normalised = os.path.normpath(f"/{local_path}").strip("/")
        if not normalised:
            raise InvalidOptionError("the root of the file system cannot be a table; choose a folder")
        return Location(Scheme.LOCAL, "", normalised)
    segments = [segment for segment in location.path.split("/") if segment]
    if "." in segments or ".." in segments:
        raise UnsafePathError(f"{location}: an object store has no '.' and '..'; write the full path")
    return Location(location.scheme, location.container, "/".join(segments), location.account)


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
    """Return the key of a path in the log. Paths are relative to the root; some older writers write absolute ones.

    Spellings of the same store are equal: s3a: and s3:, abfss: and wasbs:, file:/x, file:///x and /x. Raises
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
    """Escape a partition value for a path, as Hive and Spark do.

    Null and the empty string share one name, so readers take partition values from the log, never from paths.
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


def _split_authority(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest.strip("/")
    authority, _, path_part = rest[2:].partition("/")
    return authority, path_part.strip("/")


def _local(authority: str, path_part: str) -> Location:
    if authority not in ("", "localhost"):
        raise InvalidOptionError("a file: URL must not name another host; write file:///path")
    return Location(Scheme.LOCAL, "", path_part)


def _decoded(url_path: str) -> str:
    if _ENCODED_SEPARATOR.search(url_path):
        raise InvalidOptionError("a file: URL must not encode '/' or NUL (%2F, %00)")
    return os.fsdecode(unquote_to_bytes(url_path))


def _azure(authority: str, path_part: str) -> Location:
    match = _AZURE_AUTHORITY.fullmatch(authority)
    if match is None:
        raise InvalidOptionError(
            "an Azure URL must contain the account as <container>@<account>.dfs.core.windows.net (or .blob.)"
        )
    account = AzureAccount(match["account"], match["suffix"])
    return Location(Scheme.AZURE, match["container"], path_part, account)


def _plain(scheme: Scheme, spelling: str, authority: str, path_part: str) -> Location:
    if "@" in authority:
        raise InvalidOptionError(
            f"a {spelling}: URL contains credentials; pass them in storage_options or in the environment"
        )
    if not authority and scheme not in (Scheme.MEMORY, Scheme.HDFS):
        raise InvalidOptionError(f"a {spelling}: URL needs a bucket or container: {spelling}://<name>/<path>")
    return Location(scheme, authority, path_part)


def _shortened(segment: str) -> str:
    encoded = segment.encode("utf-8", "surrogatepass")
    if len(encoded) <= _MAX_SEGMENT_BYTES:
        return segment
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST_LENGTH]
    kept = encoded[: _MAX_SEGMENT_BYTES - _DIGEST_LENGTH - 1].decode("utf-8", "ignore")
    return f"{kept}~{digest}"
