"""Bytes for scripts: packed as msgpack *strings*, since the server's decoder does not know msgpack's binary type."""

from msgspec import Raw


def as_text(value: bytes) -> Raw:
    """The bytes as a string, whatever they are."""
    return Raw(text_header(len(value)) + value)


def text_header(length: int) -> bytes:
    """What stands before a string of this many bytes."""
    # The forms of msgpack for strings: fixstr, str 16 and str 32.
    if length < 32:
        return bytes((0xA0 | length,))
    return b"\xda" + length.to_bytes(2) if length < 65_536 else b"\xdb" + length.to_bytes(4)
