"""Encodes stored answers: compressed if that pays, and identified by a hash of their content."""

import threading
from typing import Any

import msgspec
import xxhash
import zstandard

from tidegate.core.errors import InvalidArgument

HASH_LENGTH = 16
LARGEST_BODY = 64 * 1024 * 1024
_PAYS_FROM = 1024
"""Minimum size in bytes; compressing smaller bodies takes more time than it saves space."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_per_thread = threading.local()
_encoder = msgspec.json.Encoder(order="deterministic")


def digest(body: bytes) -> str:
    """A fast hash that identifies bytes; not cryptographic, since a forged one has no use."""
    return xxhash.xxh3_64_hexdigest(body)


def as_text(content: Any) -> str:
    """Extracted content as canonical JSON: equal content gives equal text."""
    return _encoder.encode(content).decode()


def pack(body: bytes) -> bytes:
    """Compress a body for storage."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    # A plain body that begins like a compressed one must be compressed, since `unpack` tells them
    # apart by the first bytes.
    if len(body) < _PAYS_FROM and not body.startswith(_MAGIC):
        return body
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """Restore a stored body."""
    if not packed.startswith(_MAGIC):
        return packed
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)
