"""The way of messages that reach their workers by another queue, which may lose, repeat and reorder what it carries.

That queue carries tickets: the ids of messages. The messages stay in the stream, and each stands in one name always:

    nobody's          not read yet                           a sender reads it
    `owner/onward`    a sender has read it and sends it      the sender, or whoever takes over from it
    `onward`          its ticket was sent                    whoever looks after what is overdue
    `owner`           a worker has taken it                  the worker, or whoever takes over from it

Whoever has a ticket asks for the message, and gets it only while it stands in one of the two names in the middle, which
is decided by the server in one step. So of two tickets for the same message one is worth something, and a ticket for
what is done, or has become a new entry, nothing. A ticket that was lost is sent again: each time the pause is about
twice as long as before, since most often it is not lost, and there are too few workers.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.clock import milliseconds
from tidegate.primitives.stream.batches import BATCH, id_batches
from tidegate.primitives.stream.consumer import Consumer
from tidegate.primitives.stream.message import Message, to_message
from tidegate.primitives.stream.stream import WAYPOINT, Stream
from tidegate.storage.valkey import Key, Valkey, lua_script


@lua_script("take.lua")
async def _take(valkey: Valkey, *, stream: Key, group: str, consumer: str, ids: list[str]) -> list[Any]: ...


@lua_script("pass.lua")
async def _pass(
    valkey: Valkey, *, stream: Key, group: str, giver: str, taker: str, ids: list[str], counts: int
) -> list[bytes]: ...


@lua_script("overdue.lua")
async def _overdue(
    valkey: Valkey, *, stream: Key, group: str, consumer: str, after: str, limit: int, idle_ms: int
) -> list[Any]: ...


class Intake(Protocol):
    """Where a worker gets its messages: from the stream itself (`Consumer`), or by another queue."""

    async def read(self, count: int, within_s: float) -> list[Message]:
        """At most `count` messages as soon as there are some; none when `within_s` seconds passed without any."""
        ...

    def settled(self, ids: Iterable[str]) -> None:
        """These were acknowledged, or somebody else will see to them; forget them."""
        ...

    async def leave(self, *, counts: bool = False) -> int:
        """Give back what was read and not acknowledged, uncounted or not; how many messages that were."""
        ...


class Overdue(NamedTuple):
    """Messages whose tickets nobody has used for long."""

    lost: list[str]
    """Those whose ticket it is time to send again."""
    waiting: list[str]
    """The others; their tickets are probably only waiting, like their workers' attention."""
    next_in_ms: int
    """Until then no other can be overdue."""


class Passage:
    """The way from one stream by another queue. Every method may be called from any process."""

    def __init__(self, valkey: Valkey, stream: Stream) -> None:
        self.stream = stream
        self._valkey = valkey

    def sender(self, owner: str) -> Consumer:
        """The reader that sends, in the process `owner`."""
        return self.stream.consumer(owner, WAYPOINT)

    async def sent(self, sender: Consumer, ids: Sequence[str]) -> None:
        """The tickets of these are in the queue. Those that a worker has taken meanwhile stay with it."""
        await self._pass(sender.name, WAYPOINT, ids)
        sender.settled(ids)

    async def keep(self, sender: Consumer, ids: Iterable[str]) -> list[str]:
        """These cannot be sent yet; the sender is not to be held for dead because of it. Those that are still its."""
        return await self._pass(sender.name, sender.name, ids)

    async def take(self, consumer: str, ids: Iterable[str]) -> list[Message]:
        """Those of these messages that nobody has in hand, for `consumer`, and what it has already."""
        require_name("consumer", consumer)
        taken: list[Message] = []
        for batch in id_batches(ids):
            found = await _take(self._valkey, **self._where(), consumer=consumer, ids=batch)
            taken += [to_message((entry_id, _pairs(fields))) for entry_id, fields in found]
        return taken

    async def release(self, consumer: str, *, counts: bool = False) -> int:
        """Give back all that `consumer` has taken, uncounted or not; how many messages that were."""
        return await self.stream.release(consumer, counts=counts)

    async def overdue(self, after: timedelta) -> Overdue:
        """What has stood in the queue's name for so long, since it was sent or last looked after."""
        idle_ms = milliseconds(after)
        require_positive("after", idle_ms)
        lost, waiting, last, soonest_ms = list[str](), list[str](), "", idle_ms
        while True:
            found, end, page_ms = await _overdue(
                self._valkey, **self._where(), consumer=WAYPOINT, after=last, limit=BATCH, idle_ms=idle_ms
            )
            for message_id, times in found:
                (lost if _is_power_of_two(times) else waiting).append(message_id.decode())
            last, soonest_ms = end.decode(), min(soonest_ms, page_ms)
            if not last:
                return Overdue(lost, waiting, soonest_ms)

    async def looked_after(self, ids: Iterable[str], *, counts: bool) -> None:
        """These are overdue no more. `counts`: it was one of the times after which the pause grows."""
        await self._pass(WAYPOINT, WAYPOINT, ids, counts=int(counts))

    async def _pass(self, giver: str, taker: str, ids: Iterable[str], counts: int = 0) -> list[str]:
        passed: list[str] = []
        for batch in id_batches(ids):
            names = await _pass(self._valkey, **self._where(), giver=giver, taker=taker, ids=batch, counts=counts)
            passed += [name.decode() for name in names]
        return passed

    def _where(self) -> dict[str, Any]:
        return {"stream": self.stream.keys.stream, "group": self.stream.settings.group}


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
