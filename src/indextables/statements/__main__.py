"""Writes docs/sql.md, or checks it."""

import sys

from indextables.config.generated_page import keep_page
from indextables.statements.document import render


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 1 if the page differs from what would be written."""
    return keep_page("indextables.statements", "the forms of the statements", render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
