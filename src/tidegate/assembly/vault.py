"""The vault of an installation, put together: one key for everything that is secret, whoever keeps it."""

from tidegate.crawl.identity_records import has_identities
from tidegate.credentials import KeySource, records
from tidegate.credentials.vault import Vault
from tidegate.database import Database, Transaction
from tidegate.settings import Settings


def open_vault(settings: Settings, database: Database) -> Vault:
    """Where the secrets of this installation are encrypted. A key that is lost is not replaced while one needs it."""
    given = None if settings.credentials_key is None else settings.credentials_key.get_secret_value()
    return Vault(KeySource(settings.make_data_dir(), given), is_in_use=lambda: database.read(_needs_key))


def _needs_key(tx: Transaction) -> bool:
    return records.has_secrets(tx) or has_identities(tx)
