"""Records of merge jobs on local disk, so that one process can show the jobs of another.

Spark commits writes in worker processes, and the merges that they start run there; DESCRIBE INDEXTABLES MERGE JOBS
runs in the driver. Records are in the user's cache directory and cover one machine. A running job holds a lock on its
record: a record without a lock that says "running" belongs to a process that ended, whatever ended it.

Records are for display only. Failures to write or read them are ignored.
"""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from indextables._structs import decodable

RUNNING: Final = "running"
CANCELLED: Final = "cancelled"

# How many records stay on disk.
MAX_RECORDS: Final = 100

# RuntimeError: there is no home directory.
_IGNORED: Final = (OSError, RuntimeError)

_SUFFIX: Final = ".json"
_LOCK_SUFFIX: Final = ".lock"


@decodable
class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A merge job as it is shown. `groups` is None until it is planned, `finished_ms` until it has ended."""

    table_path: str
    job_id: str
    status: str
    started_ms: int
    finished_ms: int | None
    groups: int | None
    message: str
    host: str = msgspec.field(default_factory=socket.gethostname)


class RecordLock:
    """Held by the process that runs a job, and released by the operating system when that process ends."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._file: int | None = None

    def write(self, record: JobRecord) -> None:
        """Write the record of the running job, and hold the lock from the first time on."""
        with contextlib.suppress(*_IGNORED):
            if self._file is None:
                _directory().mkdir(mode=0o700, parents=True, exist_ok=True)
                _remove_surplus()
                file = os.open(_lock_path(self._job_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(file, fcntl.LOCK_EX)
                self._file = file
            _replace(record)

    def release(self, record: JobRecord) -> None:
        """Write the final record of the job, if it was written before, and release the lock."""
        if self._file is None:
            return
        with contextlib.suppress(*_IGNORED):
            _replace(record)
        with contextlib.suppress(*_IGNORED):
            _lock_path(self._job_id).unlink()
            os.close(self._file)
        self._file = None


def read_records() -> list[JobRecord]:
    """The records of this machine, in no particular order. A job whose process ended before it is cancelled."""
    return [_as_it_is(record) for record in _stored() if record.host == socket.gethostname()]


def _as_it_is(record: JobRecord) -> JobRecord:
    if record.status != RUNNING or _is_locked(record.job_id):
        return record
    # The job may have ended after its record was read.
    newest = _read(_record_path(record.job_id)) or record
    if newest.status != RUNNING:
        return newest
    return msgspec.structs.replace(
        newest,
        status=CANCELLED,
        message="its process ended first; the history of the table shows what was committed",
    )


def _is_locked(job_id: str) -> bool:
    try:
        file = os.open(_lock_path(job_id), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _remove_surplus() -> None:
    """Remove the oldest records and their locks, except those of running jobs, to make room for one."""
    stored = sorted(_stored(), key=lambda record: record.started_ms)
    ended = [record.job_id for record in stored if not _is_locked(record.job_id)]
    for job_id in ended[: max(0, len(stored) + 1 - MAX_RECORDS)]:
        _record_path(job_id).unlink(missing_ok=True)
        _lock_path(job_id).unlink(missing_ok=True)


def _stored() -> Iterator[JobRecord]:
    with contextlib.suppress(*_IGNORED):
        for path in sorted(_directory().glob(f"*{_SUFFIX}")):
            record = _read(path)
            if record is not None:
                yield record


def _read(path: Path) -> JobRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobRecord)
    except (OSError, ValueError):
        return None


def _replace(record: JobRecord) -> None:
    """Write a record in one step, so that readers never see half of it."""
    path = _record_path(record.job_id)
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(record))
    new.rename(path)


def _record_path(job_id: str) -> Path:
    return _directory() / f"{job_id}{_SUFFIX}"


def _lock_path(job_id: str) -> Path:
    return _directory() / f"{job_id}{_LOCK_SUFFIX}"


def _directory() -> Path:
    user_caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_caches) if user_caches else Path.home() / ".cache") / "indextables-merge-jobs"
