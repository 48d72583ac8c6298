"""Waiting rooms, put together: the same in a process that answers, in the leader, and in a command."""

from tidegate.credentials import KeySource, records
from tidegate.credentials.vault import Vault
from tidegate.crowd.waiting_room import PassOffice, Reception
from tidegate.database import Database
from tidegate.settings import Settings
from tidegate.valkey import Valkey

_PURPOSE = "passes"


def open_reception(settings: Settings, database: Database, valkey: Valkey) -> Reception:
    """The rooms of an installation. Their passes are signed with a key derived from that of the credentials.

    Processes with different data folders need the same one: TIDEGATE_CREDENTIALS_KEY.
    """
    given = None if settings.credentials_key is None else settings.credentials_key.get_secret_value()

    async def open_office() -> PassOffice:
        source = KeySource(settings.make_data_dir(), given)
        vault = Vault(source, is_in_use=lambda: database.read(records.has_secrets))
        return PassOffice(await vault.derive(_PURPOSE))

    return Reception(valkey, database, open_office, settings.waiting_room)
