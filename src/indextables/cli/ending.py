"""The end of a process, without a chance for native libraries to spoil it."""

import atexit
import contextlib
import os
import sys
import threading
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """End the process with this exit code, after everything that Python would do at its end.

    Threads of native libraries that are still at work while their libraries are unloaded abort the process at times,
    with an exit code that hides a command's success. So the libraries are not unloaded.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does at its end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # Who stopped reading has what they wanted.
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
