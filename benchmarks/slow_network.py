"""`python -m benchmarks.slow_network PORT SECONDS`: a server at a distance.

It forwards connections to a port on loopback, and holds back every request for so long. It runs in a process of its
own, so that it takes no time from those that are measured.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

_HOST = "127.0.0.1"
_PIECE_BYTES = 256 * 1024


@contextlib.contextmanager
def distant(port: int, seconds: float) -> Iterator[int]:
    """A port that answers as another one does, but later."""
    command = [sys.executable, "-m", "benchmarks.slow_network", str(port), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None  # it is a pipe
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


class _Connection:
    """A connection of a client. What it sends after an answer is the next request."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._seconds = seconds
        self._is_answered = True

    async def serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(_HOST, self._port)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(self._ask(client_in, server_out), self._answer(server_in, client_out))

    async def _ask(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(_PIECE_BYTES):
            if self._is_answered:
                self._is_answered = False
                await asyncio.sleep(self._seconds)
            target.write(data)
            await target.drain()
        target.close()

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(_PIECE_BYTES):
            self._is_answered = True
            target.write(data)
            await target.drain()
        target.close()


async def _main(port: int, seconds: float) -> None:
    server = await asyncio.start_server(
        lambda client_in, client_out: _Connection(port, seconds).serve(client_in, client_out),
        _HOST,
        backlog=1024,
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), float(sys.argv[2])))
