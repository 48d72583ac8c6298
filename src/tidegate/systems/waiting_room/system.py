"""Declares waiting rooms to the application. Modules are imported when a process uses them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidegate.system import Command, Context, OpenSystem, System, Topic

if TYPE_CHECKING:
    from tidegate.runtime.retention import RetentionRule
    from tidegate.runtime.service import Service
    from tidegate.settings import Settings
    from tidegate.storage.sql import Database
    from tidegate.storage.valkey import Valkey
    from tidegate.system import Api, HttpContext
    from tidegate.systems.waiting_room import WaitingRooms

_KEY_PURPOSE = "passes"


class WaitingRoomSystem(System):
    """Waiting rooms: visitors wait in order and are admitted as places become free."""

    name = "waiting_room"
    sections = {"waiting_room": "tidegate.systems.waiting_room.settings:WaitingRoomSettings"}
    metrics = "tidegate.systems.waiting_room.metrics"
    commands = {
        "room": Command(
            "tidegate.systems.waiting_room.commands:app",
            "Create, open and close waiting rooms, and show them.",
        )
    }
    kept_tables = {"waiting_rooms": "deleted by `tidegate room delete`"}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Open the waiting rooms for the duration of the block."""
        rooms = open_waiting_rooms(context.settings, context.database, context.valkey)
        context.share(rooms)
        yield OpenWaitingRooms(context, rooms)


def open_waiting_rooms(settings: Settings, database: Database, valkey: Valkey) -> WaitingRooms:
    """Return the waiting rooms of an installation.

    Passes are signed with a key that is derived from the credentials key. Processes with different data folders need
    the same credentials key (`TIDEGATE_CREDENTIALS_KEY`).
    """
    from tidegate.engine.credentials.opening import open_vault
    from tidegate.systems.waiting_room import PassSigner, WaitingRooms
    from tidegate.systems.waiting_room.settings import WaitingRoomSettings

    async def open_signer() -> PassSigner:
        return PassSigner(await open_vault(settings, database).derive(_KEY_PURPOSE))

    return WaitingRooms(valkey, database, open_signer, settings.section(WaitingRoomSettings))


class OpenWaitingRooms(OpenSystem):
    """What waiting rooms contribute to a process."""

    def __init__(self, context: Context, rooms: WaitingRooms) -> None:
        self._context, self.rooms = context, rooms

    def leader_services(self) -> Mapping[str, Service]:
        """Return the leader's service that admits visitors and ends sessions."""
        return {"rooms": self.rooms.workers()}

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Return the rule that deletes records of admissions that ended long ago."""
        from tidegate.systems.waiting_room.session_store import retention_rules
        from tidegate.systems.waiting_room.settings import WaitingRoomSettings

        return retention_rules(self._context.database, self._context.section(WaitingRoomSettings).tokens_kept)

    def api(self, http: HttpContext) -> Api:
        """Return the routes under `/v1/rooms` and the waiting page."""
        from tidegate.systems.waiting_room.api.routes import room_api

        return room_api(self.rooms, http.settings, http.access)

    def topics(self) -> Sequence[Topic]:
        """Return the dashboard topic with all rooms."""
        from tidegate.systems.waiting_room.api.places import AdmissionRates
        from tidegate.systems.waiting_room.api.rooms import RoomRoutes

        return [Topic("rooms", RoomRoutes(self.rooms, AdmissionRates()).list_rooms)]
