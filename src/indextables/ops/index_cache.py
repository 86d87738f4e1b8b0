"""The local cache of indexes, shared by all tables and processes of a user."""

import os
from functools import lru_cache
from pathlib import Path

from indextables.config import Settings
from indextables.config.registry import DISK_CACHE_MAX_SIZE, DISK_CACHE_PATH
from indextables.split.cache import IndexCache


def index_cache(settings: Settings) -> IndexCache:
    """The cache that the settings name, or the one in the user's cache directory."""
    own = settings[DISK_CACHE_PATH]
    return _cache(own, None if own else os.environ.get("XDG_CACHE_HOME"), settings[DISK_CACHE_MAX_SIZE])


@lru_cache
def _cache(own: str | None, user_caches: str | None, max_bytes: int) -> IndexCache:
    if own:
        return IndexCache(Path(own), max_bytes)
    base = Path(user_caches) if user_caches else Path.home() / ".cache"
    return IndexCache(base / "indextables", max_bytes)
