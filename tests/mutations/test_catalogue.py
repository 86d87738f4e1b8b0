"""The code that mutations replace still exists: an outdated catalogue proves nothing."""

import ast
from pathlib import Path

import pytest

from mutations.catalogue import MUTATIONS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_fits_the_source_once_and_gives_valid_python(mutation):
    text = (ROOT / "src" / "indextables" / mutation.file).read_text()
    assert text.count(mutation.original) == 1
    ast.parse(text.replace(mutation.original, mutation.mutant))
    assert all((ROOT / test).exists() for test in mutation.tests)
