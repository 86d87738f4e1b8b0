"""Real processes that race for one table. They start together, once all of them have imported the package."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def race(program: str, racers: int, **arguments: Any) -> list[Any]:
    """Run a Python program in several processes; returns what each of them printed, as JSON.

    The program finds its `number` and the arguments in `task`, prepares itself, calls `ready()`, which returns when all
    have come so far, and ends with `done(result)`.
    """
    processes = [_start(program, {"number": number, **arguments}) for number in range(racers)]
    try:
        for process in processes:
            line = process.stdout.readline()
            assert line == "ready\n", line + process.stdout.read() + process.stderr.read()
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [_result(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()


_PRELUDE = """
import json, sys
task = json.loads(sys.argv[1])

def ready():
    print("ready", flush=True)
    sys.stdin.readline()

def done(result):
    print(json.dumps(result), flush=True)
"""


def _start(program: str, task: Mapping[str, Any]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _PRELUDE + program, json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )


def _result(process: "subprocess.Popen[str]") -> Any:
    output = process.stdout.read()
    errors = process.stderr.read()
    assert process.wait() == 0, errors
    return json.loads(output.splitlines()[-1])
