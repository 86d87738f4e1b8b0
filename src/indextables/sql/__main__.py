"""Writes docs/sql.md, or checks that it says what the forms of the statements say."""

import argparse
import sys
from pathlib import Path

from indextables.sql.document import render


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 1 if the document differs from what would be written."""
    parser = argparse.ArgumentParser(prog="python -m indextables.sql", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", metavar="PATH", type=Path, help="exit with 1 if PATH is out of date")
    action.add_argument("--write", metavar="PATH", type=Path, help="write the document to PATH")
    parsed = parser.parse_args(arguments)
    if parsed.write is not None:
        parsed.write.write_text(render(), encoding="utf-8")
        return 0
    return _check(parsed.check)


def _check(path: Path) -> int:
    if path.is_file() and path.read_text(encoding="utf-8") == render():
        return 0
    remedy = f"python -m indextables.sql --write {path}"
    sys.stderr.write(f"{path} does not say what the forms of the statements say; run: {remedy}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
