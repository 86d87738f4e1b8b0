"""A new store of each kind for every test, and stores behind a failing server."""

import contextlib
import os
import uuid
from collections.abc import Iterator

import pytest

from indextables.storage import ObjectStore, open_store
from support.clock import VirtualClock
from support.fault_proxy import Fault, FaultProxy

KINDS = ("local", "memory", "s3", "azure")


@pytest.fixture(autouse=True)
def no_credentials_from_outside(monkeypatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def s3_bucket(s3_server) -> str:
    return s3_server.make_bucket()


@pytest.fixture(scope="session")
def azure_container(azurite_server) -> str:
    return azurite_server.make_container()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path) -> ObjectStore:
    table = f"tables/{uuid.uuid4().hex}"
    if request.param == "local":
        return open_store(tmp_path / table)
    if request.param == "memory":
        return open_store(f"memory://{table}")
    if request.param == "s3":
        server, bucket = request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket")
        return open_store(f"s3://{bucket}/{table}", storage_options=server.storage_options)
    server, container = request.getfixturevalue("azurite_server"), request.getfixturevalue("azure_container")
    return open_store(f"az://{container}/{table}", storage_options=server.storage_options)


@pytest.fixture
def behind(s3_server, s3_bucket):
    """Open a store behind a proxy with these faults; backoff takes no real time."""
    own_root = f"s3://{s3_bucket}/{uuid.uuid4().hex}"

    @contextlib.contextmanager
    def opened(*faults: Fault, root: str = own_root) -> Iterator[tuple[ObjectStore, FaultProxy]]:
        with FaultProxy(s3_server.endpoint, faults).running() as proxy:
            options = s3_server.storage_options | {"aws_endpoint": proxy.endpoint}
            yield open_store(root, storage_options=options, clock=VirtualClock()), proxy
            assert proxy.unused_faults == []

    return opened
