"""The spellings of a table's root, and the one canonical form of each.

Paths inside a URL are taken literally, as Hadoop's `Path` does it: '%20' is three characters.
"""

import enum
import os
import re
from pathlib import Path

import msgspec

from indextables.errors import InvalidOptionError, UnsafePathError


class Scheme(enum.Enum):
    """The families of stores. The value is how the canonical URL starts."""

    LOCAL = "file"
    S3 = "s3"
    AZURE = "az"
    GCS = "gs"
    MEMORY = "memory"


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
    "memory": Scheme.MEMORY,
}
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>/.*)", re.DOTALL)
_AZURE_AUTHORITY = re.compile(
    r"(?P<container>[^@:]+)@(?P<account>[^@:.]+)\.(?:dfs|blob)\.(?P<suffix>[A-Za-z0-9.-]+)"
)


class AzureAccount(msgspec.Struct, frozen=True):
    """An account as a URL names it: `<name>.dfs.<suffix>`."""

    name: str
    suffix: str


class Location(msgspec.Struct, frozen=True):
    """A place in a store. `path` has no '/' at either end and is not checked; `str` gives the canonical URL.

    `container` is the bucket or the container, the name of a memory store, and empty on local disk.
    """

    scheme: Scheme
    container: str
    path: str
    account: AzureAccount | None = None

    def __str__(self) -> str:
        return "/".join(part for part in (self._start(), self.path) if part)

    def _start(self) -> str:
        if self.scheme is Scheme.LOCAL:
            return "file://"
        if self.account is not None:
            return f"abfss://{self.container}@{self.account.name}.dfs.{self.account.suffix}"
        return f"{self.scheme.value}://{self.container}"

    def contains(self, other: "Location") -> bool:
        """Whether both are in one store, as far as the URLs tell, and the other's path is below this one's.

        An Azure URL may leave the account to the settings: it then matches any.
        """
        if (self.scheme, self.container) != (other.scheme, other.container):
            return False
        if self.account is not None and other.account is not None and self.account.name != other.account.name:
            return False
        return not self.path or other.path.startswith(f"{self.path}/")


def is_absolute(path: str) -> bool:
    """Whether a path says where it is by itself: a URL, or a path from the root of the file system."""
    return path.startswith("/") or _URL.fullmatch(path) is not None


def split_url(path: str) -> Location:
    """Take an absolute path apart, leaving its path part as it is (but for '/' at both ends).

    Raises InvalidOptionError for a scheme that is not supported and for credentials inside the URL; neither
    message repeats the URL, which may hold a secret.
    """
    if path.startswith("/"):
        return Location(Scheme.LOCAL, "", path.strip("/"))
    match = _URL.fullmatch(path)
    if match is None:
        raise InvalidOptionError("a path must be absolute here: a URL, or a path that starts with '/'")
    spelling, rest = match["scheme"].lower(), match["rest"]
    scheme = _SPELLINGS.get(spelling)
    if scheme is None:
        raise InvalidOptionError(
            f"no store for {spelling}: URLs; use a local path or one of {', '.join(sorted(_SPELLINGS))}"
        )
    authority, path_part = _split_authority(rest)
    if scheme is Scheme.LOCAL:
        return _local(authority, path_part)
    if scheme is Scheme.AZURE and "@" in authority:
        return _azure(authority, path_part)
    return _plain(scheme, spelling, authority, path_part)


def parse_root(path: str | os.PathLike[str]) -> Location:
    """The location of a table's root; one without a scheme is local, relative to the working directory.

    Raises InvalidOptionError as `split_url` does, and UnsafePathError for '.' and '..' in a URL.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise InvalidOptionError("the table's path is empty or contains a NUL character")
    location = split_url(text if is_absolute(text) else str(Path(text).absolute()))
    if location.scheme is Scheme.LOCAL:
        normalised = os.path.normpath(f"/{location.path}").strip("/")
        if not normalised:
            raise InvalidOptionError("the root of the file system cannot be a table; name a folder")
        return Location(Scheme.LOCAL, "", normalised)
    segments = [segment for segment in location.path.split("/") if segment]
    if "." in segments or ".." in segments:
        raise UnsafePathError(f"{location}: '.' and '..' mean nothing in an object store; write the path out")
    return Location(location.scheme, location.container, "/".join(segments), location.account)


def _split_authority(rest: str) -> tuple[str, str]:
    if not rest.startswith("//"):
        return "", rest.strip("/")
    authority, _, path_part = rest[2:].partition("/")
    return authority, path_part.strip("/")


def _local(authority: str, path_part: str) -> Location:
    if authority not in ("", "localhost"):
        raise InvalidOptionError(
            "a file: URL names another host; write file:///path for a file on this machine"
        )
    return Location(Scheme.LOCAL, "", path_part)


def _azure(authority: str, path_part: str) -> Location:
    match = _AZURE_AUTHORITY.fullmatch(authority)
    if match is None:
        raise InvalidOptionError(
            "an Azure URL names its account as <container>@<account>.dfs.core.windows.net (or .blob.)"
        )
    account = AzureAccount(match["account"], match["suffix"])
    return Location(Scheme.AZURE, match["container"], path_part, account)


def _plain(scheme: Scheme, spelling: str, authority: str, path_part: str) -> Location:
    if "@" in authority:
        raise InvalidOptionError(
            f"a {spelling}: URL contains credentials; pass them by storage_options or by the environment"
        )
    if not authority and scheme is not Scheme.MEMORY:
        raise InvalidOptionError(f"a {spelling}: URL needs a bucket or container: {spelling}://<name>/<path>")
    return Location(scheme, authority, path_part)
