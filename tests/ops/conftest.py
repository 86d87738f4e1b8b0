"""Fixtures for the tests of the operations."""

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    """Cache indexes in a folder of the tests, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield
