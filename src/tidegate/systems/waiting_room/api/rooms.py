"""`/v1/rooms`: waiting rooms, for operators and for the shop's server. Routes of visitors are in `places`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import UNSET, Meta, UnsetType

from tidegate.http.asgi import HttpRequest
from tidegate.http.callers import Role
from tidegate.http.dispatch import RequestInput
from tidegate.http.problems import ProblemType, RequestFailed
from tidegate.http.routes import route
from tidegate.systems.waiting_room import Inside, Room, RoomPlan, RoomState, RoomStatus, WaitingRooms
from tidegate.systems.waiting_room import RoomCounts as Counts
from tidegate.systems.waiting_room.api.places import SENT, AdmissionRates, RoomName, RoomPlace, place_of, shown_pass
from tidegate.systems.waiting_room.model import (
    LONGEST_ROOM,
    LONGEST_USER,
    MOST_CAPACITY,
    MOST_LOG,
    MOST_PUZZLE_BITS,
    ROOM_NAME,
)
from tidegate.systems.waiting_room.room_store import LONGEST_ENTRANCE, LONGEST_TITLE

TAG = "rooms"
_MOST_INVITED = 100
_MOST_COUNTED = 200
"""Maximum number of rooms with counts in the list: each one is a request to the server."""

NewName = Annotated[str, Meta(min_length=1, max_length=LONGEST_ROOM, pattern=f"^{ROOM_NAME}$")]
User = Annotated[str, Meta(min_length=1, max_length=LONGEST_USER, extra_json_schema={"format": "user-name"})]
Capacity = Annotated[int, Meta(ge=0, le=MOST_CAPACITY)]
Rate = Annotated[float, Meta(gt=0, le=MOST_CAPACITY)]
Span = Annotated[float, Meta(ge=1, le=86_400)]
PuzzleBits = Annotated[int, Meta(ge=0, le=MOST_PUZZLE_BITS)]
LogLength = Annotated[int, Meta(ge=0, le=MOST_LOG)]
Title = Annotated[str, Meta(max_length=LONGEST_TITLE, extra_json_schema={"format": "title"})]
Address = Annotated[str, Meta(max_length=LONGEST_ENTRANCE, extra_json_schema={"format": "entrance"})]


class RoomPlanBody(RequestInput, frozen=True, kw_only=True):
    """The settings of a room."""

    capacity: Capacity
    """Maximum number of visitors inside at once."""
    admit_per_second: Rate | None = None
    """Maximum admissions per second, over any period; null: no limit."""
    session_s: Span = 600.0
    """How long a visitor may stay inside without activity."""
    longest_session_s: Span = 1800.0
    """How long a visitor may stay inside in total; at least `session_s`."""
    abandon_after_s: Span = 120.0
    """A waiting visitor without a sign of life for this long is removed from the line."""
    log_length: LogLength = 0
    """Approximate number of steps that the room's log keeps; 0: no log."""
    title: Title = ""
    """The name that visitors see; by default the name of the room."""
    entrance: Address | None = None
    """Destination of admitted visitors: an absolute http(s) URL, or a path that begins with one slash."""
    anonymous: bool = False
    """Whether the page accepts anonymous visitors; otherwise only those that the shop's server adds."""
    puzzle_bits: PuzzleBits = 0
    """Difficulty of the hash puzzle that the page's script solves before an anonymous visitor may join; 0: none."""

    def read(self) -> RoomPlan:
        """Convert to a `RoomPlan`; raises `InvalidArgument`."""
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
    def of(cls, plan: RoomPlan) -> "RoomPlanBody":
        """The request body that corresponds to a `RoomPlan`."""
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


class PlanChange(RequestInput, frozen=True, kw_only=True):
    """Changes of a room's settings; omitted fields stay as they are."""

    capacity: Capacity | UnsetType = UNSET
    admit_per_second: Rate | UnsetType | None = UNSET
    """Null removes the limit."""
    session_s: Span | UnsetType = UNSET
    longest_session_s: Span | UnsetType = UNSET
    abandon_after_s: Span | UnsetType = UNSET
    log_length: LogLength | UnsetType = UNSET
    title: Title | UnsetType = UNSET
    entrance: Address | UnsetType | None = UNSET
    """Null removes the destination."""
    anonymous: bool | UnsetType = UNSET
    puzzle_bits: PuzzleBits | UnsetType = UNSET

    def read(self) -> dict[str, Any]:
        """The named fields, as arguments of a `RoomPlan`."""
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not UNSET}
        return {
            name.removesuffix("_s"): timedelta(seconds=value) if name.endswith("_s") else value
            for name, value in named.items()
        }


