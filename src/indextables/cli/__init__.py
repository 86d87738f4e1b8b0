"""The command line: one module per command, and the output, options and process handling they share."""

import gc
import os

_ALLOCATIONS_PER_COLLECTION = 100_000


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Imports create many long-lived objects; collecting garbage among them takes a fifth of a short command's time.
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    # numpy's OpenBLAS starts threads that spin for a tenth of a second; no command needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from indextables.cli.app import run

    run()
