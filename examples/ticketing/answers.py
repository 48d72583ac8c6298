"""What the shop's errors mean to a caller, in one table for both the API and the pages."""

from collections.abc import Mapping

import msgspec
from examples.ticketing.payments import KeyReused
from examples.ticketing.reservations import HoldOver, SeatTaken, TooManySeats

from tidegate import InvalidArgument, NotFound, Unavailable
from tidegate.systems.waiting_room import NotActive


class Refusal(msgspec.Struct, frozen=True):
    """Why something was not done."""

    status: int
    error: str
    detail: str


_MEANINGS: Mapping[type[Exception], tuple[int, str]] = {
    NotFound: (404, "not-found"),
    NotActive: (403, "not-active"),
    SeatTaken: (409, "seat-taken"),
    TooManySeats: (409, "too-many-seats"),
    HoldOver: (409, "hold-over"),
    KeyReused: (422, "key-reused"),
    InvalidArgument: (400, "invalid"),
    msgspec.MsgspecError: (400, "invalid"),
    Unavailable: (503, "unavailable"),
}
EXPECTED = tuple(_MEANINGS)


def refusal_of(error: Exception) -> Refusal:
    """What an expected error means."""
    for kind, (status, name) in _MEANINGS.items():
        if isinstance(error, kind):
            return Refusal(status, name, _words(error))
    raise error


def _words(error: Exception) -> str:
    match error:
        case Unavailable():
            # The error of a server is for the log; it would reveal internals.
            return "a server that is needed is away; try again in a moment"
        case NotFound():
            return f"there is no such {error.kind}"
        case _:
            return str(error)
