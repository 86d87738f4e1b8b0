"""Runs a process with a pseudo-terminal."""

import os
import pty
import subprocess
from collections.abc import Iterator

from support import PATIENCE_SECONDS


def run_in_terminal(arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a process; returns its exit code and everything that it wrote to its terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(arguments, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    written = b"".join(until_closed(master))
    os.close(master)
    return process.wait(PATIENCE_SECONDS), written.decode()


def until_closed(master: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # how Linux reports that the other side of a terminal is closed
            return
        if not chunk:
            return
        yield chunk
