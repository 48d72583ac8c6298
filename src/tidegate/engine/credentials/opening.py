"""Opens the vault of a deployment: one set of keys encrypts all its secrets."""

from sqlalchemy import inspect, literal, select, table

from tidegate.core.plugins import broken_systems, loadable_systems
from tidegate.engine.credentials import KeySource, records
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
