"""Who stands at the door: the quick check, before anything is asked of the database. The binding one is in SQL."""

from contextlib import suppress

from examples.ticketing.reservations import room_of
from starlette.requests import HTTPConnection

from tidegate.crowd.waiting_room import Inside, NotActive, PassRefused, Reception, RoomPlan

PASS_HEADER = "tidegate-pass"


def cookie_of(room: str) -> str:
    """The cookie in which the waiting page keeps the pass for a room."""
    return f"tidegate_pass_{room}"


class Doorman:
    """Lets those pass who are inside. There are no accounts here: a buyer is whoever holds the pass."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception

    async def user(self, request: HTTPConnection, schedule_id: int) -> str:
        """Who it is, if he is inside; raise `NotActive` or `NotFound`. Whoever is active stays longer.

        While Valkey is away SQL is asked: whoever is inside can go on buying.
        """
        room = await self._reception.room(room_of(schedule_id))
        shown = self._shown(request, room.name)
        if shown is None:
            raise NotActive(room.name, "a visitor without a pass")
        try:
            answer = await room.check(shown)
        except PassRefused:
            raise NotActive(room.name, "a visitor with a pass that is no good") from None
        if isinstance(answer.standing, Inside) and answer.standing.left_ms < _half_ms(room.room.plan):
            await room.renew(shown)
        return answer.user

    async def leave(self, request: HTTPConnection, schedule_id: int) -> None:
        """Give the place to the next; who has no pass that is good has no place either."""
        room = await self._reception.room(room_of(schedule_id))
        shown = self._shown(request, room.name)
        if shown is not None:
            with suppress(PassRefused):
                await room.leave(shown)

    def _shown(self, request: HTTPConnection, room: str) -> str | None:
        return request.headers.get(PASS_HEADER) or request.cookies.get(cookie_of(room))


def _half_ms(plan: RoomPlan) -> float:
    return plan.session.total_seconds() * 500
