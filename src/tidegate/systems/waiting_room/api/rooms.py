"""`/v1/rooms`: waiting rooms, for operators and for the server of the shop. Routes of visitors are in `places`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, Meta, UnsetType

from tidegate.http.asgi import HttpRequest
from tidegate.http.callers import Role
from tidegate.http.dispatch import Given
from tidegate.http.problems import ProblemType, Trouble
from tidegate.http.routes import route
from tidegate.systems.waiting_room import Inside, Room, RoomPlan, RoomState, RoomStatus
from tidegate.systems.waiting_room import RoomCensus as Census
from tidegate.systems.waiting_room import WaitingRooms as Reception
from tidegate.systems.waiting_room.api.places import SENT, Paces, RoomName, RoomPlace, place_of, shown_pass
from tidegate.systems.waiting_room.model import (
    LONGEST_ROOM,
    LONGEST_USER,
    MOST_CAPACITY,
    MOST_LOG,
    MOST_PUZZLE_BITS,
    ROOM_NAME,
)
from tidegate.systems.waiting_room.tables import LONGEST_ENTRANCE, LONGEST_TITLE

TAG = "rooms"
_MOST_INVITED = 100
_MOST_COUNTED = 200
"""In the list: each room is one more question to the server."""

NewName = Annotated[str, Meta(min_length=1, max_length=LONGEST_ROOM, pattern=f"^{ROOM_NAME}$")]
User = Annotated[str, Meta(min_length=1, max_length=LONGEST_USER, extra_json_schema={"format": "user-name"})]
Capacity = Annotated[int, Meta(ge=0, le=MOST_CAPACITY)]
Rate = Annotated[float, Meta(gt=0, le=MOST_CAPACITY)]
Span = Annotated[float, Meta(ge=1, le=86_400)]
PuzzleBits = Annotated[int, Meta(ge=0, le=MOST_PUZZLE_BITS)]
LogLength = Annotated[int, Meta(ge=0, le=MOST_LOG)]
Title = Annotated[str, Meta(max_length=LONGEST_TITLE, extra_json_schema={"format": "title"})]
Address = Annotated[str, Meta(max_length=LONGEST_ENTRANCE, extra_json_schema={"format": "entrance"})]


class Plan(Given, frozen=True, kw_only=True):
    """What a room is made of."""

    capacity: Capacity
    """How many may be inside at once."""
    admit_per_second: Rate | None = None
    """How many may come in per second, over any span of time; null: any number."""
    session_s: Span = 600.0
    """How long one may stay inside without doing anything."""
    longest_session_s: Span = 1800.0
    """How long one may stay inside in all; not shorter than `session_s`."""
    abandon_after_s: Span = 120.0
    """Who waits and gives no sign of life for so long is dropped from the line."""
    log_length: LogLength = 0
    """About how many steps the room's log keeps; 0: it keeps none."""
    title: Title = ""
    """What people see; the room's name where it is empty."""
    entrance: Address | None = None
    """Where those go who were let in: an absolute http(s) address, or a path that begins with one slash."""
    anonymous: bool = False
    """Whether the page takes in visitors nobody vouches for; else only those whom the shop's server brought."""
    puzzle_bits: PuzzleBits = 0
    """Difficulty of the hash puzzle that the page's script solves before such a visitor may join; 0: none."""

    def read(self) -> RoomPlan:
        """As the room understands it; raise `InvalidArgument`."""
        return RoomPlan(
            capacity=self.capacity,
            admit_per_second=self.admit_per_second,
            session=timedelta(seconds=self.session_s),
            longest_session=timedelta(seconds=self.longest_session_s),
            abandon_after=timedelta(seconds=self.abandon_after_s),
            log_length=self.log_length,
            title=self.title,
            entrance=self.entrance,
            anonymous=self.anonymous,
            puzzle_bits=self.puzzle_bits,
        )

    @classmethod
    def of(cls, plan: RoomPlan) -> "Plan":
        """As it is told."""
        return cls(
            capacity=plan.capacity,
            admit_per_second=plan.admit_per_second,
            session_s=plan.session.total_seconds(),
            longest_session_s=plan.longest_session.total_seconds(),
            abandon_after_s=plan.abandon_after.total_seconds(),
            log_length=plan.log_length,
            title=plan.title,
            entrance=plan.entrance,
            anonymous=plan.anonymous,
            puzzle_bits=plan.puzzle_bits,
        )


