"""JSON output for programs: UTF-8 on stdout in any locale."""

import json
import sys


def print_json(document: object) -> None:
    """Print one document, indented."""
    sys.stdout.flush()
    text = json.dumps(document, ensure_ascii=False, indent=2)
    # A lone surrogate, from a file name that is not UTF-8, becomes a JSON escape.
    sys.stdout.buffer.write(f"{text}\n".encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
