"""PartialReads at several parts at once. One that cannot be found out in time costs itself, and is explained."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from tidegate.core.errors import ServerRefused, Unavailable
from tidegate.core.telemetry.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

WITHIN_S = 1.5
"""What has not answered by then is away: a request is answered within two seconds in any case."""
DATABASE, VALKEY, TRANSPORT = "the database", "Valkey", "the transport of snapshots"


class UnreadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that could not be found out."""

    part: str
    """The name of the field that is null."""
    reason: str
    """For people."""


class PartialReads:
    """One look at everything. What went wrong is in `unknown`, in the order of the parts' names."""

    def __init__(self, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._unknown: dict[str, str] = {}

    @property
    def unknown(self) -> list[UnreadPart]:
        """Parts that are null, and why."""
        return [UnreadPart(part=part, reason=reason) for part, reason in sorted(self._unknown.items())]

    async def read(self, where: str, look: Awaitable[T], *parts: str) -> T | None:
        """What is found; None, and `parts` are unknown, where it could not be."""
        try:
            async with asyncio.timeout(self._within_s):
                return await look
        except Exception as error:  # whatever it is, the other parts are shown
            if not isinstance(error, Unavailable | TimeoutError):
                log.error("dashboard.look_failed", parts=", ".join(parts), exc_info=error)
            self._unknown |= dict.fromkeys(parts, explain(where, error))
            return None


def explain(where: str, error: Exception) -> str:
    """Why something could not be found out, without the addresses of what is behind us."""
    match error:
        case TimeoutError():
            return f"{where} does not answer in time"
        case ServerRefused():
            return f"{where} refuses us; the log says why"
        case Unavailable():
            return f"{where} cannot be reached"
        case _:
            return "something unexpected happened; it is in the log"
