"""The standard streams of the command line's process: encodings that lack characters, and readers that go away.

A reader such as `head` closes the pipe when it has seen enough. That is no failure: the command's work continues, what
it still prints is dropped, and a command whose work is to print rows asks `is_reader_gone` and ends early.
"""

import io
import os
import sys

from indextables.errors import StorageError


class _Pipe(io.FileIO):
    """The process's stdout, which drops what is written after its reader is gone."""

    is_reader_gone = False

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        if not self.is_reader_gone:
            try:
                return super().write(data) or 0
            except BrokenPipeError:
                self.is_reader_gone = True
            except OSError as error:
                # Said once: the streams above would try again to write what they hold.
                self.is_reader_gone = True
                raise StorageError(f"stdout cannot be written: {error.strerror or error}") from error
        return memoryview(data).nbytes


def prepare_standard_streams() -> None:
    """Let both streams of this process escape characters that their encoding lacks, and stdout outlive its reader."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Pipe(os.dup(sys.stdout.fileno()), "w")),
            encoding=sys.stdout.encoding,
            line_buffering=sys.stdout.line_buffering,
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_reader_gone() -> bool:
    """Whether the reader of stdout has closed the pipe, as `head` does. Known after the next write to it."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return isinstance(raw, _Pipe) and raw.is_reader_gone
