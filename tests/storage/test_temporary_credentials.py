"""Temporary credentials of a machine's role: the store renews them before they expire."""

import contextlib
import http.server
import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from indextables.storage import open_store
from support.fault_proxy import Answer, FaultProxy
from support.servers import S3Server

ROLE = "reader"
ACCESS_KEY = re.compile(r"Credential=([^/]+)/")


class RoleServer(http.server.ThreadingHTTPServer):
    """What a cloud's machines ask for the credentials of their role; every answer is a new key, soon to expire."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RoleHandler)
        self.keys: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["RoleServer"]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _RoleHandler(http.server.BaseHTTPRequestHandler):
    server: RoleServer

    def log_message(self, *args: object) -> None:
        pass

    def do_PUT(self) -> None:  # the name is http.server's
        self._say(b"a-token")

    def do_GET(self) -> None:  # the name is http.server's
        if self.path.rstrip("/").endswith("security-credentials"):
            self._say(ROLE.encode())
            return
        key = f"KEY{len(self.server.keys)}"
        self.server.keys.append(key)
        expiration = datetime.now(UTC) + timedelta(minutes=1)
        self._say(
            orjson.dumps(
                {
                    "Code": "Success",
                    "AccessKeyId": key,
                    "SecretAccessKey": "secret",
                    "Token": "session",
                    "Expiration": expiration.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            )
        )

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class SigningProxy(FaultProxy):
    """Remembers whose keys requests were signed with."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, [])
        self.signers: list[str] = []

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        found = {name.lower(): value for name, value in headers.items()}
        self.signers += ACCESS_KEY.findall(found.get("authorization", ""))
        return super().forward(method, path, headers, body)


def test_temporary_credentials_are_refreshed_before_they_expire(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    bucket = s3_server.make_bucket()
    proxy = SigningProxy(s3_server.endpoint)
    with RoleServer().running() as role, proxy.running():
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", role.endpoint)
        store = open_store(
            f"s3://{bucket}/table",
            storage_options={"aws_region": s3_server.region, "aws_endpoint": proxy.endpoint},
        )
        for number in range(200):
            store.put(f"object-{number}", b"content")
            if len(set(proxy.signers)) > 1:
                break
        assert store.get("object-0") == b"content"
    assert len(set(proxy.signers)) > 1
    assert set(proxy.signers) <= set(role.keys)