class NewRoom(RequestInput, frozen=True, kw_only=True):
    """The name and settings of a new room."""

    name: NewName
    """The name, which is part of URLs."""
    plan: RoomPlanBody


class Opening(RequestInput, frozen=True, kw_only=True):
    """When visitors are admitted."""

    opens_at: datetime | None = None
    """The start; visitors that join before it take part in a draw. Default: now."""


class Deletion(RequestInput, frozen=True, kw_only=True):
    """Options of a deletion."""

    force: bool = False
    """Delete the room even if visitors are inside; they cannot buy any more."""


class RoomDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a deletion."""

    deleted: str
    """The name of the deleted room."""


class Invited(RequestInput, frozen=True, kw_only=True):
    """Users that are admitted without waiting."""

    users: Annotated[list[User], Meta(min_length=1, max_length=_MOST_INVITED)]


class Arrival(RequestInput, frozen=True, kw_only=True):
    """A user that the shop's server adds to the line."""

    user: User
    shown: str | None = msgspec.field(default=None, name="pass")
    """The pass that was last issued to the user, if any: it restores the previous place."""

    def __repr__(self) -> str:
        return f"Arrival(user={self.user!r})"


class RoomRow(msgspec.Struct, frozen=True, kw_only=True):
    """A room without counts."""

    name: str
    state: RoomState
    opens_at: datetime | None
    """The start; null before the room was opened for the first time."""
    plan: RoomPlanBody
    commitment: str
    """The SHA-256 of the seed of its draw."""


class RoomView(RoomRow, frozen=True, kw_only=True):
    """A room with the number of visitors in each state."""

    seed: str | None
    """The seed of its draw, after the start."""
    counts: Counts


class ListedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of visitors in each state, without values that change while no visitor moves."""

    waiting: int
    entering: int
    active: int
    guests: int
    """Visitors entering or inside that do not count against the capacity."""


class ListedRoom(RoomRow, frozen=True, kw_only=True):
    """A room in the list."""

    counts: ListedCounts | None
    """Number of visitors; null while the server is unavailable, and after the first 200 open rooms."""


class RoomList(msgspec.Struct, frozen=True, kw_only=True):
    """All rooms, by name."""

    rooms: list[ListedRoom]


class AdmittedUsers(msgspec.Struct, frozen=True, kw_only=True):
    """The result of admitting users."""

    admitted: int
    """Number of users that were not inside before."""


class PassChecked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a successful pass check: the user is inside."""

    room: str
    user: str
    left_ms: int
    """Remaining time of the session unless it is renewed."""


