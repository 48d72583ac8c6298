"""A new key: every secret is encrypted with it, and then the old one opens nothing any more."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tidegate.engine.credentials import records
from tidegate.engine.credentials.records import Stored
from tidegate.engine.credentials.vault import Vault
from tidegate.storage.sql import Database


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of keys did."""

    key_id: str
    """The key that encrypts from now on."""
    encrypted_anew: int
    place: str


class Holding(Protocol):
    """Secrets of somebody else's, encrypted with the same keys."""

    async def key_ids(self) -> set[str]:
        """The keys that they need; raises `CannotOpen` where one of them is not here."""
        ...

    async def reseal(self, key_id: str) -> int:
        """Encrypt with the present key what was encrypted with another one; return how many there were."""
        ...


async def rotate_key(database: Database, vault: Vault, others: Sequence[Holding] = ()) -> Rotation:
    """Make a new key where keys are in a file, and encrypt every secret with the first key there is.

    Safe to repeat: what was interrupted is finished by the next one, and all keys that are needed stay until then. All
    secrets are opened first, so that nothing is changed where one of them cannot be.
    """
    secrets = [(stored, await _open(vault, stored)) for stored in await _sealed(database)]
    needed = {stored.sealed.key_id for stored, _ in secrets if stored.sealed is not None}
    for other in others:
        needed |= await other.key_ids()
    if vault.source.is_file:
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