class PlanChange(Given, frozen=True, kw_only=True):
    """What is to be different; what is left out stays as it is."""

    capacity: Capacity | UnsetType = UNSET
    admit_per_second: Rate | UnsetType | None = UNSET
    """Null takes the bound off."""
    session_s: Span | UnsetType = UNSET
    longest_session_s: Span | UnsetType = UNSET
    abandon_after_s: Span | UnsetType = UNSET
    log_length: LogLength | UnsetType = UNSET
    title: Title | UnsetType = UNSET
    entrance: Address | UnsetType | None = UNSET
    """Null takes it away."""
    anonymous: bool | UnsetType = UNSET
    puzzle_bits: PuzzleBits | UnsetType = UNSET

    def read(self) -> dict[str, Any]:
        """The fields of a `RoomPlan` that are named."""
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        return {
            name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
            for name, value in named.items()
        }


class NewRoom(Given, frozen=True, kw_only=True):
    """A name, and what the room is made of."""

    name: NewName
    """It stands in addresses."""
    plan: Plan


class Opening(Given, frozen=True, kw_only=True):
    """When people are let in."""

    opens_at: datetime | None = None
    """The start: whoever comes before takes part in a draw. Now, where it is left out."""


class Deletion(Given, frozen=True, kw_only=True):
    """How a room is deleted."""

    force: bool = False
    """Whether it is deleted while visitors are inside: they cannot buy any more."""


class RoomDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a room."""

    deleted: str
    """Its name."""


class Invited(Given, frozen=True, kw_only=True):
    """Who need not wait."""

    users: Annotated[list[User], Meta(min_length=1, max_length=_MOST_INVITED)]


class Arrival(Given, frozen=True, kw_only=True):
    """Whom the shop vouches for."""

    user: User
    shown: str | None = msgspec.field(default=None, name="pass")
    """The pass that the user was last given, where he has one: it brings an old place back."""

    def __repr__(self) -> str:
        return f"Arrival(user={self.user!r})"


class RoomRow(msgspec.Struct, frozen=True, kw_only=True):
    """A room."""

    name: str
    state: RoomState
    opens_at: datetime | None
    """The start; null before the first opening."""
    plan: Plan
    commitment: str
    """The SHA-256 of the seed of its draw."""


class RoomView(RoomRow, frozen=True, kw_only=True):
    """A room, and how many are where."""

    seed: str | None
    """That of its draw, once the start has come."""
    census: Census


class Headcount(msgspec.Struct, frozen=True, kw_only=True):
    """How many are where; as a census, without what changes while nobody moves."""

    waiting: int
    entering: int
    active: int
    guests: int
    """Of those on the way or inside, how many do not count against the capacity."""


class ListedRoom(RoomRow, frozen=True, kw_only=True):
    """A room in the list."""

    census: Headcount | None
    """How many are where; null where that cannot be found out now, and beyond the first 200 rooms that are open."""


class RoomList(msgspec.Struct, frozen=True, kw_only=True):
    """All rooms, by name."""

    rooms: list[ListedRoom]


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of named users."""

    admitted: int
    """How many of them were not inside before."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody is inside."""

    room: str
    user: str
    left_ms: int
    """How long the session lasts if nothing prolongs it."""


