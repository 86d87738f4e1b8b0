"""Decoding of msgspec Structs in several threads."""

from typing import TypeVar

import msgspec

S = TypeVar("S", bound=type[msgspec.Struct])


def decodable(struct: S) -> S:
    """Prepare a Struct that is decoded or converted, as a decorator or a call.

    msgspec collects what it knows of a Struct when it first decodes one, and crashes the process if two threads do so
    at the same time. So it happens when the class is defined.
    """
    msgspec.json.Decoder(struct)
    return struct
