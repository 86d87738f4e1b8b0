"""The command line: one small module per command, and how they speak to people and to programs."""

import gc
import os

_ALLOCATIONS_PER_COLLECTION = 100_000


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Imports make many objects that all stay: to look for garbage among them takes a fifth of a short command's time.
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    # numpy brings a library whose threads spin for a tenth of a second, for work that no command has.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from indextables.cli.app import run

    run()
