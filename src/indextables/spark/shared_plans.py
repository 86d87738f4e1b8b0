"""What was asked of one DataFrame lately, remembered beside the driver.

Spark up to 4.3 keeps one plan for everything that reads the same DataFrame of a Python data source: whichever scan
is planned last decides what all of them read. So a plan must serve the scans before it, too, for as long as they may
belong to the same query. Planning runs in several processes: what it remembers is in files that only their owner
can read. docs/decisions/0009-filters-of-spark.md has the whole story.
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

# Longer than the planning of any one query should take.
WINDOW_SECONDS: Final = 120.0
_FORGOTTEN_SECONDS: Final = 3600.0

_PRIVATE: Final = 0o700
_SCAN_ID: Final = re.compile(r"[0-9a-f]{32}")


class Ask(msgspec.Struct, frozen=True):
    """What one scan wants: the rows that a query finds, or all, for which a bound predicate is true."""

    query: str | None = None
    where: BoundPredicate | None = None


def merged(asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    """One ask for each query, which all those for it are part of."""
    wheres: dict[str | None, list[BoundPredicate | None]] = {}
    for ask in asks:
        wheres.setdefault(ask.query, []).append(ask.where)
    return tuple(Ask(query, _any(found)) for query, found in wheres.items())


def remember(scan_id: str, ask: Ask) -> tuple[Ask, ...]:
    """Note down what a scan wants; returns that, and all that was asked of the same DataFrame lately.

    Raises InvalidOptionError for an id that is none, and OSError if nothing can be noted down.
    """
    if _SCAN_ID.fullmatch(scan_id) is None:
        raise InvalidOptionError(
            "the option for the id of a scan is set by load() and not by hand; leave it out"
        )
    folder = _folder()
    now = time.time()
    with (folder / scan_id).open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        data = file.read()
        noted: dict[Ask, float] = pickle.loads(data) if data else {}  # noqa: S301  # nobody else can write it
        recent = {each: at for each, at in noted.items() if abs(now - at) <= WINDOW_SECONDS}
        recent[ask] = now
        file.truncate(0)
        file.write(pickle.dumps(recent))
    if not data:
        _forget_old(folder, now)
    return tuple(recent)


def _any(wheres: list[BoundPredicate | None]) -> BoundPredicate | None:
    known = [where for where in wheres if where is not None]
    return any_of(dict.fromkeys(known)) if len(known) == len(wheres) else None


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"indextables-plans-{os.getuid()}"
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not folder.is_dir():
        raise PermissionError(f"{folder} belongs to somebody else, or others can write to it; remove it")
    return folder


def _forget_old(folder: Path, now: float) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if now - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink()
