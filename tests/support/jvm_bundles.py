"""Writes splits in the layout of the JVM, which the package only reads."""

from collections.abc import Mapping

import orjson

from indextables.split.jvm_bundle import MAGIC, U32_BYTES, VERSION, Member


def encode_manifest(members: Mapping[str, Member]) -> bytes:
    """Encode the manifest: magic bytes, version and JSON."""
    files = {name: {"start": member.start, "end": member.end} for name, member in members.items()}
    return MAGIC + _u32(VERSION) + orjson.dumps({"files": files})


def encode_footer(manifest: bytes, hot_cache: bytes) -> bytes:
    """Encode the footer that follows the last member."""
    return manifest + _u32(len(manifest)) + hot_cache + _u32(len(hot_cache))


def _u32(number: int) -> bytes:
    return number.to_bytes(U32_BYTES, "little")
