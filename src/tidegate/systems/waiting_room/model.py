"""Rooms, visitors, sessions and their states, places in the line, and the limits that every part of a room checks.

Places of early visitors are drawn, with a proof that the draw was fair. A visitor that joins before the start gets a
random place: a hash of the room's seed and the arrival number. The SHA-256 of the seed is public from the beginning,
the seed itself after the start. Any visitor can verify that the seed was chosen before, and that every place follows
from it:

    import hashlib
    assert hashlib.sha256(seed.encode()).hexdigest() == commitment
    lot = int(hashlib.sha1(f"{seed}:{number}".encode()).hexdigest()[:8], 16) >> 3
    assert place == -(2**53) + lot * 2**24 + number

The smallest place is first. After the start, the place is the arrival number.
"""

import hashlib
import re
import secrets
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

DRAWN = 2**24
"""Number of visitors that can take part in the draw. Visitors that join before the start but after them stand behind
them."""
LOWEST = -(2**53)


def new_seed() -> str:
    """Return 32 random bytes, in hex."""
    return secrets.token_hex(32)


def commitment_of(seed: str) -> str:
    """Return what is published of the seed before the start."""
    return hashlib.sha256(seed.encode()).hexdigest()


def drawn_place(seed: str, number: int) -> int:
    """Return the place of a visitor that joined before the start."""
    require_whole("number", number, least=1, most=DRAWN - 1)
    lot = int(hashlib.sha1(f"{seed}:{number}".encode(), usedforsecurity=False).hexdigest()[:8], 16) >> 3
    return LOWEST + lot * DRAWN + number


def number_of(place: int) -> int:
    """Return the arrival number for which a place was given."""
    require_whole("place", place, least=LOWEST, most=-LOWEST)
    return place if place >= 0 else (place - LOWEST) % DRAWN


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
    """Settings of one room."""

    capacity: int
    """Number of visitors that may be inside at the same time. Invited visitors are not counted."""
    admit_per_second: float | None = None
    """Number of visitors that may be admitted per second, over any span of time; the burst is one second. None: only
    the capacity limits admission."""
    session: timedelta = timedelta(minutes=10)
    """A session ends after this time without activity."""
    longest_session: timedelta = timedelta(minutes=30)
    """A session ends after this time even with activity."""
    abandon_after: timedelta = timedelta(minutes=2)
    """A visitor that gives no sign of life for this long is removed from the line."""
    log_length: int = 0
    """Approximate number of steps that the room's log keeps; 0 disables the log."""
    title: str = ""
    """Title on the waiting page; if empty, the name of the room."""
    entrance: str | None = None
    """Where admitted visitors are sent: an absolute http(s) address, or a path on the same host. Never taken from a
    request, so that the page cannot be used to redirect visitors to another site."""
    anonymous: bool = False
    """Whether the waiting page admits anonymous visitors to the line; otherwise only visitors that the shop's server
    brings."""
    puzzle_bits: int = 0
    """Difficulty of the hash puzzle that the page's script solves before an anonymous visitor may join; 0: none. Each
    bit doubles the work; 16 take a phone about a second."""

    def __post_init__(self) -> None:
        """Check and normalise the settings; raises `InvalidArgument`."""
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
    """Accept only addresses that every browser reads alike: no other scheme, no user name in front of the host."""
    require_at_most("len(entrance)", len(address), LONGEST_ENTRANCE)
    if not _ADDRESS.fullmatch(address):
        raise InvalidArgument("entrance", address, "must be printable ASCII without spaces or backslashes")
    # Browsers read an address that begins with two slashes as the name of another host.
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
    """Whether visitors may join."""

    CLOSED = "closed"  # visitors cannot join and are not admitted; places in line and sessions are kept
    OPEN = "open"  # visitors may join, and are admitted from the start time on


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A room as stored in SQL."""

    name: str
    line: str
    """Identifies the line: a pass of another line is refused."""
    state: RoomState
    opens_at: datetime | None
    plan: RoomPlan
    seed: str
    epoch: int
    reserved: int

    @property
    def commitment(self) -> str:
        """The SHA-256 of the seed, which is public from the beginning."""
        return commitment_of(self.seed)

    @property
    def is_paused(self) -> bool:
        """Whether no visitor is admitted at the moment, however long they wait."""
        return self.state is RoomState.CLOSED or self.plan.capacity == 0

    def shown_seed(self, now: datetime) -> str | None:
        """Return the seed after the start, when it cannot influence the draw any more; before, None."""
        return self.seed if self.has_started(now) else None

    def has_started(self, now: datetime) -> bool:
        """Return whether the start time has passed."""
        return self.opens_at is not None and self.opens_at <= now

    def __repr__(self) -> str:
        return f"Room({self.name!r}, {self.state}, epoch={self.epoch})"


class RoomExists(Conflict):
    """A room with this name exists."""


class RoomInUse(Conflict):
    """The room cannot be deleted now: it is open, or visitors are inside."""


def require_room_name(name: str) -> str:
    """Return the name of a room if it has a valid form, else raise `InvalidArgument`; the room need not exist.

    The name is used unescaped in addresses and cookie names.
    """
    require_at_most("len(room)", len(name), LONGEST_ROOM)
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            "room", name, "must be letters, digits, dots, dashes and underscores, a letter or digit first"
        )
    return name


class InLine(msgspec.Struct, frozen=True, kw_only=True):
    """The visitor waits in the line."""

    place: int
    ahead: int | None
    """Number of visitors with an earlier place; None before the start, when there are no positions yet."""
    opens_in_ms: int = 0
    is_new: bool = False


class Entering(msgspec.Struct, frozen=True):
    """The admission is in progress: the visitor will be inside, or back in line, within moments."""

    admission: int
    place: int | None = None
    """The place in line; None if the visitor did not wait."""


class Inside(msgspec.Struct, frozen=True):
    """The visitor has a session in the room."""

    admission: int
    left_ms: int
    """Remaining time of the session unless it is renewed."""


class NotPresent(msgspec.Struct, frozen=True):
    """The visitor is neither in line nor inside."""


class LineClosed(msgspec.Struct, frozen=True):
    """The room is closed; visitors cannot join."""


class UnverifiedClaim(msgspec.Struct, frozen=True):
    """The visitor is not in line, and SQL has to decide whether the claimed place is still theirs."""

    sql_epoch: int
    """Epoch of the SQL state that the server knows. What was read from SQL under an older epoch is outdated."""


Standing = InLine | Entering | Inside | NotPresent


class LineView(msgspec.Struct, frozen=True):
    """Where several visitors of one room stand."""

    waiting: int
    """The length of the line."""
    opens_in_ms: int
    standings: list[Standing]


class RoomCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of visitors in each state."""

    waiting: int
    entering: int
    active: int
    guests: int
    """Visitors inside, or being admitted, that do not count against the capacity."""
    opens_in_ms: int


