"""A fair line before a room that holds only so many: join, wait, be let in, leave."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.waiting_room.draw import commitment_of, drawn_place, number_of
    from tidegate.systems.waiting_room.estimate import Estimate, Pace
    from tidegate.systems.waiting_room.line import Census, Crowd, Entering, Inside, Nowhere, Standing, Waiting
    from tidegate.systems.waiting_room.passes import Pass, PassOffice, PassRefused
    from tidegate.systems.waiting_room.reception import Reception, RoomStatus
    from tidegate.systems.waiting_room.rooms import Room, RoomExists, RoomInUse, RoomState
    from tidegate.systems.waiting_room.settings import MOST_CAPACITY, RoomPlan, WaitingRoomSettings
    from tidegate.systems.waiting_room.tokens import NotActive, Session, TokenState, require_active
    from tidegate.systems.waiting_room.waiting_room import Answer, RoomClosed, WaitingRoom

__all__ = [
    "MOST_CAPACITY",
    "Answer",
    "Census",
    "Crowd",
    "Entering",
    "Estimate",
    "Inside",
    "NotActive",
    "Nowhere",
    "Pace",
    "Pass",
    "PassOffice",
    "PassRefused",
    "Reception",
    "Room",
    "RoomClosed",
    "RoomExists",
    "RoomInUse",
    "RoomPlan",
    "RoomState",
    "RoomStatus",
    "Session",
    "Standing",
    "TokenState",
    "Waiting",
    "WaitingRoom",
    "WaitingRoomSettings",
    "commitment_of",
    "drawn_place",
    "number_of",
    "require_active",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.waiting_room.draw": "commitment_of drawn_place number_of",
        "tidegate.systems.waiting_room.estimate": "Estimate Pace",
        "tidegate.systems.waiting_room.line": "Census Crowd Entering Inside Nowhere Standing Waiting",
        "tidegate.systems.waiting_room.passes": "Pass PassOffice PassRefused",
        "tidegate.systems.waiting_room.reception": "Reception RoomStatus",
        "tidegate.systems.waiting_room.rooms": "Room RoomExists RoomInUse RoomState",
        "tidegate.systems.waiting_room.settings": "MOST_CAPACITY RoomPlan WaitingRoomSettings",
        "tidegate.systems.waiting_room.tokens": "NotActive Session TokenState require_active",
        "tidegate.systems.waiting_room.waiting_room": "Answer RoomClosed WaitingRoom",
    },
)
