"""The vault of an installation, put together: one key for everything that is secret, whoever keeps it."""

from tidegate.app.settings import Settings
from tidegate.engine.credentials import KeySource, records
from tidegate.engine.credentials.vault import Vault
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.identity_records import has_identities


def open_vault(settings: Settings, database: Database) -> Vault:
    """Where the secrets of this installation are encrypted. A key that is lost is not replaced while one needs it."""
    settings.make_data_dir()
    return Vault(key_source(settings), is_in_use=lambda: database.read(_needs_key))


def key_source(settings: Settings) -> KeySource:
    """Where its keys come from. Raises `InvalidSettings` where the setting holds something that is no key."""
    given = None if settings.credentials_key is None else settings.credentials_key.get_secret_value()
    return KeySource(settings.data_dir, given)


def _needs_key(tx: Transaction) -> bool:
    return records.has_secrets(tx) or has_identities(tx)
