"""Rooms, visitors, sessions and their states, and the limits that every part of a waiting room checks."""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from tidegate.core.arguments import normalise_id, require_at_most, require_name, require_positive, require_whole
from tidegate.core.errors import (
    Conflict,
    InvalidArgument,
    TidegateError,
)
from tidegate.systems.waiting_room.draw import commitment_of

SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
MOST_CAPACITY = 1_000_000
MOST_LOG = 100_000_000
LONGEST_TITLE = 200
LONGEST_ENTRANCE = 500
MOST_PUZZLE_BITS = 24
LONGEST_ROOM = 64
ROOM_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
LONGEST_USER = 128
_NAME = re.compile(ROOM_NAME)
_ADDRESS = re.compile(r"[!-\[\]-~]+")
_ONE_MS = timedelta(milliseconds=1)


class RoomPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a room is made of."""

    capacity: int
    """How many may be inside at once."""
    admit_per_second: float | None = None
    """How many may come in per second, over any span of time, and as many at once as one second brings; None: no
    bound but the capacity."""
    session: timedelta = timedelta(minutes=10)
    """How long one may stay inside without doing anything."""
    longest_session: timedelta = timedelta(minutes=30)
    """How long one may stay inside in all."""
    abandon_after: timedelta = timedelta(minutes=2)
    """Who waits and gives no sign of life for so long is dropped from the line."""
    log_length: int = 0
    """About how many steps the room's log keeps; 0: it keeps none."""
    title: str = ""
    """What people see; the room's name where it is empty."""
    entrance: str | None = None
    """Where those go who were let in: an absolute http(s) address, or a path on the same host. Never taken from a
    request, so that nobody can be led elsewhere."""
    anybody: bool = False
    """Whether the page takes in visitors nobody vouches for; else only those whom the shop's server brought."""
    puzzle_bits: int = 0
    """Difficulty of the hash puzzle that the page's script solves before an anonymous visitor may join; 0:
    none. Each bit doubles the work; 16 take a phone about a second."""

    def __post_init__(self) -> None:
        require_whole("capacity", self.capacity, least=0, most=MOST_CAPACITY)
        require_whole("log_length", self.log_length, least=0, most=MOST_LOG)
        require_whole("puzzle_bits", self.puzzle_bits, least=0, most=MOST_PUZZLE_BITS)
        if self.admit_per_second is not None:
            require_positive("admit_per_second", self.admit_per_second)
            require_at_most("admit_per_second", self.admit_per_second, MOST_CAPACITY)
        for name in ("session", "longest_session", "abandon_after"):
            span: timedelta = getattr(self, name)
            if not SECOND <= span <= _DAY:
                raise InvalidArgument(name, str(span), "must be from a second to a day")
        if self.longest_session < self.session:
            raise InvalidArgument("longest_session", str(self.longest_session), "must not be shorter than session")
        require_at_most("len(title)", len(self.title), LONGEST_TITLE)
        if not self.title.isprintable():
            raise InvalidArgument("title", self.title, "must be printable")
        if self.entrance is not None:
            _require_entrance(self.entrance)


def _require_entrance(address: str) -> None:
    """An address that every browser takes for the same: no other scheme, and no host in disguise."""
    require_at_most("len(entrance)", len(address), LONGEST_ENTRANCE)
    if not _ADDRESS.fullmatch(address):
        raise InvalidArgument("entrance", address, "must be printable ASCII without spaces or backslashes")
    if address.startswith("/") and not address.startswith("//"):
        return
    try:
        parts = urlsplit(address)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or "@" in address.partition("//")[2].partition("/")[0]:
        raise InvalidArgument("entrance", address, "must be an http(s) address, or a path that begins with one slash")


