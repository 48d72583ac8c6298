"""Key rotation: encrypts every secret with a new key, after which the old key is not needed."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidegate.engine.credentials import records
from tidegate.engine.credentials.records import Stored
from tidegate.engine.credentials.vault import Vault
from tidegate.storage.sql import Database


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a key rotation."""

    key_id: str
    """The key that encrypts from now on."""
    encrypted_anew: int
    place: str


class EncryptedSecrets(Protocol):
    """Secrets that another component stores, encrypted with the same keys."""

    async def key_ids(self) -> set[str]:
        """The keys that its secrets need; raises `CannotDecrypt` if one of them is missing."""
        ...

    async def reseal(self, key_id: str) -> int:
        """Re-encrypt with the current key what another key encrypted; return the number of secrets."""
        ...


async def rotate_key(database: Database, vault: Vault, others: Sequence[EncryptedSecrets] = ()) -> Rotation:
    """Create a new key if keys are in a file, and re-encrypt every secret with the first key.

    Can be repeated: an interrupted rotation is finished by the next one, and all needed keys stay until then. All
    secrets are decrypted first, so nothing is changed if one of them cannot be read.
    """
    secrets = [(stored, await _open(vault, stored)) for stored in await _sealed(database)]
    needed = {stored.sealed.key_id for stored, _ in secrets if stored.sealed is not None}
    for other in others:
        needed |= await other.key_ids()
    if vault.source.is_file:
        # The file has the new key before any secret needs it.
        await asyncio.to_thread(vault.source.begin_rotation, needed=needed)
    key_id, done = await vault.current_key_id(), 0
    for stored, secret in secrets:
        if stored.sealed is not None and stored.sealed.key_id != key_id:
            sealed = await vault.seal(stored.label, secret)
            done += await database.transaction(records.reseal, stored, sealed)
    for other in others:
        done += await other.reseal(key_id)
    return Rotation(key_id=key_id, encrypted_anew=done, place=vault.source.place)


async def _sealed(database: Database) -> list[Stored]:
    return [stored for stored in await database.read(records.everything) if stored.sealed is not None]


async def _open(vault: Vault, stored: Stored) -> str:
    assert stored.sealed is not None
    return await vault.open(stored.label, stored.sealed)
