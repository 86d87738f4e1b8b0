"""A store in memory, new for every test."""

import uuid

import pytest

from indextables.storage import ObjectStore, open_store


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://log/{uuid.uuid4().hex}")
