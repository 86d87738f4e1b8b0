"""Writes the generated pages of the documentation, or checks that they are up to date.

`python -m tools.generated_pages --write` or `--check`.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from tools import configuration_page, sql_page

_DOCS = Path(__file__).parent.parent / "docs"
PAGES: dict[Path, Callable[[], str]] = {
    _DOCS / "configuration.md": configuration_page.render,
    _DOCS / "sql.md": sql_page.render,
}


def write_pages() -> None:
    """Write every generated page to docs/."""
    for path, render in PAGES.items():
        path.write_text(render(), encoding="utf-8")


def stale_pages() -> list[Path]:
    """Return the pages whose content on disk differs from the generated content."""
    return [
        path
        for path, render in PAGES.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != render()
    ]


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 1 if a page is stale, 2 for invalid arguments."""
    if arguments == ["--write"]:
        write_pages()
        return 0
    if arguments != ["--check"]:
        sys.stderr.write("usage: python -m tools.generated_pages --write | --check\n")
        return 2
    stale = stale_pages()
    for path in stale:
        sys.stderr.write(f"{path} is out of date: run make docs-generated\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
