"""Fixtures of the tests of splits."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def busy_watcher(monkeypatch) -> None:
    """Tantivy's thread that watches an index is busy: it locks the index again just before its folder is removed."""
    rmdir = os.rmdir

    def create_lock_and_rmdir(path, *, dir_fd=None) -> None:
        folder = Path(path) if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}", path)
        (folder / ".tantivy-meta.lock").touch()
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", create_lock_and_rmdir)
