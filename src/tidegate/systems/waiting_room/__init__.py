"""Waiting rooms: visitors join a line, wait, are admitted up to a capacity, and leave."""

from typing import TYPE_CHECKING

from tidegate.core.exports import lazy_exports

if TYPE_CHECKING:
    from tidegate.systems.waiting_room.api.places import find_pass
    from tidegate.systems.waiting_room.api.routes import room_api
    from tidegate.systems.waiting_room.line import Estimate, Pace
    from tidegate.systems.waiting_room.model import (
        MOST_CAPACITY,
        AdmissionState,
        Entering,
        InLine,
        Inside,
        LineView,
        NotActive,
        NotPresent,
        Room,
        RoomClosed,
        RoomCounts,
        RoomExists,
        RoomInUse,
        RoomPlan,
        RoomState,
        RoomStatus,
        Session,
        Standing,
        VisitorStatus,
        commitment_of,
        drawn_place,
        number_of,
    )
    from tidegate.systems.waiting_room.passes import PassRefused, PassSigner, VisitorPass
    from tidegate.systems.waiting_room.service import WaitingRooms
    from tidegate.systems.waiting_room.session_store import require_active
    from tidegate.systems.waiting_room.settings import WaitingRoomSettings
    from tidegate.systems.waiting_room.system import open_waiting_rooms
    from tidegate.systems.waiting_room.waiting_room import WaitingRoom

__all__ = [
    "MOST_CAPACITY",
    "AdmissionState",
    "Entering",
    "Estimate",
    "InLine",
    "Inside",
    "LineView",
    "NotActive",
    "NotPresent",
    "Pace",
    "PassRefused",
    "PassSigner",
    "Room",
    "RoomClosed",
    "RoomCounts",
    "RoomExists",
    "RoomInUse",
    "RoomPlan",
    "RoomState",
    "RoomStatus",
    "Session",
    "Standing",
    "VisitorPass",
    "VisitorStatus",
    "WaitingRoom",
    "WaitingRoomSettings",
    "WaitingRooms",
    "commitment_of",
    "drawn_place",
    "find_pass",
    "number_of",
    "open_waiting_rooms",
    "require_active",
    "room_api",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "tidegate.systems.waiting_room.model": (
            "commitment_of drawn_place number_of AdmissionState Entering InLine Inside LineView "
            "MOST_CAPACITY NotActive NotPresent Room RoomCounts RoomClosed RoomExists RoomInUse RoomPlan "
            "RoomState RoomStatus Session Standing VisitorStatus"
        ),
        "tidegate.systems.waiting_room.api.places": "find_pass",
        "tidegate.systems.waiting_room.api.routes": "room_api",
        "tidegate.systems.waiting_room.line": "Estimate Pace",
        "tidegate.systems.waiting_room.passes": "PassRefused PassSigner VisitorPass",
        "tidegate.systems.waiting_room.service": "WaitingRooms",
        "tidegate.systems.waiting_room.session_store": "require_active",
        "tidegate.systems.waiting_room.settings": "WaitingRoomSettings",
        "tidegate.systems.waiting_room.system": "open_waiting_rooms",
        "tidegate.systems.waiting_room.waiting_room": "WaitingRoom",
    },
)
