"""The local cache of indexes, shared by all tables and processes of a user."""

import os
from functools import lru_cache
from pathlib import Path

from indextables.config import Settings
from indextables.config.registry import DISK_CACHE_MAX_SIZE, DISK_CACHE_PATH
from indextables.split.cache import IndexCache


def index_cache(settings: Settings) -> IndexCache:
    """The cache that the settings name, or the one in the user's cache directory."""
    directory = settings[DISK_CACHE_PATH]
    return _cache(Path(directory) if directory else _default_root(), settings[DISK_CACHE_MAX_SIZE])


@lru_cache
def _cache(directory: Path, max_bytes: int) -> IndexCache:
    return IndexCache(directory, max_bytes)


def _default_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "indextables"
