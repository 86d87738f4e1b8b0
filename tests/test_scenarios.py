"""tests/scenarios.md names tests and benchmarks that exist."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "tests" / "scenarios.md"
PLAN = ROOT.parent / "shared" / "spec" / "avro-state-file.md"

# A file and a name in it: a test, `Class::test`, or the name that a benchmark is chosen by.
REFERENCE = re.compile(r"`((?:tests|benchmarks)/[^`]*?\.py)::([^`]+)`")
PLANNED = re.compile(r"^\| `(test\w+)` \|", re.MULTILINE)
SEPARATOR = re.compile(r"\|[-|]+\|")


def table_rows() -> list[str]:
    lines = DOCUMENT.read_text().splitlines()
    heads = {number for number, line in enumerate(lines[1:]) if SEPARATOR.fullmatch(line)}
    return [
        line
        for number, line in enumerate(lines)
        if line.startswith("|") and number not in heads and not SEPARATOR.fullmatch(line)
    ]


def references() -> set[tuple[str, str]]:
    return set(REFERENCE.findall(DOCUMENT.read_text()))


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """Tests of a file, also those of classes, and the names of benchmarks that it makes."""
    return frozenset(_names(ast.parse((ROOT / file).read_text(), file)))


def _names(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Benchmark":
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield str(first.value)
    yield from _tests(module.body, "")


def _tests(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield prefix + node.name


@pytest.mark.parametrize("file", sorted({file for file, _ in references()}))
def test_every_test_and_benchmark_that_is_named_exists(file):
    assert (ROOT / file).is_file(), f"{file} is named in {DOCUMENT.name}, and does not exist"
    named = {name.partition("[")[0] for found, name in references() if found == file}
    assert named <= names_in(file), f"not in {file}: {sorted(named - names_in(file))}"


def test_every_scenario_names_a_test_or_a_benchmark():
    rows = table_rows()
    assert len(rows) > 150
    assert [row for row in rows if not REFERENCE.search(row)] == []


def test_nothing_but_references_stands_in_the_last_column():
    cells = [row.strip("| ").rpartition(" | ")[2] for row in table_rows()]
    assert [cell for cell in cells if REFERENCE.sub("", cell).strip()] == []


def test_classes_and_benchmarks_are_found():
    assert "TestLinks::test_links_are_not_listed" in names_in("tests/storage/test_local.py")
    assert "open" in names_in("benchmarks/suite/opening.py")
    assert "test_nobody_wrote_this" not in names_in("tests/test_scenarios.py")


@pytest.mark.skipif(not PLAN.is_file(), reason=f"there is no test plan at {PLAN}")
def test_every_test_of_the_plan_is_listed():
    planned = PLANNED.findall(PLAN.read_text().partition("## Test Plan")[2])
    listed = PLANNED.findall(DOCUMENT.read_text())
    assert sorted(set(planned) - set(listed)) == []
    assert sorted(set(listed) - set(planned)) == []
