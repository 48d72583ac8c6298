"""A new RSA key for a test: small, made at once, good for nothing else."""

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

BITS = 1_024
SHA256_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
RSA_ALGORITHM = bytes.fromhex("300d06092a864886f70d0101010500")


def is_prime(candidate: int) -> bool:
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(20):
        power = pow(secrets.randbelow(candidate - 3) + 2, odd, candidate)
        if power in (1, candidate - 1):
            continue
        for _ in range(twos - 1):
            power = pow(power, 2, candidate)
            if power == candidate - 1:
                break
        else:
            return False
    return True


def a_prime() -> int:
    while True:
        candidate = secrets.randbits(BITS // 2) | 1 | 3 << (BITS // 2 - 2)
        if candidate % 65_537 != 1 and is_prime(candidate):
            return candidate


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2)
    return bytes([tag]) + length + content


def der_integer(value: int) -> bytes:
    return der(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@dataclass(frozen=True)
class PrivateKey:
    modulus: int
    private: int

    @property
    def pkcs1(self) -> str:
        return self._pem("RSA PUBLIC KEY", der(0x30, der_integer(self.modulus) + der_integer(65_537)))

    @property
    def pem(self) -> str:
        inner = der(0x30, der_integer(self.modulus) + der_integer(65_537))
        return self._pem("PUBLIC KEY", der(0x30, RSA_ALGORITHM + der(0x03, b"\0" + inner)))

    def _pem(self, name: str, content: bytes) -> str:
        text = base64.encodebytes(content).decode()
        return f"-----BEGIN {name}-----\n{text}-----END {name}-----\n"

    def sign(self, claims: dict[str, Any], algorithm: str = "RS256") -> str:
        header = {"alg": algorithm, "typ": "JWT"}
        message = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        size = (self.modulus.bit_length() + 7) // 8
        proof = SHA256_PREFIX + hashlib.sha256(message.encode()).digest()
        padded = b"\x00\x01" + b"\xff" * (size - len(proof) - 3) + b"\x00" + proof
        signature = pow(int.from_bytes(padded), self.private, self.modulus).to_bytes(size)
        return f"{message}.{encoded(signature)}"


def new_key() -> PrivateKey:
    p, q = a_prime(), a_prime()
    return PrivateKey(p * q, pow(65_537, -1, (p - 1) * (q - 1)))
