"""Declares waiting rooms to the application."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidegate.system import Command, Context, OpenSystem, System


class WaitingRoomSystem(System):
    """Waiting rooms: visitors wait in order and are admitted as places become free."""

    name = "waiting_room"
    sections = {"waiting_room": "tidegate.systems.waiting_room.settings:WaitingRoomSettings"}
    commands = {
        "room": Command(
            "tidegate.systems.waiting_room.commands:app", "Make, open and close waiting rooms, and see who waits."
        )
    }
    kept_tables = {"waiting_rooms": "deleted by `tidegate room delete`"}

    @asynccontextmanager
    async def open(self, context: Context) -> AsyncGenerator[OpenSystem]:
        """Waiting rooms, for the length of a block."""
        from tidegate.systems.waiting_room.opening import OpenWaitingRooms, open_reception

        yield OpenWaitingRooms(context, open_reception(context.settings, context.database, context.valkey))
