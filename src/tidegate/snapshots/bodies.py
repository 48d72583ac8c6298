"""How bodies are kept: compressed, and known by a hash."""

import threading

import xxhash
import zstandard

from tidegate.kernel.errors import InvalidArgument

LARGEST_BODY = 8 * 1024 * 1024
_per_thread = threading.local()


def digest(body: bytes) -> str:
    """A name for the content; nobody gains by forging it, so it need only be fast."""
    return xxhash.xxh3_64_hexdigest(body)


def pack(body: bytes) -> bytes:
    """Compressed."""
    if len(body) > LARGEST_BODY:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must have at most {LARGEST_BODY}")
    if not hasattr(_per_thread, "compressor"):
        _per_thread.compressor = zstandard.ZstdCompressor(level=1)
    return _per_thread.compressor.compress(body)


def unpack(packed: bytes) -> bytes:
    """As it was."""
    if not hasattr(_per_thread, "decompressor"):
        _per_thread.decompressor = zstandard.ZstdDecompressor()
    return _per_thread.decompressor.decompress(packed, max_output_size=LARGEST_BODY)
