"""How answers are kept: compressed where that pays, and known by a hash of what they say."""

import threading
from typing import Any

import msgspec
import xxhash
import zstandard

from tidegate.core.errors import InvalidArgument

HASH_LENGTH = 16
LARGEST_BODY = 64 * 1024 * 1024
_PAYS_FROM = 1024
"""Bytes; what is smaller saves less room than it takes time."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_per_thread = threading.local()
_encoder = msgspec.json.Encoder(order="deterministic")


def digest(body: bytes) -> str:
    """A name for some bytes; nobody gains by forging it, so it need only be fast."""
    return xxhash.xxh3_64_hexdigest(body)


def as_text(content: Any) -> str:
    """What was extracted, as JSON: the same content is always the same text."""
    return _encoder.encode(content).decode()


def pack(body: bytes) -> bytes:
    """As it is kept."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    if len(body) < _PAYS_FROM and not body.startswith(_MAGIC):
        return body
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """As it came."""
    if not packed.startswith(_MAGIC):
        return packed
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)
