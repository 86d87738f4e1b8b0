"""The program of a user runs, and strict type checkers accept it with the types that the package ships."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import indextables

PROGRAM = Path(__file__).with_name("program.py")


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=folder)


def test_the_program_runs(tmp_path):
    done = run(PROGRAM, tmp_path, folder=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == [
        "4 2 ['timeout', 'timeout again']",
        "[50, 40, 30] [1, 2, 1]",
        "3 2",
        "[2]",
        "4 2",
        "refused at 0",
    ]


def test_mypy_accepts_the_program_strictly(tmp_path):
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\n[mypy-pyarrow.*]\nignore_missing_imports = True\n")
    done = run(
        "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path / "cache", PROGRAM, folder=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_pyright_accepts_the_program_strictly(tmp_path):
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright has no wheel for this platform")
    source = Path(indextables.__file__).parent.parent
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        json.dumps(
            {
                "include": [str(PROGRAM)],
                "extraPaths": [str(source)],
                "typeCheckingMode": "strict",
                # PyArrow ships no types: what comes from it is unknown to every program.
                "reportUnknownMemberType": False,
                "reportUnknownArgumentType": False,
                "reportUnknownVariableType": False,
                "reportUnknownParameterType": False,
            }
        )
    )
    done = run("-m", "basedpyright", "--project", config, "--pythonpath", sys.executable, folder=tmp_path)
    assert done.returncode == 0, done.stdout
