"""Delivery of messages through another queue, such as SQS, which may lose, repeat and reorder what it carries.

The other queue carries tickets: ids of messages. The messages stay in the stream. Each message is pending for one name:

    name              state                                  next step by
    (none)            not read yet                           a sender
    `owner/onward`    read by a sender, being sent           the sender, or the process that takes over from it
    `onward`          its ticket was sent                    a worker with the ticket, or the check for overdue tickets
    `owner`           taken by a worker                      the worker, or the process that takes over from it

A worker with a ticket takes the message only if it is pending for one of the two names in the middle; the server
decides this in one step. So only one of several tickets for a message is valid, and tickets for finished messages are
void. An overdue ticket is sent again after pauses that double, because usually it is not lost: workers are busy.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from tidegate.core.arguments import require_name, require_positive
from tidegate.core.clock import milliseconds
from tidegate.primitives.stream.consumer import Consumer
from tidegate.primitives.stream.message import BATCH, Message, id_batches, to_message
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


class MessageSource(Protocol):
    """Source of a worker's messages: the stream itself (`Consumer`), or another queue."""

    async def read(self, count: int, within_s: float) -> list[Message]:
        """Wait for messages and return at most `count`; an empty list after `within_s` seconds without any."""
        ...

    def settled(self, ids: Iterable[str]) -> None:
        """Forget messages that were acknowledged or are handled elsewhere."""
        ...

    async def leave(self, *, counts: bool = False) -> int:
        """Release all held messages; with `counts`, the delivery counts. Returns how many there were."""
        ...


class UnusedTickets(NamedTuple):
    """Messages with tickets that were not used for long."""

    lost: list[str]
    """Messages with tickets that must be sent again now."""
    waiting: list[str]
    """The other ones; their tickets probably wait for a worker."""
    next_in_ms: int
    """Time until another message can become overdue."""


class TicketedStream:
    """Delivers the messages of a stream through another queue. Methods may be called from any process."""

    def __init__(self, valkey: Valkey, stream: Stream) -> None:
        self.stream = stream
        self._valkey = valkey

    def sender(self, owner: str) -> Consumer:
        """The consumer that reads messages to send their tickets, in the process `owner`."""
        return self.stream.consumer(owner, WAYPOINT)

    async def sent(self, sender: Consumer, ids: Sequence[str]) -> None:
        """Record that tickets were sent. Messages that a worker has taken meanwhile stay with it."""
        await self._pass(sender.name, WAYPOINT, ids)
        sender.settled(ids)

    async def keep(self, sender: Consumer, ids: Iterable[str]) -> list[str]:
        """Keep messages that cannot be sent yet, so that they do not count as stalled. Returns those still held."""
        return await self._pass(sender.name, sender.name, ids)

    async def take(self, consumer: str, ids: Iterable[str]) -> list[Message]:
        """Take messages by their tickets. Returns those that were not taken by another worker."""
        require_name("consumer", consumer)
        taken: list[Message] = []
        for batch in id_batches(ids):
            found = await _take(self._valkey, **self._where(), consumer=consumer, ids=batch)
            taken += [to_message((entry_id, _pairs(fields))) for entry_id, fields in found]
        return taken

    async def release(self, consumer: str, *, counts: bool = False) -> int:
        """Release all messages of `consumer`; with `counts`, the delivery counts. Returns how many there were."""
        return await self.stream.release(consumer, counts=counts)

    async def overdue(self, after: timedelta) -> UnusedTickets:
        """Find messages with tickets that were sent, or last checked, longer than `after` ago."""
        idle_ms = milliseconds(after)
        require_positive("after", idle_ms)
        lost, waiting, last, soonest_ms = list[str](), list[str](), "", idle_ms
        while True:
            found, end, page_ms = await _overdue(
                self._valkey, **self._where(), consumer=WAYPOINT, after=last, limit=BATCH, idle_ms=idle_ms
            )
            for message_id, times in found:
                # A ticket is sent again at the 1st, 2nd, 4th, 8th ... check, so the pauses double.
                (lost if _is_power_of_two(times) else waiting).append(message_id.decode())
            last, soonest_ms = end.decode(), min(soonest_ms, page_ms)
            if not last:
                return UnusedTickets(lost, waiting, soonest_ms)

    async def mark_checked(self, ids: Iterable[str], *, counts: bool) -> None:
        """Restart the time after which tickets are overdue. With `counts`, the ticket was sent again."""
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
