"""Pages of the documentation that are written by the code that they describe."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path


def keep_page(module: str, source: str, render: Callable[[], str], arguments: list[str]) -> int:
    """Write a page, or check that it is what `render` gives; the exit code is 1 if it is not.

    `module` is what `python -m` runs, and `source` says in words what the page is written from.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"A page written from {source}.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", metavar="PATH", type=Path, help="exit with 1 if PATH is out of date")
    action.add_argument("--write", metavar="PATH", type=Path, help="write the page to PATH")
    parsed = parser.parse_args(arguments)
    if parsed.write is not None:
        parsed.write.write_text(render(), encoding="utf-8")
        return 0
    path: Path = parsed.check
    if path.is_file() and path.read_text(encoding="utf-8") == render():
        return 0
    sys.stderr.write(f"{path} does not say what {source} say; run: python -m {module} --write {path}\n")
    return 1