class RoomRoutes:
    """Routes for operators and for the server of the shop."""

    def __init__(self, reception: Reception, paces: Paces) -> None:
        self._reception, self._paces = reception, paces

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """What can be done with rooms."""
        place, conflict = "/v1/rooms/{room}", (ProblemType.CONFLICT,)
        return [
            route("GET", "/v1/rooms", self.list_rooms, TAG),
            route(
                "POST",
                "/v1/rooms",
                self.create_room,
                TAG,
                status=201,
                headers={"Location": "The address of the room."},
                problems=conflict,
            ),
            route("GET", place, self.show_room, TAG, is_chatter=True),
            route("PATCH", place, self.amend_room, TAG),
            route("PUT", place, self.alter_room, TAG),
            route("DELETE", place, self.delete_room, TAG, problems=conflict),
            route("POST", f"{place}/open", self.open_room, TAG),
            route("POST", f"{place}/close", self.close_room, TAG),
            route("POST", f"{place}/admissions", self.admit_users, TAG),
            route(
                "POST", f"{place}/entries", self.bring_user, TAG, problems=(ProblemType.ROOM_CLOSED,), is_chatter=True
            ),
            route(
                "POST",
                f"{place}/check",
                self.check_pass,
                TAG,
                problems=(ProblemType.NOT_ACTIVE, ProblemType.PASS_REFUSED),
                role=Role.READ,  # it only asks; it is a POST because a pass has no business in an address
                is_chatter=True,
                sent=SENT,
            ),
        ]

    async def list_rooms(self) -> RoomList:
        """List all rooms, and how many wait and are inside."""
        rooms = await self._reception.everything()
        counted = [room.name for room in sorted(rooms, key=_is_closed)[:_MOST_COUNTED]]
        found = dict(zip(counted, await self._reception.censuses(counted), strict=True))
        return RoomList(rooms=[ListedRoom(**_row_of(room), census=_heads(found.get(room.name))) for room in rooms])

    async def create_room(self, body: NewRoom) -> Response[RoomView]:
        """Make a room. It is closed until it is opened; the hash of its seed is public from now on."""
        await self._reception.create(body.name, body.plan.read())
        return Response(await self._view(body.name), headers={"Location": f"/v1/rooms/{body.name}"})

    async def show_room(self, room: RoomName) -> RoomView:
        """Show one room: its rules, and how many wait and are inside."""
        return await self._view(room)

    async def amend_room(self, room: RoomName, body: PlanChange) -> RoomView:
        """Change what is named of a room's plan, also during a sale; the rest stays as it is.

        A smaller capacity sends nobody out. Sessions that have begun end when they would have.
        """
        await self._reception.amend(room, body.read())
        return await self._view(room)

    async def alter_room(self, room: RoomName, body: Plan) -> RoomView:
        """Give a room another plan as a whole: what is not named goes back to its default.

        To change one thing only, use PATCH.
        """
        await self._reception.alter(room, body.read())
        return await self._view(room)

    async def delete_room(self, room: RoomName, query: Deletion) -> RoomDeleted:
        """Delete a closed room with its line and the records of its admissions. It cannot be undone."""
        await self._reception.delete(room, force=query.force)
        return RoomDeleted(deleted=room)

    async def open_room(self, room: RoomName, body: Opening = Opening()) -> RoomView:  # noqa: B008 - it is frozen
        """Let people come; and in, from the start on. A start that has come stays."""
        if body.opens_at is not None and body.opens_at.tzinfo is None:
            raise Trouble(ProblemType.INVALID, "opens_at: it must have a time zone", field="opens_at")
        await self._reception.open(room, body.opens_at)
        return await self._view(room)

    async def close_room(self, room: RoomName) -> RoomView:
        """Let nobody come, and nobody in. Who waits keeps his place, who is inside stays."""
        await self._reception.close(room)
        return await self._view(room)

    async def admit_users(self, room: RoomName, body: Invited) -> Admitted:
        """Let named users in at once, beside the capacity, whether they wait or not."""
        return Admitted(admitted=await (await self._reception.room(room)).invite(body.users))

    async def bring_user(self, room: RoomName, body: Arrival) -> RoomPlace:
        """Bring a user whom the shop vouches for: he joins the line, or is told where he stands already.

        The answer has a pass, which belongs to the user alone: hand it to him, and to nobody else. While the server of
        the line is away this is refused with 503; nobody loses a place by that.
        """
        waiting_room = await self._reception.room(room)
        answer = await waiting_room.join(body.user, body.shown)
        return place_of(waiting_room, answer, await self._paces.of(waiting_room))

    async def check_pass(self, room: RoomName, request: HttpRequest) -> Checked:
        """Check a pass at the door: quick, and not binding.

        Only who is inside by just this pass is let through. While the server of the line is away the database is
        asked. Before something is sold, check again in the transaction that sells it; the guide shows how.
        """
        waiting_room = await self._reception.room(room)
        answer = await waiting_room.check(shown_pass(request, room))
        left_ms = answer.standing.left_ms if isinstance(answer.standing, Inside) else 0
        return Checked(room=room, user=answer.user, left_ms=left_ms)

    async def _view(self, name: str) -> RoomView:
        status = await self._reception.status(name)
        return RoomView(**_row_of(status), seed=status.seed, census=status.census)


def _heads(census: Census | None) -> Headcount | None:
    return None if census is None else msgspec.convert(census, Headcount, from_attributes=True)


def _is_closed(room: Room) -> bool:
    return room.state is RoomState.CLOSED


def _row_of(room: Room | RoomStatus) -> dict[str, Any]:
    return {
        "name": room.name,
        "state": room.state,
        "opens_at": room.opens_at,
        "plan": Plan.of(room.plan),
        "commitment": room.commitment,
    }