class UnknownRoom(Exception):
    """The server does not have the room: it lost its data, or the room was never installed."""


def require_user(user: str) -> str:
    """Return the normalised id of a user; raise `InvalidArgument`."""
    return require_name("user", normalise_id("user", user, longest=LONGEST_USER))


class AdmissionState(StrEnum):
    """State of an admission; see `docs/lifecycles.md`."""

    ENTERING = "entering"  # taken out of the line; known to the Valkey server only, without a row
    ACTIVE = "active"  # inside
    ROLLED_BACK = "rolled_back"  # not admitted; the visitor has the previous place again
    EXPIRED = "expired"  # the session ended
    LEFT = "left"  # the visitor left


ADMISSION_MOVES = {
    AdmissionState.ENTERING: {AdmissionState.ACTIVE, AdmissionState.ROLLED_BACK, AdmissionState.LEFT},
    AdmissionState.ACTIVE: {AdmissionState.EXPIRED, AdmissionState.LEFT},
    AdmissionState.ROLLED_BACK: set[AdmissionState](),
    AdmissionState.EXPIRED: set[AdmissionState](),
    AdmissionState.LEFT: set[AdmissionState](),
}


class NotActive(TidegateError):
    """The user has no active session in the room."""

    problem = "not_active"

    def __init__(self, room: str, user: str) -> None:
        super().__init__(f"{user!r} is not inside room {room!r}")
        self.room, self.user = room, user


class VisitorAdmission(msgspec.Struct, frozen=True):
    """One admission of a visitor."""

    user: str
    admission: int
    place: int | None = None
    """The place in line; None if the visitor did not wait."""


class Session(msgspec.Struct, frozen=True):
    """A visitor's active session in a room."""

    user: str
    admission: int
    expires_at: datetime
    ends_at: datetime
    """The session cannot be renewed beyond this time."""
    is_guest: bool = False

    def left_ms(self, now: datetime) -> int:
        """Return the remaining time at `now`, rounded up, so that the server does not check too early."""
        # Floor division of the negated difference rounds up.
        return max(0, -((now - self.expires_at) // _ONE_MS))


class AdmissionResults(msgspec.Struct, frozen=True):
    """State of a batch of admissions according to SQL."""

    active: list[Session]
    ended: list[VisitorAdmission] = []
    """Sessions that ended, and visitors that left during their admission."""
    not_admitted: list[VisitorAdmission] = []
    """Admissions that did not lead to a session; the previous places are restored."""


class EpochReplaced(TidegateError):
    """The room was installed again since these visitors were taken out of the line."""


class RoomClosed(TidegateError):
    """The room is closed; visitors cannot join its line."""

    problem = "room_closed"

    def __init__(self, room: str) -> None:
        super().__init__(f"room {room!r} is closed")
        self.room = room


class VisitorStatus(msgspec.Struct, frozen=True):
    """Where a visitor stands, and the pass to show from now on; None for a visitor that is nowhere."""

    user: str
    standing: Standing
    token: str | None
    waiting: int | None = None
    """The length of the line, if it was read."""

    def __repr__(self) -> str:
        return f"Answer({self.user!r}, {self.standing!r})"


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A room and its current state, for operators."""

    name: str
    state: RoomState
    opens_at: datetime | None
    plan: RoomPlan
    commitment: str
    """The SHA-256 of the seed of the draw."""
    seed: str | None
    """The seed, after the start."""
    counts: RoomCounts
