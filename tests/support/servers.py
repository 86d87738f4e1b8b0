"""S3, Azure and Google Cloud servers on loopback, as processes that end with the tests."""

import base64
import contextlib
import email.utils
import hashlib
import hmac
import http.client
import json
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
class SeaweedServer(S3Server):
    filer_port: int = 0

    @property
    def storage_options(self) -> dict[str, str]:
        # Without the arguments, `super` does not know the class that `slots` has replaced.
        return {**super(SeaweedServer, self).storage_options, "list_order": "folders"}

    def make_bucket(self) -> str:
        # A folder of the filer is a bucket; the gateway would want a signed request.
        name = f"bucket-{uuid.uuid4().hex}"
        _request(self.filer_port, "POST", f"/buckets/{name}/", {})
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


@dataclass(frozen=True, slots=True)
class GcsServer:
    port: int

    @property
    def storage_options(self) -> dict[str, str]:
        account = {
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
        }
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}

    def make_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex}"
        _request(self.port, "PUT", f"/{name}", {})
        return name


@contextlib.contextmanager
def running_gcs() -> Iterator[GcsServer]:
    """Google's XML dialect in front of MiniStack."""
    with _running(
        lambda port: [
            sys.executable,
            "-m",
            "hypercorn",
            "support.gcs_server:app",
            "--bind",
            f"127.0.0.1:{port}",
        ],
        lambda port: {"SERVICES": "s3", "GATEWAY_PORT": str(port), "PYTHONPATH": str(PROJECT / "tests")},
    ) as port:
        yield GcsServer(port)


@contextlib.contextmanager
def running_seaweedfs(command: str, folder: Path) -> Iterator[SeaweedServer]:
    """SeaweedFS: a durable S3 server written by others."""
    identity = SeaweedServer(0)
    settings = folder / "s3.json"
    credentials = [{"accessKey": identity.access_key_id, "secretKey": identity.secret_access_key}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    settings.write_text(
        json.dumps({"identities": [{"name": "tests", "credentials": credentials, "actions": actions}]})
    )
    ports = {name: _free_port_pair() for name in ("master", "volume", "filer")}
    with _running(
        lambda port: [
            *(
                command,
                "-logtostderr=true",
                "server",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
            ),
            *("-master.telemetry=false", "-filer", "-s3", f"-s3.port={port}", f"-s3.port.grpc={free_port()}"),
            *(f"-s3.config={settings}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{name}.port={number}" for name, number in ports.items()),
            *(f"-{name}.port.grpc={number + 1}" for name, number in ports.items()),
            *("-master.volumeSizeLimitMB=64", "-volume.max=0", "-volume.preStopSeconds=0"),
        ],
        is_ready=_is_healthy,
    ) as port:
        yield SeaweedServer(port, filer_port=ports["filer"])


def find_seaweedfs() -> str | None:
    """Find an installed SeaweedFS; tests download nothing."""
    installed = PROJECT / ".servers" / "bin" / "weed"
    return str(installed) if installed.exists() else shutil.which("weed")


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
    is_ready: Callable[[int], bool] = lambda port: True,
) -> Iterator[int]:
    for _ in range(STARTUP_ATTEMPTS):
        port = free_port()
        process = subprocess.Popen(
            command_for(port),
            env={**os.environ, **settings_for(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            # If another process has taken the port, the server ends immediately.
            if _answers(port, process, is_ready):
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _free_port_pair() -> int:
    """A free port whose next one is free, too."""
    while True:
        port = free_port()
        with socket.socket() as probe, contextlib.suppress(OSError, OverflowError):
            probe.bind(("127.0.0.1", port + 1))
            return port


def _is_healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _answers(port: int, process: "subprocess.Popen[bytes]", is_ready: Callable[[int], bool]) -> bool:
    deadline = time.monotonic() + STARTUP_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            if is_ready(port):
                return True
        except OSError:
            pass
        time.sleep(0.02)
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
