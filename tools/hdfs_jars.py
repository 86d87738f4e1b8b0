"""Gets the jars of a small HDFS (Hadoop 2.7.3) into `.hdfs/`, for the tests that `make hdfs` enables.

They are part of the source distribution of PySpark 2.4.8, so the Python package index is enough. `python -m
tools.hdfs_jars` exits with 1, and says why, if it cannot be downloaded.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parent.parent
FOLDER: Final = PROJECT / ".hdfs"

_RELEASE: Final = "pyspark==2.4.8"
_JARS: Final = re.compile(
    r"(?:hadoop-(?:common|auth|annotations|hdfs-2)|htrace-core"
    r"|commons-(?:cli|codec|collections|configuration|io|lang-2|logging)"
    r"|guava-|protobuf-java-2|jetty-6|jetty-util-6|javax\.(?:servlet|ws\.rs)-api|jackson-(?:core|mapper)-asl|log4j-1"
    r"|slf4j-(?:api|log4j12)|netty-3|netty-all-4|xmlenc|jaxb-api|activation|xercesImpl|httpclient-4|httpcore-4)"
    r"[^/]*\.jar"
)
# Its build runs when pip reads its metadata, and fails with newer releases of these.
_BUILD_CONSTRAINTS: Final = "pypandoc<1.8\nsetuptools<70\n"
_NUM_JARS: Final = 31


def jars() -> list[Path]:
    """The jars that are installed; none before `make hdfs`."""
    return sorted(FOLDER.glob("*.jar"))


def is_ready() -> bool:
    """Whether all jars are installed."""
    return len(jars()) == _NUM_JARS


def install() -> None:
    """Download the jars that are missing. Raises CalledProcessError if pip cannot deliver them."""
    if is_ready():
        return
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "constraints.txt")
        constraints.write_text(_BUILD_CONSTRAINTS)
        download = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
        subprocess.run(  # noqa: S603  # a fixed command
            [sys.executable, "-m", "pip", *download, "--dest", scratch, _RELEASE],
            env={"PATH": "/usr/bin:/bin", "PIP_CONSTRAINT": str(constraints)},
            capture_output=True,
            text=True,
            check=True,
        )
        [archive] = Path(scratch).glob("pyspark-*.tar.gz")
        _extract(archive)


def _extract(archive: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(archive) as source:
        for member in source:
            path = Path(member.name)
            if path.parent.name == "jars" and _JARS.fullmatch(path.name):
                content = source.extractfile(member)
                assert content is not None
                with (FOLDER / path.name).open("wb") as target:
                    shutil.copyfileobj(content, target)


def main() -> int:
    """Install the jars, and say why if that is not possible."""
    try:
        install()
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        sys.stderr.write(f"hdfs: pip did not deliver {_RELEASE}: {lines[-1] if lines else error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
