"""The threads of native clients, which do not survive a fork."""

import os

from indextables.errors import StorageError

_runtime_pid: int | None = None


def enter_native_runtime(url: str, *, needs_threads: bool = True) -> None:
    """Note that this process uses a native client.

    Raises StorageError in a fork of a process that has used one, if the client needs threads: they are gone, and a call
    would wait forever.
    """
    global _runtime_pid
    pid = os.getpid()
    if _runtime_pid is None:
        _runtime_pid = pid
    if needs_threads and _runtime_pid != pid:
        raise StorageError(
            f"{url}: this process was forked from one that had used remote stores, whose threads do not survive "
            f"a fork; start worker processes with the method 'spawn' or 'forkserver'"
        )
