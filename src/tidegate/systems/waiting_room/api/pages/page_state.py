"""What the waiting page shows: one of a few states, which follow from the room, the pass and the place in line."""

from datetime import timedelta
from enum import StrEnum

import msgspec

from tidegate.systems.waiting_room import Entering, Estimate, Inside, Nowhere, Room, RoomState, Standing
from tidegate.systems.waiting_room import InLine as Waiting
from tidegate.systems.waiting_room.passes import VisitorPass as Pass

_SOON_S, _LATER_S, _MOST_S = 5, 15, 30
_NEAR = 100
"""Whoever has fewer before him is told sooner that they became fewer."""


class PageState(StrEnum):
    """Everything that the page can show."""

    JOIN = "join"  # has no place, and may have one
    DRAWING = "drawing"  # has come before the start
    WAITING = "waiting"  # has a place
    ENTERING = "entering"  # on the way in
    INSIDE = "inside"  # let in; is sent to the entrance where there is one
    OVER = "over"  # was inside
    LAPSED = "lapsed"  # had a place, and was away for too long
    LEFT = "left"  # has given the place up
    CLOSED = "closed"  # nobody may join
    UNINVITED = "uninvited"  # only the shop brings people here
    UNAVAILABLE = "unavailable"  # nobody can say
    ABSENT = "absent"  # there is no such room
    THROTTLED = "throttled"  # too many have joined from this address


LIVE = (PageState.DRAWING, PageState.WAITING, PageState.ENTERING)
"""These follow one another while somebody looks on."""


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """What one request found."""

    room: Room
    shown: Pass | None
    """The pass that was shown, also one whose time is over; None for one that was not ours."""
    is_good: bool
    """Whether the pass can be used."""
    standing: Standing
    waiting: int
    """The length of the line."""
    opens_in_ms: int
    estimate: Estimate | None = None
    token: str | None = None
    """The pass to show from now on."""
    has_left: bool = False
    """Just now, by his own will."""

    @property
    def can_join(self) -> bool:
        """Whether a place can be had: by anybody, or by somebody whom the shop has brought."""
        return self.room.state is RoomState.OPEN and (self.room.plan.anonymous or self.is_good)

    @property
    def joins_as_visitor(self) -> bool:
        """Whether a place is given to an anonymous visitor."""
        return self.can_join and not self.is_good

    @property
    def state(self) -> PageState:
        """What is to be shown."""
        match self.standing:
            case Waiting(ahead=None):
                return PageState.DRAWING
            case Waiting():
                return PageState.WAITING
            case Entering():
                return PageState.ENTERING
            case Inside(left_ms=left_ms) if left_ms > 0:
                return PageState.INSIDE
            case Inside():
                return PageState.OVER
            case Nowhere():
                return self._outside()

    def _outside(self) -> PageState:
        if self.has_left:
            return PageState.LEFT
        if self.shown is not None and self.shown.kind == "inside":
            return PageState.OVER
        if self.shown is not None and not self.is_good:
            return PageState.LAPSED
        if self.room.state is RoomState.CLOSED:
            return PageState.CLOSED
        return PageState.JOIN if self.can_join else PageState.UNINVITED

    @property
    def position(self) -> int | None:
        """In the line; the first is next."""
        ahead = self.standing.ahead if isinstance(self.standing, Waiting) else None
        return None if ahead is None else ahead + 1


def title_of(room: Room) -> str:
    """What people know the room by."""
    return room.plan.title or room.name


def again_s(state: PageState, view: PageView | None) -> int | None:
    """After how many seconds the page is to be asked for again, where nothing tells a browser what is new.

    Soon enough to be a sign of life, and to be let in without a delay.
    """
    match state:
        case PageState.ENTERING:
            return 2
        case PageState.UNAVAILABLE:
            return _SOON_S
        case PageState.CLOSED:
            return _MOST_S
        case PageState.DRAWING | PageState.WAITING if view is not None:
            wanted = _MOST_S
            if state is PageState.DRAWING:
                wanted = max(2, min(_MOST_S, view.opens_in_ms // 1000 + 1))
            elif view.position is not None:
                wanted = _SOON_S if view.position <= _NEAR else _LATER_S
            return min(wanted, max(1, int(view.room.plan.abandon_after / timedelta(seconds=3))))
        case _:
            return None


def progress(first: int, position: int) -> float:
    """How much of the way is done by somebody who began at the place `first`, in per cent."""
    return round(100 * (1 - position / (first + 1)), 1)
