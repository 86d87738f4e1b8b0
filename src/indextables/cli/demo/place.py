"""Where the demo may write: a directory that is new, empty, or has only an earlier demo table."""

import shutil
from pathlib import Path

import typer

from indextables.errors import IndexTablesError, InvalidOptionError, StorageError
from indextables.index_table import IndexTable
from indextables.log.paths import LOG_PREFIX, parse_log_path
from indextables.storage import parse_root
from indextables.storage.urls import Scheme

_SPLIT_SUFFIX = ".split"

DEMO_PROPERTY = "indextables.demo"
DEMO_MARK = "created by `indextables demo`, which may replace this table"


def local_directory(directory: str) -> Path:
    """The local directory of a path or file: URL. Raises typer.BadParameter for any other URL."""
    location = parse_root(directory)
    if location.scheme is not Scheme.LOCAL:
        raise typer.BadParameter("the demo needs a local directory", param_hint="'DIR'")
    return Path("/", location.path)


def make_room(directory: Path) -> bool:
    """Remove an earlier demo table; returns whether there was one.

    Raises InvalidOptionError, without changing anything, if the directory has any other content.
    """
    log = directory / LOG_PREFIX.rstrip("/")
    try:
        if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
            return False
        if not _is_earlier_demo(directory, log):
            raise InvalidOptionError(
                f"{directory} is not empty and is not an earlier demo table; nothing was changed. Choose another "
                f"directory, for example: indextables demo ./another-demo"
            )
        for entry in directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    except OSError as error:
        raise StorageError(f"{directory} cannot be used for the demo: {error.strerror or error}") from error
    return True


def _is_earlier_demo(directory: Path, log: Path) -> bool:
    if not directory.is_dir() or not log.is_dir() or log.is_symlink():
        return False
    if not all(_belongs_to_table(path, directory) for path in directory.rglob("*")):
        return False
    try:
        table = IndexTable(str(directory))
    except IndexTablesError:
        return False
    return table.metadata.configuration.get(DEMO_PROPERTY) == DEMO_MARK


def _belongs_to_table(path: Path, directory: Path) -> bool:
    if path.is_symlink():
        return False
    key = path.relative_to(directory).as_posix()
    if key.startswith(LOG_PREFIX):
        return path.is_dir() or parse_log_path(key) is not None
    return path.is_dir() or path.suffix == _SPLIT_SUFFIX
