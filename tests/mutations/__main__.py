"""`python -m tests.mutations`: plants each bug in a copy of the package, and shows which test catches it.

Exits with 1 if no test catches a bug, if the code to replace no longer exists, or if the tests fail without any bug.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations.catalogue import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "indextables"


class MutationError(Exception):
    """A mutation cannot be applied or tested."""


def main(names: list[str]) -> int:
    chosen = [mutation for mutation in MUTATIONS if not names or any(name in mutation.name for name in names)]
    width = max(len(mutation.name) for mutation in chosen)
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        _check_is_used(source)
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        failures = _failures(source, tests)
        if failures:
            raise MutationError(f"the tests fail without any mutation: {failures}")
        for mutation in chosen:
            caught_by = _try(mutation, source)
            unnoticed += not caught_by
            sys.stdout.write(f"{mutation.name:{width}}  {caught_by or 'NOT CAUGHT'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - unnoticed} of {len(chosen)} caught\n")
    return 1 if unnoticed else 0


def mutated(mutation: Mutation, text: str) -> str:
    """The source with the bug. Raises MutationError unless the code to replace occurs exactly once."""
    count = text.count(mutation.original)
    if count != 1:
        raise MutationError(
            f"{mutation.name}: {mutation.file} has the code to replace {count} times, not once; update the catalogue"
        )
    return text.replace(mutation.original, mutation.mutant)


def _try(mutation: Mutation, source: Path) -> str | None:
    """The first test that fails, or None."""
    path = source / PACKAGE / mutation.file
    original = path.read_text()
    path.write_text(mutated(mutation, original))
    try:
        return next(iter(_failures(source, mutation.tests)), None)
    finally:
        path.write_text(original)


def _failures(source: Path, tests: list[str] | tuple[str, ...]) -> list[str]:
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests],
        cwd=ROOT,
        env=_environment(source),
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode == 0:
        return []
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", finished.stdout, re.MULTILINE)
    if finished.returncode != 1 or not failures:
        raise MutationError(f"pytest could not run {tests}:\n{finished.stdout}{finished.stderr}")
    return failures


def _check_is_used(source: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)"],
        cwd=ROOT,
        env=_environment(source),
        capture_output=True,
        text=True,
        check=True,
    )
    if not Path(finished.stdout.strip()).is_relative_to(source):
        raise MutationError(f"Python imports {finished.stdout.strip()}, not the mutated copy")


def _environment(source: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
