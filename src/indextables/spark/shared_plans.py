"""The recent scans of one DataFrame, recorded beside the driver so that a shared plan serves all of them.

Spark up to 4.3 keeps one plan for all scans of the same DataFrame of a Python data source: the scan that is planned
last decides what all of them read. A plan must therefore also serve earlier scans that may belong to the same query.
Planning runs in several processes, which share the requests through files that only their owner can read.
docs/decisions/0009-filters-of-spark.md explains the problem and the alternatives.
"""

import contextlib
import fcntl
import os
import pickle
import re
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from indextables.errors import InvalidOptionError
from indextables.predicates import BoundPredicate, any_of

# Longer than the planning of a query takes.
WINDOW_SECONDS: Final = 120.0
_DELETE_AFTER_SECONDS: Final = 3600.0

_PRIVATE: Final = 0o700
_SCAN_ID: Final = re.compile(r"[0-9a-f]{32}")


class ScanRequest(msgspec.Struct, frozen=True):
    """The rows that one scan requests: those that match a query (None: all rows) and a bound predicate."""

    query: str | None = None
    where: BoundPredicate | None = None


def merge_requests(requests: tuple[ScanRequest, ...]) -> tuple[ScanRequest, ...]:
    """Combine requests into one per query, which covers all requests with that query."""
    wheres: dict[str | None, list[BoundPredicate | None]] = {}
    for request in requests:
        wheres.setdefault(request.query, []).append(request.where)
    return tuple(ScanRequest(query, _any_where(found)) for query, found in wheres.items())


def remember(scan_id: str, request: ScanRequest) -> tuple[ScanRequest, ...]:
    """Record the request of a scan; returns all recent requests of the same DataFrame, including this one.

    Raises InvalidOptionError for a malformed id, and OSError if the file cannot be written.
    """
    if _SCAN_ID.fullmatch(scan_id) is None:
        raise InvalidOptionError("option indextables.scan is internal; omit it")
    folder = _folder()
    now = time.time()
    with (folder / scan_id).open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        data = file.read()
        # Only this user can write the file.
        recorded: dict[ScanRequest, float] = pickle.loads(data) if data else {}  # noqa: S301
        recent = {each: at for each, at in recorded.items() if abs(now - at) <= WINDOW_SECONDS}
        recent[request] = now
        file.truncate(0)
        file.write(pickle.dumps(recent))
    if not data:
        _delete_old(folder, now)
    return tuple(recent)


def _any_where(wheres: list[BoundPredicate | None]) -> BoundPredicate | None:
    known = [where for where in wheres if where is not None]
    return any_of(dict.fromkeys(known)) if len(known) == len(wheres) else None


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"indextables-plans-{os.getuid()}"
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not folder.is_dir():
        raise PermissionError(f"{folder} belongs to another user, or other users can access it; remove it")
    return folder


def _delete_old(folder: Path, now: float) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > _DELETE_AFTER_SECONDS:
                path.unlink()
