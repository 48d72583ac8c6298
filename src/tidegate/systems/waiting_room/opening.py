"""Waiting rooms of an installation, open; and what they contribute to a process."""

from collections.abc import Mapping, Sequence

from tidegate.engine.credentials.opening import open_vault
from tidegate.runtime.retention import RetentionRule
from tidegate.runtime.service import Service
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Api, Context, HttpContext, OpenSystem, Topic
from tidegate.systems.waiting_room import PassOffice, Reception
from tidegate.systems.waiting_room.settings import WaitingRoomSettings

_PURPOSE = "passes"


def open_reception(settings: Settings, database: Database, valkey: Valkey) -> Reception:
    """The rooms of an installation. Their passes are signed with a key derived from that of the credentials.

    Processes with different data folders need the same one: TIDEGATE_CREDENTIALS_KEY.
    """

    async def open_office() -> PassOffice:
        return PassOffice(await open_vault(settings, database).derive(_PURPOSE))

    return Reception(valkey, database, open_office, settings.section(WaitingRoomSettings))


class OpenWaitingRooms(OpenSystem):
    """What waiting rooms contribute to a process."""

    def __init__(self, context: Context, reception: Reception) -> None:
        self._context, self.reception = context, reception

    def duties(self) -> Mapping[str, Service]:
        """Admit visitors and end sessions."""
        return {"rooms": self.reception.keepers()}

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Records of admissions that ended long ago."""
        from tidegate.systems.waiting_room.retention import rules

        return rules(self._context.database, self._context.section(WaitingRoomSettings).tokens_kept)

    def api(self, http: HttpContext) -> Api:
        """`/v1/rooms`, places in line, and the pages of visitors."""
        from tidegate.systems.waiting_room.api.routes import room_api

        return room_api(self.reception, http.settings)

    def topics(self) -> Sequence[Topic]:
        """`/v1/rooms`."""
        from tidegate.systems.waiting_room.api.places import Paces
        from tidegate.systems.waiting_room.api.rooms import RoomRoutes

        return [Topic("rooms", RoomRoutes(self.reception, Paces()).list_rooms)]
