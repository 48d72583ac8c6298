"""Waiting rooms, put together: the same in a process that answers, in the leader, and in a command."""

from tidegate.app.settings import Settings
from tidegate.app.vault import open_vault
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.systems.waiting_room import PassOffice, Reception

_PURPOSE = "passes"


def open_reception(settings: Settings, database: Database, valkey: Valkey) -> Reception:
    """The rooms of an installation. Their passes are signed with a key derived from that of the credentials.

    Processes with different data folders need the same one: TIDEGATE_CREDENTIALS_KEY.
    """

    async def open_office() -> PassOffice:
        return PassOffice(await open_vault(settings, database).derive(_PURPOSE))

    return Reception(valkey, database, open_office, settings.waiting_room)
