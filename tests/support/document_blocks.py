"""Runs the Python blocks of documents, one after the other, in one long-lived process that `BlockRunner` starts.

A document's blocks share their names, as if somebody pasted them into one interpreter. With `--spark` a small session
runs before the first block, so that `indextables.spark.session()` in a block finds it.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

SPARK_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 2,
    "spark.ui.showConsoleProgress": False,
}


class BlockRunner:
    """The process that runs blocks, in the working directory `folder`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-W", "error", __file__, *arguments]
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        from support import PATIENCE_SECONDS  # the process that runs the blocks does not see this package

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=PATIENCE_SECONDS)

    def run(self, code: str, *, is_first: bool) -> str | None:
        """Run a block; the first block of a document starts with no names. Returns the error, or None."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "is_first": is_first}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            return f"{code}\nended the process with code {self._process.wait()}"
        failure: str | None = json.loads(answer)["failure"]
        return failure


def serve(answers: int, with_spark: bool) -> None:
    """Run the block of each line of stdin, and write its result."""
    names: dict[str, Any] = {}
    with os.fdopen(answers, "w") as stream:
        for line in sys.stdin:
            request = json.loads(line)
            if request["is_first"]:
                names = {"__name__": "__main__"}
                if with_spark:
                    start_spark()
            stream.write(json.dumps({"failure": run(request["code"], names)}) + "\n")
            stream.flush()


def run(code: str, names: dict[str, Any]) -> str | None:
    """Run a block; returns the traceback with everything that it printed, or None."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<block>", "exec"), names)
    except BaseException:  # noqa: BLE001 - any error is the result
        return f"{code}\n{printed.getvalue()}\n{traceback.format_exc()}"
    return None


def start_spark() -> None:
    """Start a session, unless one is running: a document may have stopped it."""
    import indextables.spark  # documents without Spark must not wait for it

    warehouse = {"spark.sql.warehouse.dir": str(Path.cwd() / "warehouse")}
    indextables.spark.session(**SPARK_SETTINGS, **warehouse)


if __name__ == "__main__":
    # Output of blocks and of Spark must not mix with the results.
    answers = os.dup(1)
    os.dup2(2, 1)
    serve(answers, "--spark" in sys.argv)
