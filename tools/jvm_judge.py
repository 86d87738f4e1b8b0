"""Installs IndexTables on the JVM and the PySpark that it needs into a folder of their own, for `make jvm-judge`.

`python -m tools.jvm_judge` exits with 0 if the environment is ready. Otherwise it prints why not, and exits with 1: the
judge is skipped where Java, Maven or one of the packages cannot be had.
"""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parent.parent
FOLDER: Final = PROJECT / ".jvm-judge"
JAR: Final = FOLDER / "indextables_spark-0.5.5_spark_3.5.3-linux-x86_64-shaded.jar"
PYTHON: Final = FOLDER / "venv" / "bin" / "python"

_LOCK: Final = PROJECT / "requirements" / "jvm-judge.lock"
_ARTIFACT: Final = "io.indextables:indextables_spark:0.5.5_spark_3.5.3:jar:linux-x86_64-shaded"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
# Written last: the folder of an interrupted installation is not taken for a whole one.
_READY: Final = FOLDER / "ready"


class UnavailableError(Exception):
    """A part of the environment cannot be had on this machine."""


def is_ready() -> bool:
    """Whether the environment is installed, from the lock file as it is now."""
    return _READY.is_file() and _READY.read_text() == _LOCK.read_text()


def install() -> None:
    """Install what is missing. Raises UnavailableError."""
    if is_ready():
        return
    for command, purpose in (("java", "Spark"), ("mvn", "the JAR of IndexTables, which Maven fetches")):
        if shutil.which(command) is None:
            raise UnavailableError(f"{command} is not installed; it is needed for {purpose}")
    FOLDER.mkdir(exist_ok=True)
    if not JAR.is_file():
        # Strict checksums; and no failure of an earlier attempt is remembered.
        target = (f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={FOLDER}")
        _run(["mvn", "-q", "-B", "-C", "-U", _COPY, *target], f"Maven did not deliver {_ARTIFACT}")
    venv.create(FOLDER / "venv", with_pip=True, clear=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    requirements = ["--no-deps", "-r", str(_LOCK)]
    # The second run builds PySpark with the pinned setuptools of the first.
    _run(
        [*pip, "--only-binary", "py4j,setuptools,wheel", *_build_tools()],
        "pip did not deliver the build tools",
    )
    _run([*pip, "--no-build-isolation", *requirements], "pip did not deliver PySpark 3.5")
    _READY.write_text(_LOCK.read_text())


def _build_tools() -> list[str]:
    """The part of the lock file that builds PySpark, as a file of its own: hashes cannot stand on the command line."""
    lock = _LOCK.read_text()
    part = FOLDER / "build-tools.lock"
    part.write_text(lock[lock.index("setuptools==") :])
    return ["-r", str(part)]


def _run(command: list[str], failure: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed commands
    if result.returncode:
        lines = [line for line in (result.stdout + result.stderr).splitlines() if "ERROR" in line]
        reason = re.sub(r"^.*?ERROR\W*", "", lines[0]) if lines else f"exit code {result.returncode}"
        raise UnavailableError(f"{failure}: {reason}")


def main() -> int:
    """Install the environment, and say why if that is not possible."""
    try:
        install()
    except UnavailableError as reason:
        sys.stderr.write(f"jvm-judge: skipped: {reason}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
