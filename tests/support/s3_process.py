"""moto's S3 server on loopback, one request at a time.

moto looks whether an object is there and writes it without a lock in between, so that of two racing conditional
puts both can win. A real S3 does not do that; with requests in a row, moto does not either.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(port: int) -> None:
    application = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with turn:
            return list(application(environ, start_response))

    run_simple("127.0.0.1", port, one_at_a_time, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[-1]))
