"""The XML dialect of Google Cloud Storage, as far as obstore's client speaks it, in front of MiniStack's S3.

It exercises the client and our use of it, not Google's service. Run it with `hypercorn support.gcs_server:app`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ministack.app import app as s3

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_IF_GENERATION = b"x-goog-if-generation-match"
_COPY_SOURCE = b"x-goog-copy-source"

# Google numbers the generations of an object; S3 has e-tags. The number of an e-tag is found here again.
_e_tags: dict[bytes, bytes] = {}


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        await s3(scope, receive, send)
        return
    headers = [header for given in scope["headers"] for header in _as_s3(*given)]

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *_generation(message["headers"])]}
        await send(message)

    await s3({**scope, "headers": headers}, receive, answer)


def _as_s3(name: bytes, value: bytes) -> list[tuple[bytes, bytes]]:
    if name == b"authorization":
        return []
    if name == _IF_GENERATION:
        return [(b"if-none-match", b"*")] if value == b"0" else [(b"if-match", _e_tags.get(value, b'"none"'))]
    return [(b"x-amz-copy-source" if name == _COPY_SOURCE else name, value)]


def _generation(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    e_tag = next((value for name, value in headers if name.lower() == b"etag"), None)
    if e_tag is None:
        return []
    number = str(int(e_tag.strip(b'"').partition(b"-")[0][:15], 16)).encode()
    _e_tags[number] = e_tag
    return [(b"x-goog-generation", number)]
