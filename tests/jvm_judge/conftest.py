"""The implementation on the JVM, started once for all of its judgements."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jvm import Jvm
from tools import jvm_judge


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    if not jvm_judge.is_ready():
        pytest.skip("IndexTables on the JVM is not installed (make jvm-judge)")
    folder = tmp_path_factory.mktemp("jvm")
    command = [str(jvm_judge.PYTHON), str(Path(__file__).with_name("driver.py")), str(jvm_judge.JAR)]
    with (
        (folder / "stderr.txt").open("w") as log,
        subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        yield Jvm(process)
