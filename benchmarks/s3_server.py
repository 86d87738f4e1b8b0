"""An S3 server on loopback (MiniStack), and tables copied to it."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.slow_network import distant

_STARTUP_SECONDS = 60
_BUCKET = "tables"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server with one bucket."""

    port: int

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options for both sides; the server accepts any key."""
        return self._options(self.port)

    @contextlib.contextmanager
    def at_a_distance(self, seconds: float) -> Iterator[dict[str, str]]:
        """Storage options with which every request takes so much longer."""
        with distant(self.port, seconds) as port:
            yield self._options(port)

    def _options(self, port: int) -> dict[str, str]:
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": f"http://127.0.0.1:{port}",
            "aws_allow_http": "true",
        }

    def upload(self, table: Path) -> str:
        """Copy a table; returns its URL."""
        for file in table.rglob("*"):
            if file.is_file():
                self._put(f"{table.name}/{file.relative_to(table).as_posix()}", file.read_bytes())
        return f"s3://{_BUCKET}/{table.name}"

    def make_bucket(self) -> None:
        """Create the bucket that tables are copied to."""
        self._put("", b"")

    def _put(self, key: str, data: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("PUT", f"/{_BUCKET}/{key}".rstrip("/"), body=data)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise RuntimeError(f"the S3 server rejects {key or 'the bucket'}: {answer.status}")


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server in its own process, with an empty bucket."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env={**os.environ, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        server = S3Server(port)
        server.make_bucket()
        yield server
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("the S3 server did not start")
