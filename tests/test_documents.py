"""The documents are true: their code blocks run as they stand, and what they name exists.

Blocks of `python` and `sh` run in order, in a new folder for each document; other languages are only shown.
`text` right below a block of `sh` is its output. Documents that use Spark share a session. Cells of notebooks run, too.
"""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from indextables import errors, metrics
from indextables.cli.app import COMMANDS
from indextables.storage.credentials import FAMILIES
from support import MAX_STREAM_STARTS, STREAM_TOO_SLOW
from support.document_blocks import BlockRunner

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
ALL_DOCUMENTS = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
BLOCK = re.compile(
    r"^( *)```(python|sh)\n(.*?)^\1```$(?:\n\1```text\n(.*?)^\1```$)?", re.DOTALL | re.MULTILINE
)
ANY_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
SPARK = "indextables.spark"


class Block(NamedTuple):
    language: str
    code: str
    output: str  # what the document says that the block prints; empty if it says nothing


def blocks(document: Path) -> list[Block]:
    found = BLOCK.findall(document.read_text())
    return [
        Block(language, textwrap.dedent(code), textwrap.dedent(output)) for _, language, code, output in found
    ]


def uses_spark(document: Path) -> bool:
    return any(
        block.language == "python" and (f"import {SPARK}" in block.code or f"from {SPARK}" in block.code)
        for block in blocks(document)
    )


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


WITH_CODE = [document for document in DOCUMENTS if blocks(document)]
PLAIN = [document for document in WITH_CODE if not uses_spark(document)]
ON_SPARK = [document for document in WITH_CODE if uses_spark(document)]


@pytest.fixture(scope="module")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def spark_runner(spark_folder: Path) -> Iterator[BlockRunner]:
    """One session for all documents: it works in one folder, where relative paths lead to."""
    if find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed (pip install indextables[spark])")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    with BlockRunner(spark_folder, "--spark") as runner:
        yield runner


@pytest.mark.parametrize("document", PLAIN, ids=name_of)
def test_code_blocks_run_in_order(document: Path, tmp_path: Path) -> None:
    with BlockRunner(tmp_path) as runner:
        run_blocks(document, tmp_path, runner)


@pytest.mark.parametrize("document", ON_SPARK, ids=name_of)
def test_code_blocks_with_spark_run_in_order(
    document: Path, spark_folder: Path, spark_runner: BlockRunner
) -> None:
    for left_over in spark_folder.iterdir():
        shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    run_blocks(document, spark_folder, spark_runner)


def run_blocks(document: Path, folder: Path, runner: BlockRunner) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1"}
    is_first = True
    for language, code, output in blocks(document):
        if language == "python":
            failure = run_block(runner, code, is_first=is_first)
            assert failure is None, failure
            is_first = False
            continue
        done = subprocess.run(
            ["sh", "-e", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        if output:
            assert_output(output, done.stdout, done.stderr)


def assert_output(shown: str, stdout: str, stderr: str) -> None:
    """All of stdout is shown, and nothing else but lines of stderr; times and sizes differ from run to run."""
    lines, rows, notes = (
        [re.sub(r"[\d.]+ (ms|s|KiB)\b", r"… \1", line.rstrip()) for line in text.splitlines()]
        for text in (shown, stdout, stderr)
    )
    assert [line for line in lines if line not in notes] == rows, f"{shown}\n{stdout}\n{stderr}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_the_cells_of_notebooks_run_in_order(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert codes
    with BlockRunner(tmp_path) as runner:
        for number, code in enumerate(codes):
            failure = runner.run(code, is_first=number == 0)
            assert failure is None, failure


def run_block(runner: BlockRunner, code: str, *, is_first: bool) -> str | None:
    """Run a block, and once more as long as a stream in it fails because the machine is busy; return its failure."""
    for _ in range(MAX_STREAM_STARTS):
        failure = runner.run(code, is_first=is_first)
        if failure is None or STREAM_TOO_SLOW not in failure:
            break
    return failure


@pytest.mark.parametrize("document", ALL_DOCUMENTS, ids=name_of)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", ALL_DOCUMENTS, ids=name_of)
def test_commands_that_are_named_exist(document: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for code in shown_code(document.read_text()):
        for line in code.splitlines():
            words = line.split()
            if words[:1] == ["make"] and len(words) > 1 and re.fullmatch("[a-z-]+", words[1]):
                assert words[1] in targets, line
            if words[:1] == ["indextables"] and len(words) > 1 and re.fullmatch("[a-z][a-z-]*", words[1]):
                assert words[1] in COMMANDS, line


def shown_code(text: str) -> list[str]:
    return [*ANY_BLOCK.findall(text), *INLINE.findall(ANY_BLOCK.sub("", text))]


def test_the_list_of_commands_is_complete() -> None:
    listed = re.findall(
        r"^\| `indextables ([a-z-]+)", document_text("docs/guide/command-line.md"), re.MULTILINE
    )
    assert listed == list(COMMANDS)


def test_every_error_is_explained() -> None:
    classes = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.IndexTablesError)
    ]
    explained = re.findall(r"^### `(\w+)`", document_text("docs/troubleshooting.md"), re.MULTILINE)
    assert sorted(explained) == sorted(classes)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    listed = re.findall(r"^\| `(indextables\..*) \|$", document_text("docs/operations.md"), re.MULTILINE)
    assert listed == [
        f"{each.name}` | {each.kind} | {', '.join(f'`{name}`' for name in each.attributes)} | {each.description}"
        for each in metrics.all_instruments()
    ]


def test_every_storage_setting_is_listed() -> None:
    text = document_text("docs/storage.md").lower()
    for family in FAMILIES.values():
        missing = [name for name in family.spark_options if f"`{name}`" not in text]
        assert missing == []
        missing = [name for name in family.settings if f"`{name}`" not in text]
        assert missing == []


def document_text(path: str) -> str:
    return (ROOT / path).read_text()


def test_the_walkthrough_names_every_package_and_takes_a_dozen_steps_at_most() -> None:
    text = document_text("docs/walkthrough.md")
    packages = {path.parent.name for path in (ROOT / "src" / "indextables").glob("*/__init__.py")}
    assert [name for name in sorted(packages) if f"| `{name}` |" not in text] == []
    paths = [part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith("One ")]
    assert [part.splitlines()[0] for part in paths] == ["One append", "One search", "One merge", "One purge"]
    for part in paths:
        assert len(set(re.findall(r"\]\((\.\./src/[^)]+)\)", part))) <= 12, part.splitlines()[0]
