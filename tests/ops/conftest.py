"""Fixtures of the operations' tests."""

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    """Indexes are cached in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache-home")))
        yield
