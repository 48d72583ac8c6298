"""A gzip stream assembled from pieces that were compressed in advance.

Each piece is compressed by itself and ends on a whole byte, so pieces can follow each other in any choice; the last,
which differs in every answer, goes in uncompressed. The checksum of the whole is found from those of the pieces: it is
linear, so what a piece contributes depends only on itself and on how many bytes follow it. Any client reads one member.
"""

import struct
import zlib

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
_STORED_AND_FINAL = struct.Struct("<BHH")
_TRAILER = struct.Struct("<II")
AROUND_THE_LAST = _STORED_AND_FINAL.size + _TRAILER.size
"""Bytes that `last` adds to its piece."""
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""The polynomial 1, bits reversed as the checksum has them."""


def compressed(piece: bytes, *, is_first: bool = False) -> bytes:
    """The piece as deflate blocks that refer to nothing outside and end on a whole byte; the first has a header."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return (_HEADER if is_first else b"") + deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH)


def last(piece: bytes, checksum: int, size: int) -> bytes:
    """The last piece (below 64 KB) and the end of a stream with this checksum and size of its plain text."""
    length = len(piece)
    return _STORED_AND_FINAL.pack(1, length, length ^ 0xFFFF) + piece + _TRAILER.pack(checksum, size)


def shifted(checksum: int, size: int) -> int:
    """What the checksum of a piece contributes to that of a text in which `size` bytes follow the piece.

    The checksum of the text is the sum (exclusive or) of all contributions.
    """
    power, square, bits = _ONE, _ONE >> 1, 8 * size
    while bits:  # x to the power of the bits that follow
        if bits & 1:
            power = _product(power, square)
        square = _product(square, square)
        bits >>= 1
    return _product(power, checksum)


def _product(left: int, right: int) -> int:
    """The product of two polynomials over two elements, modulo that of the checksum."""
    result = 0
    while left:
        if left & _ONE:
            result ^= right
        left = left << 1 & 0xFFFFFFFF
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return result
