"""A new store of each kind for every test, and stores behind a failing server."""

import contextlib
import os
import uuid
from collections.abc import Iterator

import pytest

from indextables.storage import ObjectStore, open_store
from support.clock import VirtualClock
from support.fault_proxy import Fault, FaultProxy

KINDS = ("local", "memory", "s3", "seaweedfs", "azure", "gcs", "hdfs")


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


@pytest.fixture(scope="session")
def seaweedfs_bucket(seaweedfs_server) -> str:
    return seaweedfs_server.make_bucket()


@pytest.fixture(scope="session")
def gcs_bucket(gcs_server) -> str:
    return gcs_server.make_bucket()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path) -> ObjectStore:
    table, needed = f"tables/{uuid.uuid4().hex}", request.getfixturevalue
    match request.param:
        case "local":
            return open_store(tmp_path / table)
        case "memory":
            return open_store(f"memory://{table}")
        case "hdfs":
            return open_store(f"{needed('hdfs_server').url}/{table}")
        case "s3":
            url, server = f"s3://{needed('s3_bucket')}/{table}", needed("s3_server")
        case "seaweedfs":
            url, server = f"s3://{needed('seaweedfs_bucket')}/{table}", needed("seaweedfs_server")
        case "gcs":
            url, server = f"gs://{needed('gcs_bucket')}/{table}", needed("gcs_server")
        case "azure":
            url, server = f"az://{needed('azure_container')}/{table}", needed("azurite_server")
    return open_store(url, storage_options=server.storage_options)


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
