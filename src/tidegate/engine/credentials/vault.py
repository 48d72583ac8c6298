"""Encrypts secrets and binds them to their credential (AES-256-GCM).

The name, kind and audience of a credential are authenticated data, so a secret cannot be
decrypted if it was copied to another row, or if its row was changed to send it elsewhere.

The cipher is imported at its first use: a process without stored credentials does not need it.
"""

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from tidegate.core.errors import TidegateError
from tidegate.engine.credentials.keys import EncryptionKey, KeySource

_FORM = b"\x01"
_NONCE = 12
_REDIRECTS = "redirects"


class CannotDecrypt(TidegateError):
    """A stored secret cannot be decrypted: its key is missing, or the row was changed."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the secret of the credential {name!r} cannot be read: {reason}")
        self.name, self.reason = name, reason


class KeyFileMissing(TidegateError):
    """The key file is missing although stored secrets need it."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} is missing, and stored credentials need it. Bring it back, name the key in "
            "TIDEGATE_CREDENTIALS_KEY, or remove those credentials and add them again"
        )


class Label(msgspec.Struct, frozen=True):
    """The identity of a secret: the name, kind and audience of its credential."""

    name: str
    kind: str
    audience: str

    @property
    def bound(self) -> bytes:
        """The authenticated data for the cipher."""
        return msgspec.json.encode(["tidegate credential", self.name, self.kind, self.audience])


class Sealed(msgspec.Struct, frozen=True):
    """An encrypted secret as it is stored."""

    text: str
    key_id: str


class RedirectCipher:
    """Encrypts the URLs to which an upstream redirects a job, before they are stored with it.

    A signed URL gives access without a credential, so it is a secret. `derive` returns the keys for a purpose, the
    encrypting one first, as `Vault.derive` does. Without it, a key of this process is used: other processes then
    request the first URL again.
    """

    def __init__(self, derive: Callable[[str], Awaitable[Sequence[bytes]]] | None = None) -> None:
        own = [os.urandom(32)]

        async def derive_own(_purpose: str) -> Sequence[bytes]:
            return own

        self._derive = derive or derive_own

    async def encrypt(self, urls: Sequence[str]) -> tuple[str, ...]:
        """Encrypt URLs. Raises `KeyFileMissing` if stored secrets need a key that is not there."""
        [key, *_] = await self._derive(_REDIRECTS)
        return tuple(_encrypt(key, url, _REDIRECTS.encode()) for url in urls)

    async def decrypt(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Decrypt URLs; empty if one of them cannot be read. Then the job begins again with the URL of its source."""
        if not texts:
            return ()
        with suppress(KeyFileMissing):
            for key in await self._derive(_REDIRECTS):
                with suppress(ValueError):
                    return tuple(_decrypt(key, text, _REDIRECTS.encode()) for text in texts)
        return ()


class Vault:
    """Encrypts and decrypts secrets. Reads the keys at the first use, and again when a secret needs an unknown key."""

    def __init__(self, source: KeySource, *, is_in_use: Callable[[], Awaitable[bool]]) -> None:
        self.source, self._is_in_use = source, is_in_use
        self._keys: Sequence[EncryptionKey] = ()

    async def seal(self, label: Label, secret: str) -> Sealed:
        """Encrypt a secret with the current first key."""
        # Read again for each secret: another process may have rotated the keys.
        self._keys = await self._read_or_make()
        key = self._keys[0]
        return Sealed(_encrypt(key.derive("secrets"), secret, label.bound), key.id)

    async def open(self, label: Label, sealed: Sealed) -> str:
        """Decrypt a secret; raises `CannotDecrypt` if that is not possible."""
        key = await self.require_key(label.name, sealed.key_id)
        try:
            # The label is authenticated, so a secret that was moved to another row is refused.
            return _decrypt(key.derive("secrets"), sealed.text, label.bound)
        except ValueError:
            raise CannotDecrypt(label.name, "it was changed, or damaged. Add it again") from None

    async def fingerprint(self, secret: str) -> str:
        """A keyed hash of a secret: equal for equal secrets, and useless without the key."""
        if not self._keys:
            self._keys = await self._read_or_make()
        return hmac.new(self._keys[0].derive("fingerprints"), secret.encode(), hashlib.sha256).hexdigest()

    async def derive(self, purpose: str) -> list[bytes]:
        """Derived keys for another purpose, one per key, that of the first key first."""
        self._keys = await self._read_or_make()
        return [key.derive(purpose) for key in self._keys]

    async def current_key_id(self) -> str:
        """The id of the key that encrypts now."""
        self._keys = await self._read_or_make()
        return self._keys[0].id

    async def require_key(self, name: str, wanted: str) -> EncryptionKey:
        """The key that the secret of `name` needs; raises `CannotDecrypt` if it is missing."""
        for is_first in (True, False):
            found = next((key for key in self._keys if key.id == wanted), None)
            if found is not None:
                return found
            if is_first:
                self._keys = await asyncio.to_thread(self.source.read) or ()
        there = ", ".join(key.id for key in self._keys) or "no key"
        raise CannotDecrypt(
            name,
            f"it was encrypted with the key {wanted}, and {self.source.place} holds {there}. "
            "Bring that key back, or add the credential again",
        )

    async def _read_or_make(self) -> Sequence[EncryptionKey]:
        """Read the keys. A key is created only if no stored secret needs an old one, so that a lost file is noticed."""
        present = await asyncio.to_thread(self.source.read)
        if present is None and await self._is_in_use():
            present = await asyncio.to_thread(self.source.read)  # another process may have created and used it
            if present is None:
                raise KeyFileMissing(self.source.place)
        return present or await asyncio.to_thread(self.source.make)


def _encrypt(key: bytes, text: str, bound: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE)
    return base64.b64encode(_FORM + nonce + AESGCM(key).encrypt(nonce, text.encode(), bound)).decode()


def _decrypt(key: bytes, text: str, bound: bytes) -> str:
    """Decrypt a text; raises `ValueError` if it was changed or encrypted with another key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    raw = base64.b64decode(text, validate=True)
    if raw[:1] != _FORM:
        raise ValueError("an unknown form")
    try:
        return AESGCM(key).decrypt(raw[1 : 1 + _NONCE], raw[1 + _NONCE :], bound).decode()
    except InvalidTag:
        raise ValueError("not encrypted with this key and label") from None
