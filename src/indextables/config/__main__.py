"""Writes docs/configuration.md, or checks it."""

import sys

from indextables.config.document import render
from indextables.config.generated_page import keep_page


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 1 if the page differs from what would be written."""
    return keep_page("indextables.config", "the settings' definitions", render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
