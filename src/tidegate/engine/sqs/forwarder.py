"""Sends jobs that have their permit to workers by SQS.

The gate stays the one place of permits, and its stream the one place of jobs: what SQS carries are tickets, which say
where a job's message is. `flow.stream.passage` tells in whose name a message stands on its way.

The invariant: **a permit that is out has one message in the stream; it stands in one name; and somebody living sees to
whatever stands in that name.** A worker calls the upstream only for a message that it has moved to its own name, so at
most one at a time does, however often SQS delivers a ticket; and what is committed is decided by the fence in SQL, as
everywhere. Where we can die, and what becomes of it:

- a forwarder, after it read a message and before its ticket was sent: the message stands in its name; when its lease
  ends, the message becomes a new entry, which another forwarder reads. Nobody had it in hand, so that counts nothing.
- a forwarder, after it sent the ticket and before the message passed to the queue's name: the same; but if a worker
  used the ticket meanwhile, the message is with that one. The ticket of an entry that is gone is void.
- a forwarder, after that: nothing happens. No ticket is worth less without the one that sent it.
- SQS loses a ticket, or somebody purges the queue: the message is overdue in the queue's name, and the leader sends a
  new ticket (`Lookout`).
- a worker, after it received a ticket and before it took the message: SQS shows the ticket to another.
- a worker, after it took the message: when its lease ends the message becomes a new entry, with one delivery more, and
  goes to a forwarder again; whoever takes it claims the job with a higher fence. The old ticket, shown again, is void.
- a worker that was only frozen finds its message gone and its fence passed: what it brings is late, as everywhere.
- a worker, after it ended the job and before it deleted the ticket: the ticket is void.
- Valkey loses its data: permits, messages and names are gone together. Everything unfinished is offered anew, and old
  tickets are void.
- SQS is away: forwarders keep what they have read, and tell so; nothing is counted against it, and nothing is lost.
- the task queue is taken out of the settings: what stands in the queue's name is idle and becomes new entries, which
  workers read from the stream itself.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from tidegate.core.backoff import Backoff
from tidegate.core.telemetry import metrics
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine.sqs.queue import Queue, Unsent
from tidegate.engine.sqs.tickets import write_ticket
from tidegate.primitives.stream import Passage
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import unless

log = get_logger(__name__)

_WAIT_S = 300.0
_MOST_READ = 500
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=5)


class Forwarder:
    """A service. Any number of processes may have one, those without workers too: somebody has to fill the queue."""

    def __init__(self, queue: Queue, passage: Passage, owner: str) -> None:
        self._queue, self._passage, self._sender = queue, passage, passage.sender(owner)
        # What waits for the queue must be told to be ours before it counts as left behind.
        longest = min(_LONGEST_PAUSE, passage.stream.settings.idle_limit / 3)
        self._pauses = Backoff(first=min(_FIRST_PAUSE, longest), most=longest)
        self._read: list[str] = []
        """What was read and is not in the queue's name yet."""
        self._unsent: list[str] = []
        self._outage, self._unsendable = Outage("sqs.read"), Outage("sqs.send", pauses=self._pauses)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send tickets until told to stop; give back what is not sent by then."""
        try:
            await unless(stopping, self._forward_all())
        finally:
            self._read, self._unsent = [], []
            await self._sender.leave()

    async def _forward_all(self) -> None:
        while True:
            await self._outage.retry(self._forward_some)

    async def _forward_some(self) -> None:
        """Done again after a failure, it goes on where it was."""
        if not self._read:
            messages = await self._sender.read(_MOST_READ, within_s=_WAIT_S)
            self._read = self._unsent = [message.id for message in messages]
        await self._send_all()
        await self._passage.sent(self._sender, self._read)
        self._read = []

    async def _send_all(self) -> None:
        """However long it takes."""
        tries = 0
        while self._unsent:
            unsent = await send_tickets(self._queue, self._passage, self._unsent)
            left = unsent.names if unsent else []
            metrics.SQS_TICKETS.labels("sent").inc(len(self._unsent) - len(left))
            self._unsent = left
            if unsent is not None:
                tries += 1
                await self._unsendable.pause(unsent.error, tries)
                self._unsent = await self._passage.keep(self._sender, left)
        self._unsendable.over()


class Lookout:
    """A source of due things for the leader: sends a new ticket for what nobody has taken for long."""

    def __init__(self, queue: Queue, passage: Passage) -> None:
        self._queue, self._passage = queue, passage
        self._after = passage.stream.settings.idle_limit / 2
        """Soon enough for it not to count as left behind, which would make all tickets void that wait in the queue."""
        self._outage = Outage("sqs.send_again")

    async def fire(self) -> int | None:
        """Look after what is overdue; in how many ms something else can be."""
        overdue = await self._passage.overdue(self._after)
        await self._passage.looked_after(overdue.waiting, counts=True)
        if overdue.lost:
            unsent = await send_tickets(self._queue, self._passage, overdue.lost)
            left = set(unsent.names if unsent else ())
            sent = [message for message in overdue.lost if message not in left]
            await self._passage.looked_after(sent, counts=True)
            await self._passage.looked_after(left, counts=False)
            metrics.SQS_TICKETS.labels("sent_again").inc(len(sent))
            if sent:
                log.warning("sqs.tickets_sent_again", tickets=len(sent), unsent=len(left))
            if unsent is None:
                self._outage.over()
            else:
                self._outage.note(unsent.error)
        return overdue.next_in_ms


async def send_tickets(queue: Queue, passage: Passage, ids: Iterable[str]) -> Unsent | None:
    """Send the tickets of these messages; tells which of them may not have been sent."""
    stream = str(passage.stream.keys.stream)
    return await queue.send({message: write_ticket(stream, message) for message in ids})
