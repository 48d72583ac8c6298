"""How rooms are kept, and what a room is made of."""

import re
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from annotated_types import Ge, Le
from pydantic import BaseModel, Field

from tidegate.core.arguments import require_at_most, require_positive, require_whole
from tidegate.core.errors import InvalidArgument

_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
MOST_CAPACITY = 1_000_000
MOST_LOG = 100_000_000
LONGEST_TITLE = 200
LONGEST_ENTRANCE = 500
MOST_PUZZLE_BITS = 24
_ADDRESS = re.compile(r"[!-\[\]-~]+")


class WaitingRoomSettings(BaseModel, frozen=True, extra="forbid", use_attribute_docstrings=True):
    """How rooms are kept; what each room is like stands in the database."""

    admitted_at_once: int = Field(default=100, ge=1, le=100)
    """How many are taken out of the line and written to the database together."""
    settle_after: Annotated[timedelta, Ge(_SECOND), Le(timedelta(minutes=5))] = timedelta(seconds=10)
    """An invitation in progress for so long is completed or reverted by the leader: its process may be dead. Other
    admissions in progress are settled when the next leader takes the room over."""
    tokens_kept: Annotated[timedelta, Ge(timedelta(days=1)), Le(timedelta(days=36_500))] = timedelta(days=90)
    """For how long the record of an admission is kept after it ended."""


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
            if not _SECOND <= span <= _DAY:
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