class RoomRoutes:
    """Routes for operators and for the shop's server."""

    def __init__(self, waiting_rooms: WaitingRooms, paces: AdmissionRates) -> None:
        self._waiting_rooms, self._paces = waiting_rooms, paces

    def routes(self) -> Sequence[HTTPRouteHandler]:
        """The routes of rooms."""
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
            route("GET", place, self.show_room, TAG, is_high_volume=True),
            route("PATCH", place, self.amend_room, TAG),
            route("PUT", place, self.alter_room, TAG),
            route("DELETE", place, self.delete_room, TAG, problems=conflict),
            route("POST", f"{place}/open", self.open_room, TAG),
            route("POST", f"{place}/close", self.close_room, TAG),
            route("POST", f"{place}/admissions", self.admit_users, TAG),
            route(
                "POST",
                f"{place}/entries",
                self.bring_user,
                TAG,
                problems=(ProblemType.ROOM_CLOSED,),
                is_high_volume=True,
            ),
            route(
                "POST",
                f"{place}/check",
                self.check_pass,
                TAG,
                problems=(ProblemType.NOT_ACTIVE, ProblemType.PASS_REFUSED),
                role=Role.READ,  # it only reads; it is a POST because a pass must not be part of a URL
                is_high_volume=True,
                sent=SENT,
            ),
        ]

    async def list_rooms(self) -> RoomList:
        """List all rooms, with the number of visitors waiting and inside."""
        rooms = await self._waiting_rooms.everything()
        counted = [room.name for room in sorted(rooms, key=_is_closed)[:_MOST_COUNTED]]
        found = dict(zip(counted, await self._waiting_rooms.all_counts(counted), strict=True))
        return RoomList(
            rooms=[ListedRoom(**_row_of(room), counts=_listed_counts_of(found.get(room.name))) for room in rooms]
        )

    async def create_room(self, body: NewRoom) -> Response[RoomView]:
        """Create a room. It is closed until it is opened; the hash of its seed is public from now on."""
        await self._waiting_rooms.create(body.name, body.plan.read())
        return Response(await self._view(body.name), headers={"Location": f"/v1/rooms/{body.name}"})

    async def show_room(self, room: RoomName) -> RoomView:
        """Show one room: its settings, and the number of visitors waiting and inside."""
        return await self._view(room)

    async def amend_room(self, room: RoomName, body: PlanChange) -> RoomView:
        """Change the named settings of a room, also during a sale; the others stay as they are.

        A smaller capacity removes no visitor. Sessions keep their end.
        """
        await self._waiting_rooms.change_plan(room, body.read())
        return await self._view(room)

    async def alter_room(self, room: RoomName, body: RoomPlanBody) -> RoomView:
        """Replace all settings of a room; omitted fields get their defaults.

        Use PATCH to change single settings.
        """
        await self._waiting_rooms.replace_plan(room, body.read())
        return await self._view(room)

    async def delete_room(self, room: RoomName, query: Deletion) -> RoomDeleted:
        """Delete a closed room with its line and the records of its admissions. It cannot be undone."""
        await self._waiting_rooms.delete(room, force=query.force)
        return RoomDeleted(deleted=room)

    async def open_room(self, room: RoomName, body: Opening = Opening()) -> RoomView:  # noqa: B008 - it is frozen
        """Let visitors join, and admit them from the start on. A start that has passed is not changed."""
        if body.opens_at is not None and body.opens_at.tzinfo is None:
            raise RequestFailed(ProblemType.INVALID, "opens_at: it must have a time zone", field="opens_at")
        await self._waiting_rooms.open(room, body.opens_at)
        return await self._view(room)

    async def close_room(self, room: RoomName) -> RoomView:
        """Stop joining and admission. Waiting visitors keep their places, and visitors inside stay."""
        await self._waiting_rooms.close(room)
        return await self._view(room)

    async def admit_users(self, room: RoomName, body: Invited) -> AdmittedUsers:
        """Admit the named users at once, regardless of the capacity, whether they wait or not."""
        return AdmittedUsers(admitted=await (await self._waiting_rooms.room(room)).invite(body.users))

    async def bring_user(self, room: RoomName, body: Arrival) -> RoomPlace:
        """Add a user to the line, or show the place that the user has already.

        The response has a pass, which belongs to this user: send it only to them. While the server of the line is
        unavailable, the response is 503 and no place is lost.
        """
        waiting_room = await self._waiting_rooms.room(room)
        answer = await waiting_room.join(body.user, body.shown)
        return place_of(waiting_room, answer, await self._paces.of(waiting_room))

    async def check_pass(self, room: RoomName, request: HttpRequest) -> PassChecked:
        """Check the pass of an arriving user: quick, and not binding.

        Only the pass with which the user is inside is accepted. While the server of the line is unavailable, the
        database is read. Check again in the transaction that sells something; the guide shows how.
        """
        waiting_room = await self._waiting_rooms.room(room)
        answer = await waiting_room.check(shown_pass(request, room))
        left_ms = answer.standing.left_ms if isinstance(answer.standing, Inside) else 0
        return PassChecked(room=room, user=answer.user, left_ms=left_ms)

    async def _view(self, name: str) -> RoomView:
        status = await self._waiting_rooms.status(name)
        return RoomView(**_row_of(status), seed=status.seed, counts=status.counts)


def _listed_counts_of(counts: Counts | None) -> ListedCounts | None:
    return None if counts is None else msgspec.convert(counts, ListedCounts, from_attributes=True)


def _is_closed(room: Room) -> bool:
    return room.state is RoomState.CLOSED


def _row_of(room: Room | RoomStatus) -> dict[str, Any]:
    return {
        "name": room.name,
        "state": room.state,
        "opens_at": room.opens_at,
        "plan": RoomPlanBody.of(room.plan),
        "commitment": room.commitment,
    }
