"""S3 and Azure servers on loopback, as processes that end with the tests."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[2]
STARTUP_SECONDS = 60.0
STARTUP_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class S3Server:
    port: int
    access_key_id: str = "AKIATESTACCESSKEY"
    secret_access_key: str = field(default="test-secret-access-key", repr=False)
    region: str = "us-east-1"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
            "aws_region": self.region,
            "aws_endpoint": self.endpoint,
        }

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex}"
        _request(self.port, "PUT", f"/{name}", {})
        return name


@dataclass(frozen=True, slots=True)
class AzuriteServer:
    port: int
    account_name: str = "devstoreaccount1"
    # Azurite's published key, the same in every installation.
    account_key: str = field(
        default="Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
        repr=False,
    )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{self.account_name}"

    @property
    def storage_options(self) -> dict[str, str]:
        return {
            "azure_storage_account_name": self.account_name,
            "azure_storage_account_key": self.account_key,
            "azure_storage_endpoint": self.endpoint,
        }

    def make_container(self) -> str:
        name = f"container-{uuid.uuid4().hex}"
        headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        resource = f"/{self.account_name}/{self.account_name}/{name}\nrestype:container"
        signed_headers = "".join(f"{header}:{value}\n" for header, value in headers.items())
        signature = hmac.new(
            base64.b64decode(self.account_key),
            f"PUT\n{chr(10) * 11}{signed_headers}{resource}".encode(),
            hashlib.sha256,
        ).digest()
        headers["Authorization"] = f"SharedKey {self.account_name}:{base64.b64encode(signature).decode()}"
        _request(self.port, "PUT", f"/{self.account_name}/{name}?restype=container", headers)
        return name


@contextlib.contextmanager
def running_s3() -> Iterator[S3Server]:
    """MiniStack, whose single event loop makes conditional puts atomic, as they are on S3."""
    with _running(
        lambda port: [sys.executable, "-m", "ministack"],
        lambda port: {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3"},
    ) as port:
        yield S3Server(port)


@contextlib.contextmanager
def running_azurite(command: str) -> Iterator[AzuriteServer]:
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
    with _running(lambda port: [command, *quiet, "--blobHost", "127.0.0.1", "--blobPort", str(port)]) as port:
        yield AzuriteServer(port)


def find_azurite() -> str | None:
    """Find an installed Azurite; tests download nothing."""
    installed = [
        os.environ.get("INDEXTABLES_AZURITE", ""),
        *(str(PROJECT / folder / "node_modules/.bin/azurite-blob") for folder in (".azurite", ".")),
    ]
    found = next((path for path in installed if path and Path(path).exists()), None)
    return found or shutil.which("azurite-blob")


@contextlib.contextmanager
def _running(
    command_for: Callable[[int], Sequence[str]],
    settings_for: Callable[[int], Mapping[str, str]] = lambda port: {},
) -> Iterator[int]:
    for _ in range(STARTUP_ATTEMPTS):
        port = _free_port()
        process = subprocess.Popen(
            command_for(port),
            env={**os.environ, **settings_for(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # If another process has taken the port, the server ends immediately.
            if _answers(port, process):
                yield port
                return
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    raise RuntimeError(f"{' '.join(command_for(port))} does not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int, process: "subprocess.Popen[bytes]") -> bool:
    deadline = time.monotonic() + STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


def _request(port: int, method: str, path: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"Content-Length": "0", **headers})
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    if response.status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {response.status} {body.decode(errors='replace')}")
