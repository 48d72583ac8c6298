"""RS256 as far as a verifier needs it: public keys from PEM, and the signed tokens of apps."""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from tidegate_simulators.errors import InvalidArgument

_INTEGER, _BIT_STRING, _SEQUENCE = 0x02, 0x03, 0x30
_SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")


class BadSignedToken(Exception):
    """Not a token that the key has signed."""


@dataclass(frozen=True)
class PublicKey:
    """The public half of an RSA key."""

    modulus: int
    exponent: int

    @staticmethod
    def from_pem(text: str) -> "PublicKey":
        """From `BEGIN PUBLIC KEY` or `BEGIN RSA PUBLIC KEY`."""
        lines = [line for line in text.splitlines() if line and "-----" not in line]
        try:
            outer = _children(base64.b64decode("".join(lines), validate=True))[0][1]
            fields = _children(outer)
            if fields[0][0] == _SEQUENCE:  # an envelope that names the algorithm; the key is a bit string inside it
                fields = _children(_children(fields[1][1][1:])[0][1])
            return PublicKey(int.from_bytes(fields[0][1]), int.from_bytes(fields[1][1]))
        except (ValueError, IndexError):
            raise InvalidArgument("public key", text[:32] + "…", "must be an RSA public key in PEM") from None

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature (PKCS #1 v1.5 with SHA-256) is that of the message."""
        size = (self.modulus.bit_length() + 7) // 8
        if len(signature) != size:
            return False
        opened = pow(int.from_bytes(signature), self.exponent, self.modulus).to_bytes(size)
        proof = _SHA256_PREFIX + hashlib.sha256(message).digest()
        return opened == b"\x00\x01" + b"\xff" * (size - len(proof) - 3) + b"\x00" + proof


def _children(encoded: bytes) -> list[tuple[int, bytes]]:
    """The elements of a DER sequence's content: tag and content of each."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(encoded):
        tag, length, at = encoded[at], encoded[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(encoded[at : at + size]), at + size
        if tag not in (_INTEGER, _BIT_STRING, _SEQUENCE) and not found:
            raise ValueError(tag)
        found.append((tag, encoded[at : at + length]))
        at += length
    return found


def read_signed(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    """Header, claims, the bytes that were signed, and the signature; raises `BadSignedToken`."""
    try:
        head, body, signature = token.split(".")
        header, claims = (msgspec.json.decode(_unpadded(part), type=dict[str, Any]) for part in (head, body))
        return header, claims, f"{head}.{body}".encode(), _unpadded(signature)
    except (ValueError, msgspec.DecodeError) as broken:
        raise BadSignedToken("A JSON web token could not be decoded") from broken


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
