"""No credential leaks: canaries in every option, and a server that echoes every request."""

import http.server
import json
import logging
import pickle
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import indextables.storage
from indextables.errors import IndexTablesError
from indextables.storage import Redactor, RetryingStore, RetryPolicy, Secret, StoreLocation
from support.clock import VirtualClock
from support.faults import FaultStore

CANARY = "CANARY"
PACKAGE = str(Path(indextables.storage.__file__).parent)

S3 = "s3://bucket/table"
AZURE = "abfss://container@account.dfs.core.windows.net/table"
AZURE_SHORT = "az://container/table"
GCS = "gs://bucket/table"
KEY = "Q0FOQVJZQ0FOQVJZCANARYAB"
SERVICE_ACCOUNT = json.dumps(
    {"private_key": "CANARY", "private_key_id": "CANARY", "client_email": "CANARY", "disable_oauth": True}
)

OPTIONS = {
    "s3 keys": (S3, {"aws_access_key_id": "CANARY-1", "aws_secret_access_key": "CANARY-2"}, {}),
    "s3 token": (
        S3,
        {"access_key_id": "CANARY-1", "secret_access_key": "CANARY-2", "session_token": "CANARY/3+%="},
        {},
    ),
    "s3 spark": (
        S3,
        {},
        {
            "spark.indextables.aws.accessKey": "CANARY-1",
            "spark.indextables.aws.secretKey": "CANARY-2",
            "spark.indextables.aws.sessionToken": "CANARY-3",
        },
    ),
    "s3 hadoop": (
        S3,
        {},
        {
            "spark.hadoop.fs.s3a.access.key": "CANARY-1",
            "fs.s3a.secret.key": "CANARY-2",
            "fs.s3a.session.token": "CANARY-3",
        },
    ),
    "s3 customer key": (
        S3,
        {
            "access_key_id": "CANARY-1",
            "secret_access_key": "CANARY-2",
            "server_side_encryption": "sse-c",
            "sse_customer_key_base64": "Q0FOQVJZCANARYAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        },
        {},
    ),
    "azure key": (AZURE, {"account_key": KEY}, {}),
    "azure bearer": (AZURE, {}, {"spark.indextables.azure.bearerToken": "CANARY-TOKEN"}),
    "azure signature": (AZURE, {"sas_token": "sv=2021&se=CANARY&sig=CANARY%2Fx%3D"}, {}),
    "azure hadoop": (AZURE, {}, {"fs.azure.account.key.account.dfs.core.windows.net": KEY}),
    "azure connection string": (
        AZURE_SHORT,
        {},
        {"spark.indextables.azure.connectionString": f"AccountName=account;AccountKey={KEY};"},
    ),
    "azure client": (
        AZURE,
        {},
        {
            "spark.indextables.azure.tenantId": "CANARY-TENANT",
            "spark.indextables.azure.clientId": "CANARY-CLIENT",
            "spark.indextables.azure.clientSecret": "CANARY-SECRET",
        },
    ),
    "google bearer": (GCS, {"bearer_token": "CANARY-TOKEN"}, {}),
    "google service account": (GCS, {}, {"spark.indextables.gcp.serviceAccountKey": SERVICE_ACCOUNT}),
    "google broken service account": (GCS, {"service_account_key": "CANARY"}, {}),
    "s3 broken time-out": (
        S3,
        {"access_key_id": "CANARY-1", "secret_access_key": "CANARY-2", "timeout": "for ever"},
        {},
    ),
    "azure broken key": (AZURE, {"account_key": "CANARY is not base64"}, {}),
    "proxy with a password": (
        S3,
        {
            "access_key_id": "CANARY-1",
            "secret_access_key": "CANARY-2",
            "proxy_url": "http://CANARY:CANARY@127.0.0.1:1",
        },
        {},
    ),
}


class _Echo(http.server.BaseHTTPRequestHandler):
    """Refuses everything, and repeats the request in its answer, as S3 and Azure do in part."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f"<Error><Message>{self.command} {self.path} {self.headers}</Message></Error>".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _refuse  # noqa: N815 - the names are http.server's


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def texts_of(error: BaseException | None) -> Iterator[str]:
    """Everything that a log, a console or a debugger would show of an error and of what led to it."""
    while error is not None:
        yield from (str(error), repr(error), *map(str, getattr(error, "__notes__", ())))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_filename.startswith(PACKAGE):
                yield from (repr(value) for value in frame.f_locals.values())
        error = error.__cause__ or error.__context__


def operations(store):
    return (
        lambda: store.get("object"),
        lambda: store.get_range("object", 0, 5),
        lambda: store.get_ranges("object", [(0, 2), (3, 5)]),
        lambda: store.head("object"),
        lambda: store.put("object", b"x"),
        lambda: store.put_if_absent("object", b"x"),
        lambda: list(store.list("")),
        lambda: store.delete_many(["object"]),
        lambda: store.now_ms(),
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_credentials_show_nowhere(name, echo, caplog, capfd):
    root, storage_options, options = OPTIONS[name]
    endpoint = (
        {"endpoint": f"{echo}/account", "authority_host": echo} if "azure" in name else {"endpoint": echo}
    )
    location = StoreLocation.of(root, storage_options=storage_options | endpoint, options=options)
    caplog.set_level(logging.DEBUG)
    store = location.open()
    seen = [repr(location), str(location), repr(store), str(store), store.url, store.identity]
    # The same store as `open` gives, but with no time spent between attempts.
    impatient = RetryingStore(
        FaultStore(store._inner, clock=VirtualClock()), RetryPolicy(max_attempts=2, base_seconds=0.0)
    )
    for operation in operations(impatient):
        with pytest.raises(IndexTablesError) as caught:
            operation()
        seen.extend(texts_of(caught.value))
        seen.append("".join(traceback.format_exception(caught.value)))
    seen.extend((caplog.text, *capfd.readouterr()))
    shown = [text for text in seen if CANARY in text or KEY[:12] in text]
    assert shown == []
    assert pickle.loads(pickle.dumps(location)).open().identity == store.identity


def test_credentials_of_the_environment_show_nowhere(echo, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "CANARY-1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "CANARY-2")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "CANARY-3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", echo)
    store = StoreLocation.of(S3).open()
    with pytest.raises(IndexTablesError) as caught:
        store.get("object")
    assert [text for text in texts_of(caught.value) if CANARY in text] == []


def test_secret_shows_in_no_representation():
    secret = Secret(CANARY)
    for text in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r}",
        str([secret]),
        str({"a": secret}),
    ):
        assert CANARY not in text
    assert secret.reveal() == CANARY
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert secret != Secret("other")
    assert secret != CANARY


def test_redactor_finds_every_form_of_a_secret():
    redactor = Redactor([Secret("se/cr+et"), Secret("se/cr+et-longer"), Secret("sig=a%2Fb"), Secret("abc")])
    for text in ("x se/cr+et y", "se%2Fcr%2Bet", "se/cr%2Bet", "se/cr+et-longer", "sig=a/b", "sig%3Da%252Fb"):
        cleaned = redactor.clean(text)
        assert "***" in cleaned
        assert not {"cr", "longer", "sig"} & set(cleaned.replace("%", " ").split())
    assert redactor.clean("alphabet abc") == "alphabet abc"


def test_redactor_cleans_errors_in_place():
    error = ValueError("the key CANARY is wrong", 5)
    Redactor([Secret(CANARY)]).clean_error(error)
    assert error.args == ("the key *** is wrong", 5)
