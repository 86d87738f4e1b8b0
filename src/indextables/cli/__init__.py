"""The command line: one small module per command, and how they speak to people and to programs."""

import gc

_ALLOCATIONS_PER_COLLECTION = 100_000


def main() -> None:
    """Run the command line and end the process with its exit code."""
    # Imports make many objects that all stay: to look for garbage among them takes a fifth of a short command's time.
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    from indextables.cli.app import run

    run()
