"""Reads a worker's jobs from SQS, with the interface of a stream consumer.

A ticket is deleted as soon as its message is owned by this worker, or turns out to be owned by another, or gone. From
then on the worker owns the message itself, and the usual take-over applies if the worker dies. Keeping the ticket
hidden until the job ends would only add requests, and a second clock that can expire. See `forwarder` for all failures.
"""

import asyncio
from collections.abc import Iterable, Sequence

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.errors import InvalidArgument, TidegateError
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.sqs.queue import LARGEST_BATCH, LONGEST_WAIT_S, Queue, Received
from tidegate.engine.sqs.tickets import read_ticket
from tidegate.primitives.stream import Message, TicketedStream
from tidegate.runtime.waiting import end

log = get_logger(__name__)

_MOST_AT_ONCE = 10
"""Number of concurrent receive requests when the queue is full."""
_LAST_DELETES_WITHIN_S = 2.0


class QueueIntake:
    """Takes jobs by their tickets. A process has one, with one `read` in progress at a time."""

    def __init__(self, queue: Queue, passage: TicketedStream, owner: str) -> None:
        self._queue, self._passage, self._owner = queue, passage, owner
        self._stream = str(passage.stream.keys.stream)
        self._held: set[str] = set()
        self._deleting: set[asyncio.Task[None]] = set()

    @property
    def held(self) -> frozenset[str]:
        """The ids of messages that were read and not yet settled or given back."""
        return frozenset(self._held)

    async def read(self, count: int, within_s: float) -> list[Message]:
        """Return at most `count` messages as soon as there are some; none when `within_s` seconds passed without any.

        Raises `Unavailable` if SQS or Valkey is unavailable; the call can be repeated.
        """
        require_positive("count", count)
        require_not_negative("within_s", within_s)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while True:
            left_s = max(0.0, deadline - loop.time())
            received = await self._receive(count, min(left_s, LONGEST_WAIT_S))
            if messages := await self._take_messages(received):
                return messages
            if left_s == 0:
                return []

    def settled(self, ids: Iterable[str]) -> None:
        """Forget messages that were acknowledged, or that other code is responsible for now."""
        self._held.difference_update(ids)

    async def leave(self, *, counts: bool = False) -> int:
        """Give back what was read and not settled, counting a delivery or not; returns the number of messages."""
        if self._deleting:
            # A ticket that is not deleted in time is delivered again, and is void then.
            await asyncio.wait(self._deleting, timeout=_LAST_DELETES_WITHIN_S)
            await end(*self._deleting)
        released = await self._passage.release(self._owner, counts=counts)
        self._held.clear()
        return released

    async def _receive(self, count: int, wait_s: float) -> list[Received]:
        """Make one request that waits; if it returns a full batch, more requests that do not wait."""
        first = await self._queue.receive(min(count, LARGEST_BATCH), wait_s)
        more = min((count - len(first)) // LARGEST_BATCH, _MOST_AT_ONCE)
        if len(first) < LARGEST_BATCH or more == 0:
            return first
        others = await asyncio.gather(
            *(self._queue.receive(LARGEST_BATCH, 0) for _ in range(more)), return_exceptions=True
        )
        for found in others:
            if isinstance(found, list):
                first += found
            elif not isinstance(found, TidegateError):  # an unavailable server is reported by the next request
                raise found
        return first

    async def _take_messages(self, tickets: Sequence[Received]) -> list[Message]:
        """Take the messages that these tickets name, and delete the tickets in the background, also void ones.

        Returns the messages that this worker owns now.
        """
        ids = {message.id: self._read_ticket(message) for message in tickets}
        # SQS may deliver a ticket twice. A message that is held here already is not returned again.
        wanted = {ticket for ticket in ids.values() if ticket is not None} - self._held
        taken = await self._passage.take(self._owner, sorted(wanted))
        self._held.update(message.id for message in taken)
        metrics.SQS_TICKETS.labels("taken").inc(len(taken))
        metrics.SQS_TICKETS.labels("void").inc(len(tickets) - len(taken))
        # After the messages were taken: until then, another worker must get the tickets if this process dies.
        self._delete([message.receipt for message in tickets])
        return taken

    def _read_ticket(self, message: Received) -> str | None:
        """Return the id of the message that a ticket names; None for a malformed ticket, which is logged."""
        try:
            return read_ticket(message.body, stream=self._stream)
        except InvalidArgument as error:
            log.warning("sqs.ticket_malformed", message=message.id, error=str(error))
            return None

    def _delete(self, receipts: list[str]) -> None:
        """Delete tickets in the background, so that the jobs can start."""
        if receipts:
            task = asyncio.create_task(self._queue.delete(receipts), name="delete tickets")
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)
