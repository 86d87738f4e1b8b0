"""An HTTP proxy in front of a store's server, with a script of faults, and with the latency of a distant store.

Each request that a fault applies to consumes it, in the order of the script; all others pass unharmed.
"""

import contextlib
import enum
import http.client
import http.server
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


class Action(enum.Enum):
    ANSWER = "answer in the server's place"
    DROP_BEFORE = "close the connection, and tell the server nothing"
    DROP_AFTER = "let the server act, and close the connection without an answer"
    TRUNCATE = "let the server act, and close the connection in the middle of the body"


@dataclass(frozen=True, slots=True)
class Fault:
    method: str
    action: Action
    path_contains: str = ""
    status: int = 503
    body: bytes = b""

    def applies_to(self, method: str, path: str) -> bool:
        return method == self.method and self.path_contains in path


SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
CONFLICT = b"<Error><Code>ConditionalRequestConflict</Code><Message>Retry the upload.</Message></Error>"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; `round_trip` numbers those that the client did not send at the same time."""

    method: str
    path: str
    byte_range: tuple[int, int] | None
    round_trip: int


class FaultProxy:
    """`endpoint` replaces the upstream's; `requests` are the received requests, in order.

    With a latency, requests are answered together once the client has sent no other one for so long. So requests that
    depend on each other are different round trips, and those that a client sends at once are the same.
    """

    def __init__(self, upstream: str, faults: Sequence[Fault], latency_seconds: float = 0.0) -> None:
        self.requests: list[Request] = []
        self._latency_seconds = latency_seconds
        self._round_trip = 0
        self._last_arrival_seconds = 0.0
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._base_path = parts.path
        self._faults = list(faults)
        self._lock = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), self)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self._base_path}"

    @property
    def unused_faults(self) -> list[Fault]:
        return list(self._faults)

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    @contextlib.contextmanager
    def running(self) -> Iterator["FaultProxy"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def arrived(self, method: str, path: str, byte_range: tuple[int, int] | None) -> Fault | None:
        with self._lock:
            self.requests.append(Request(method, path, byte_range, self._round_trip))
            self._wait_for_others()
            if self._faults and self._faults[0].applies_to(method, path):
                return self._faults.pop(0)
            return None

    def _wait_for_others(self) -> None:
        mine = self._round_trip
        self._last_arrival_seconds = time.monotonic()
        while self._round_trip == mine:
            left = self._last_arrival_seconds + self._latency_seconds - time.monotonic()
            if left <= 0:
                self._round_trip += 1
                self._lock.notify_all()
            else:
                self._lock.wait(left)

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> "Answer":
        connection = http.client.HTTPConnection(*self._upstream, timeout=30)
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # A client that finds the queue full tries again after a second.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: object) -> None:
        pass

    def _handle(self) -> None:
        proxy = self.server.proxy
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.arrived(self.command, self.path, _byte_range(self.headers.get("Range")))
        if fault is not None and fault.action is Action.DROP_BEFORE:
            self.close_connection = True
            return
        if fault is not None and fault.action is Action.ANSWER:
            self._answer(Answer(fault.status, {"Content-Type": "application/xml"}, fault.body), cut=False)
            return
        answer = proxy.forward(self.command, self.path, dict(self.headers.items()), body)
        if fault is not None and fault.action is Action.DROP_AFTER:
            self.close_connection = True
            return
        self._answer(answer, cut=fault is not None)

    # The names are http.server's.
    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _handle  # noqa: N815

    def _answer(self, answer: Answer, *, cut: bool) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        # The response to a HEAD has the content length of a GET.
        declared = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else len(answer.body)
        self.send_header("Content-Length", str(declared))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        if cut:
            self.close_connection = True


def _byte_range(header: str | None) -> tuple[int, int] | None:
    """Return the start and the end, which is exclusive, of `bytes=<first>-<last>`."""
    if header is None:
        return None
    first, _, last = header.removeprefix("bytes=").partition("-")
    return int(first), int(last) + 1
