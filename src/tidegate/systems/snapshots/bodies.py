"""How bodies are kept: compressed, and known by a hash."""

import threading

import msgspec
import xxhash
import zstandard

from tidegate.core.errors import UNDECODABLE, InvalidArgument

LARGEST_BODY = 8 * 1024 * 1024
_per_thread = threading.local()
_walker = msgspec.json.Decoder(msgspec.Raw)


def digest(body: bytes) -> str:
    """A name for the content; nobody gains by forging it, so it need only be fast."""
    return xxhash.xxh3_64_hexdigest(body)


def on_one_line(body: bytes) -> bytes:
    """The same JSON without line breaks: it is told in lines, of events and of commands. What is no JSON is refused."""
    try:
        body.decode()  # a walk over JSON does not look into its texts
        _walker.decode(body)
        return msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body
    except UNDECODABLE as error:
        raise InvalidArgument("body", f"{len(body)} bytes", f"must be JSON: {error}") from None


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
