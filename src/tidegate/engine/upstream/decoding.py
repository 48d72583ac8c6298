"""Bodies as they arrive: decompressed, counted, and refused as soon as they are too large.

aiohttp can decompress by itself, but takes a gzip stream that ends in the middle for a whole one.
"""

import zlib
from collections.abc import Callable
from typing import Any, Protocol

try:
    from isal import isal_zlib as fast_zlib
except ImportError:  # no wheel for this machine
    fast_zlib = None

_MOST_MEMBERS = 1000
"""Of one gzip body. Real ones have one; a crowd of empty ones costs time and brings nothing."""
_GZIP = zlib.MAX_WBITS | 16
_BARE = -zlib.MAX_WBITS
_new_inflater: Callable[[int], Any] = (fast_zlib or zlib).decompressobj
_INFLATE_ERROR: Any = (fast_zlib or zlib).error


class BodyTooLarge(Exception):
    """More than we take."""


class BodyCutShort(Exception):
    """The compressed data ends before its end."""


class BadEncoding(Exception):
    """The data is not what its encoding says, or we do not know the encoding."""


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class Body:
    """Collects a body of at most `most` bytes; `encoding` is what the header Content-Encoding says."""

    def __init__(self, encoding: str | None, most: int) -> None:
        self._encoding = (encoding or "identity").strip().lower()
        if self._encoding not in ("identity", "gzip", "x-gzip", "deflate"):
            raise BadEncoding(f"the encoding {self._encoding[:40]!r} was not asked for")
        self._most = most
        self._parts: list[bytes] = []
        self._taken = self._size = self._members = 0
        self._inflater: _Inflater | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes from the wire."""
        self._taken += len(chunk)
        if self._taken > self._most:  # also what decompresses to nothing
            raise BodyTooLarge
        if self._encoding == "identity":
            self._parts.append(chunk)
        else:
            self._inflate(chunk)

    def finish(self) -> bytes:
        """Return the complete decoded body."""
        if self._inflater is not None and not self._inflater.eof:
            raise BodyCutShort
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    def _inflate(self, data: bytes) -> None:
        """Decompress a chunk. Raises `BodyTooLarge` and `BadEncoding`."""
        while data:
            if self._inflater is None or self._inflater.eof:
                self._inflater = self._next_member(data)
            # One byte more than allowed is enough to know, so a bomb costs no more memory than an honest body.
            room = self._most - self._size + 1
            try:
                part = self._inflater.decompress(data, room)
            except _INFLATE_ERROR:
                raise BadEncoding(f"the body is not {self._encoding}") from None
            self._size += len(part)
            if self._size > self._most:
                raise BodyTooLarge
            if part:
                self._parts.append(part)
            data = self._inflater.unused_data if self._inflater.eof else b""

    def _next_member(self, data: bytes) -> _Inflater:
        self._members += 1
        if self._members > 1 and (self._encoding == "deflate" or self._members > _MOST_MEMBERS):
            raise BadEncoding(f"there is more after the end of the {self._encoding} data")
        if self._encoding != "deflate":
            return _new_inflater(_GZIP)
        # Some servers send deflate without its wrapping, which would begin with a method of 8.
        return _new_inflater(zlib.MAX_WBITS if data[0] & 0x0F == 8 else _BARE)
