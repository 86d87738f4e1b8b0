"""The minimal cost of a durable commit: write a file, flush it, rename it, and flush the directory."""

import os
from pathlib import Path


def durable_writes(folder: Path, payload: bytes, count: int) -> None:
    """Write files durably."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        for number in range(count):
            temporary, target = folder / f"temporary-{number}", folder / f"{number:020d}.json"
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                os.write(descriptor, payload)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            target.hardlink_to(temporary)
            os.fsync(directory)
            temporary.unlink()
    finally:
        os.close(directory)
