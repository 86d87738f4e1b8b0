"""Commands to IndexTables on the JVM, which runs in a process of its own (`jvm_judge/driver.py`)."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class JvmRefusedError(Exception):
    """The JVM answered a command with an error."""


class Jvm:
    """Sends commands to the driver, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def write(self, query: str, path: Path, *, partition_by: Sequence[str] = (), **options: str) -> None:
        """Append the rows of a query to a table, and to the Parquet files of `truth(path)`."""
        self._ask(
            do="write", query=query, path=str(path), truth=str(truth(path)), partition_by=list(partition_by),
            options=settings(options),
        )  # fmt: skip

    def read(self, path: Path, where: str = "true", column: str = "id", **options: str) -> list[Any]:
        """The sorted values of a column of the rows that a filter selects."""
        answer = self._ask(do="read", path=str(path), where=where, column=column, options=settings(options))
        return sorted(answer)

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self._ask(do="sql", text=text)

    def _ask(self, **command: Any) -> list[Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM ended with code {self._process.wait(timeout=60)}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JvmRefusedError(answer["error"])
        rows: list[Any] = answer["rows"]
        return rows


def settings(options: dict[str, str]) -> dict[str, str]:
    return {f"spark.indextables.{key.replace('__', '.')}": value for key, value in options.items()}


def truth(path: Path) -> Path:
    """The folder of Parquet files with the rows that the JVM was told to write."""
    return path.with_name(f"{path.name}-truth")
