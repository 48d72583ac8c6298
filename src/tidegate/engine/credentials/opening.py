"""Opens the vault of a deployment, in which one set of keys encrypts all secrets, and rotates its keys.

A rotation encrypts every secret with a new key, after which the old key is not needed.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec
from sqlalchemy import inspect, literal, select, table

from tidegate.core.plugins import broken_systems, loadable_systems
from tidegate.engine.credentials import KeySource, records
from tidegate.engine.credentials.records import Stored
from tidegate.engine.credentials.vault import Vault
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.system import find_system


def open_vault(settings: Settings, database: Database) -> Vault:
    """Open the vault. A missing key is not replaced while stored secrets need it."""
    settings.make_data_dir()
    return Vault(key_source(settings), is_in_use=lambda: database.read(_needs_key))


def key_source(settings: Settings) -> KeySource:
    """Where the keys come from. Raises `InvalidSettings` if the setting does not hold valid keys."""
    given = None if settings.credentials_key is None else settings.credentials_key.get_secret_value()
    return KeySource(settings.data_dir, given)


def _needs_key(tx: Transaction) -> bool:
    """Whether a stored secret needs the key. Disabled systems count too, since their tables may hold secrets.

    Raises `InvalidSettings` when a system that has tables cannot be loaded, since some of them may be encrypted.
    """
    names = [name for system in loadable_systems() for name in system.encrypted_tables]
    if records.has_secrets(tx) or any(_has_rows(tx, name) for name in names):
        return True
    for system in broken_systems():
        if any(name.startswith(f"{system}_") for name in inspect(tx.connection).get_table_names()):
            find_system(system)
    return False


def _has_rows(tx: Transaction, name: str) -> bool:
    return tx.execute(select(literal(1)).select_from(table(name)).limit(1)).first() is not None


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
