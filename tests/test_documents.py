"""The code blocks of the documents run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)

WITH_CODE = [document for document in DOCUMENTS if BLOCK.search(document.read_text())]


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_blocks_run_in_order(document, tmp_path):
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    for language, code in BLOCK.findall(document.read_text()):
        command = (
            [sys.executable, "-W", "error", "-c", code] if language == "python" else ["sh", "-e", "-c", code]
        )
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def test_links_between_documents_lead_somewhere():
    link = re.compile(r"\]\((?!https?:|#)([^)#]+)")
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in link.findall(document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