class RoomState(StrEnum):
    """Whether people may come."""

    CLOSED = "closed"  # nobody joins, nobody is admitted; who waits keeps his place, who is inside stays
    OPEN = "open"  # everybody joins; from the start time on people are admitted


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A room as its row has it."""

    name: str
    line: str
    """The id of its line: passes of another one are worth nothing here."""
    state: RoomState
    opens_at: datetime | None
    plan: RoomPlan
    seed: str
    epoch: int
    reserved: int

    @property
    def commitment(self) -> str:
        """The SHA-256 of the seed, which everybody may know at any time."""
        return commitment_of(self.seed)

    @property
    def is_paused(self) -> bool:
        """Whether no one is admitted, however long they wait."""
        return self.state is RoomState.CLOSED or self.plan.capacity == 0

    def shown_seed(self, now: datetime) -> str | None:
        """The seed, once nobody can take part in the draw any more."""
        return self.seed if self.has_started(now) else None

    def has_started(self, now: datetime) -> bool:
        """Whether the start has come, which it does only once."""
        return self.opens_at is not None and self.opens_at <= now

    def __repr__(self) -> str:
        return f"Room({self.name!r}, {self.state}, epoch={self.epoch})"


class RoomExists(Conflict):
    """There is a room of this name already."""


class RoomInUse(Conflict):
    """The room cannot be deleted now: it is open, or visitors are inside."""


def require_room(name: str) -> str:
    """A name for a room: it stands in addresses and in the names of cookies as it is."""
    require_at_most("len(room)", len(name), LONGEST_ROOM)
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            "room", name, "must be letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return name


class InLine(msgspec.Struct, frozen=True, kw_only=True):
    """In line."""

    place: int
    ahead: int | None
    """How many are before him; None before the opening, when nobody has a position."""
    opens_in_ms: int = 0
    is_new: bool = False


class Entering(msgspec.Struct, frozen=True):
    """On the way in: in a moment he is inside, or has his place again."""

    admission: int
    place: int | None = None
    """None: he did not wait."""


class Inside(msgspec.Struct, frozen=True):
    """In the room."""

    admission: int
    left_ms: int
    """How long the session lasts if nothing prolongs it."""


class Nowhere(msgspec.Struct, frozen=True):
    """Neither in line nor inside: never was, or no longer is."""


class LineClosed(msgspec.Struct, frozen=True):
    """Nobody may join now."""


class UnverifiedClaim(msgspec.Struct, frozen=True):
    """Not in line; whether an older place is his has to be seen in SQL."""

    sql_epoch: int
    """What the server was last told by SQL: when it is told anew, what SQL says now is old."""


Standing = InLine | Entering | Inside | Nowhere


class LineView(msgspec.Struct, frozen=True):
    """Many at once."""

    waiting: int
    """The length of the line."""
    opens_in_ms: int
    standings: list[Standing]


class RoomCensus(msgspec.Struct, frozen=True, kw_only=True):
    """How many are where."""

    waiting: int
    entering: int
    active: int
    guests: int
    """Of those on the way or inside, how many do not count against the capacity."""
    opens_in_ms: int


class UnknownRoom(Exception):
    """The server does not have the room: it lost its data, or was never told."""


def require_user(user: str) -> str:
    """The id of a user, normalised; raise `InvalidArgument`."""
    return require_name("user", normalise_id("user", user, longest=LONGEST_USER))


class AdmissionState(StrEnum):
    """What became of an admission."""

    ENTERING = "entering"  # out of the line, known to the server only: no row yet
    ACTIVE = "active"  # inside
    ROLLED_BACK = "rolled_back"  # it did not come to that; the old place is the user's again
    EXPIRED = "expired"  # the time was over
    LEFT = "left"  # by his own will


ADMISSION_MOVES = {
    AdmissionState.ENTERING: {AdmissionState.ACTIVE, AdmissionState.ROLLED_BACK, AdmissionState.LEFT},
    AdmissionState.ACTIVE: {AdmissionState.EXPIRED, AdmissionState.LEFT},
    AdmissionState.ROLLED_BACK: set[AdmissionState](),
    AdmissionState.EXPIRED: set[AdmissionState](),
    AdmissionState.LEFT: set[AdmissionState](),
}


class NotActive(TidegateError):
    """The user is not inside the room, or no longer."""

    problem = "not_active"

    def __init__(self, room: str, user: str) -> None:
        super().__init__(f"{user!r} is not inside room {room!r}")
        self.room, self.user = room, user


class VisitorAdmission(msgspec.Struct, frozen=True):
    """Somebody on the way from the line into the room."""

    user: str
    admission: int
    place: int | None = None
    """None: he did not wait."""


class Session(msgspec.Struct, frozen=True):
    """Somebody inside."""

    user: str
    admission: int
    expires_at: datetime
    ends_at: datetime
    """When it ends in any case."""
    is_guest: bool = False

    def left_ms(self, now: datetime) -> int:
        """How long it lasts from `now` on, rounded up: the server must not look too early."""
        return max(0, -((now - self.expires_at) // _ONE_MS))


class AdmissionResults(msgspec.Struct, frozen=True):
    """What became of admissions, or of sessions."""

    active: list[Session]
    ended: list[VisitorAdmission] = []
    """Those whose sessions have ended, or who left on the way: nothing is theirs any more."""
    not_admitted: list[VisitorAdmission] = []
    """Those who did not come in by this."""


class VoidEpoch(TidegateError):
    """The room was installed anew since these were taken out of the line."""


class RoomClosed(TidegateError):
    """Nobody may join the line of `room` now."""

    problem = "room_closed"

    def __init__(self, room: str) -> None:
        super().__init__(f"room {room!r} is closed")
        self.room = room


class VisitorStatus(msgspec.Struct, frozen=True):
    """Where somebody stands, and the pass that he shows from now on; None for one who is nowhere."""

    user: str
    standing: Standing
    token: str | None
    waiting: int | None = None
    """The length of the line, where it was told too."""

    def __repr__(self) -> str:
        return f"Answer({self.user!r}, {self.standing!r})"


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A room, for those who look after it."""

    name: str
    state: RoomState
    opens_at: datetime | None
    plan: RoomPlan
    commitment: str
    """The SHA-256 of the seed of its draw."""
    seed: str | None
    """The seed itself, once the start has come."""
    census: RoomCensus
