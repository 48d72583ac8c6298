"""Sends dispatched jobs to workers through SQS.

The gate alone assigns permits, and its stream alone holds jobs: SQS carries tickets, which name a job's message in the
stream. `primitives.stream.passage` documents the ownership of messages.

The invariant: **a permit in use has one message in the stream; the message has one owner; and a live process is
responsible for each owner.** A worker calls the upstream only for a message that it has taken over as its owner, so at
most one worker does, however often SQS delivers a ticket; and the fencing token in SQL decides what is committed. Each
point at which a process can die, and what repairs it:

- a forwarder, after it read a message and before it sent the ticket: the forwarder owns the message. When its lease
  ends, the message becomes a new entry, which another forwarder reads. It was not executed, so no delivery is counted.
- a forwarder, after it sent the ticket and before it passed the message to the queue's name: the same. If a worker used
  the ticket in the meantime, that worker owns the message. A ticket for an entry that no longer exists is void.
- a forwarder, after that: nothing. The ticket is valid without its sender.
- SQS loses a ticket, or the queue is purged: the message is overdue under the queue's name, and the leader sends a new
  ticket (`OverdueTickets`).
- a worker, after it received a ticket and before it took the message: SQS delivers the ticket to another worker.
- a worker, after it took the message: when its lease ends the message becomes a new entry with one delivery more, and
  goes to a forwarder again; the next worker claims the job with a higher fencing token. The old ticket is void.
- a worker that was only frozen: its message is gone and its fencing token outdated, so its results are rejected.
- a worker, after it ended the job and before it deleted the ticket: the ticket is void.
- Valkey loses its data: permits, messages and owners are lost together. Everything unfinished is enqueued again, and
  old tickets are void.
- SQS is unavailable: forwarders keep the messages that they have read and renew their ownership; nothing is counted or
  lost.
- the task queue is removed from the settings: messages under the queue's name become idle and are turned into new
  entries, which workers read from the stream itself.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

import msgspec

from tidegate.core.arguments import require_not_negative, require_positive
from tidegate.core.backoff import Backoff
from tidegate.core.errors import UNDECODABLE, InvalidArgument, TidegateError
from tidegate.core.telemetry.logs import get_logger
from tidegate.engine import metrics
from tidegate.engine.sqs.queue import LARGEST_BATCH, LONGEST_WAIT_S, Queue, Received, Unsent
from tidegate.primitives.stream import Message, TicketedStream
from tidegate.runtime.outage import Outage
from tidegate.runtime.waiting import end, unless

_LARGEST_PART = 2**64


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a message: its stream and id."""

    stream: str
    """The key of the stream, which differs between deployments."""
    message: str
    """The message's id in the stream."""


def write_ticket(stream: str, message: str) -> str:
    """Encode a ticket for the queue."""
    return msgspec.json.encode(Ticket(stream, message)).decode()


def read_ticket(body: str, *, stream: str) -> str:
    """Decode a ticket and return the message id; raises `InvalidArgument` unless it names a message of `stream`."""
    try:
        ticket = msgspec.json.decode(body, type=Ticket)
    except UNDECODABLE:
        raise InvalidArgument("body", f"{len(body)} characters", "is not the ticket of a job") from None
    if ticket.stream != stream:
        raise InvalidArgument("stream", ticket.stream[:80], f"is another deployment's; ours is {stream!r}")
    if not _is_id(ticket.message):
        raise InvalidArgument("message", ticket.message[:80], "is not the id of a message")
    return ticket.message


def _is_id(text: str) -> bool:
    parts = text.split("-")
    are_numbers = all(part.isascii() and part.isdigit() and len(part) <= 20 for part in parts)
    return len(parts) == 2 and are_numbers and all(int(part) < _LARGEST_PART for part in parts)


log = get_logger(__name__)

_WAIT_S = 300.0
_MOST_READ = 500
_FIRST_PAUSE = timedelta(milliseconds=100)
_LONGEST_PAUSE = timedelta(seconds=5)


class Forwarder:
    """Service that reads dispatched jobs and sends their tickets.

    Any number of processes can run one, without workers too.
    """

    def __init__(self, queue: Queue, passage: TicketedStream, owner: str) -> None:
        self._queue, self._passage, self._sender = queue, passage, passage.sender(owner)
        # A message that waits for SQS must be renewed before it counts as left behind.
        longest = min(_LONGEST_PAUSE, passage.stream.settings.idle_limit / 3)
        self._pauses = Backoff(first=min(_FIRST_PAUSE, longest), most=longest)
        self._read: list[str] = []
        """Ids of messages that were read and are not under the queue's name yet."""
        self._unsent: list[str] = []
        self._outage, self._unsendable = Outage("sqs.read"), Outage("sqs.send", pauses=self._pauses)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send tickets until told to stop, then give back the messages that are not sent."""
        try:
            await unless(stopping, self._forward_all())
        finally:
            self._read, self._unsent = [], []
            await self._sender.leave()

    async def _forward_all(self) -> None:
        while True:
            await self._outage.retry(self._forward_some)

    async def _forward_some(self) -> None:
        """Send one batch. After a failure, the next call continues with the same batch."""
        if not self._read:
            messages = await self._sender.read(_MOST_READ, within_s=_WAIT_S)
            self._read = self._unsent = [message.id for message in messages]
        await self._send_all()
        await self._passage.sent(self._sender, self._read)
        self._read = []

    async def _send_all(self) -> None:
        """Send all tickets of the batch, with growing pauses, however long it takes."""
        tries = 0
        while self._unsent:
            unsent = await send_tickets(self._queue, self._passage, self._unsent)
            left = unsent.names if unsent else []
            metrics.SQS_TICKETS.labels("sent").inc(len(self._unsent) - len(left))
            self._unsent = left
            if unsent is not None:
                tries += 1
                await self._unsendable.pause(unsent.error, tries)
                # Renews the ownership, and drops messages that another process has taken over.
                self._unsent = await self._passage.keep(self._sender, left)
        self._unsendable.over()


class OverdueTickets:
    """Source of due times for the leader: sends a new ticket for messages that no worker has taken for a long time."""

    def __init__(self, queue: Queue, passage: TicketedStream) -> None:
        self._queue, self._passage = queue, passage
        self._after = passage.stream.settings.idle_limit / 2
        """Shorter than the time after which a message counts as left behind, which would void all tickets in the
        queue."""
        self._outage = Outage("sqs.send_again")

    async def fire(self) -> int | None:
        """Send tickets for overdue messages; returns the ms until the next one can be overdue."""
        overdue = await self._passage.overdue(self._after)
        # Counted without a new ticket. Tickets are sent again when the count is a power of two, so the pauses double.
        await self._passage.mark_checked(overdue.waiting, counts=True)
        if overdue.lost:
            unsent = await send_tickets(self._queue, self._passage, overdue.lost)
            left = set(unsent.names if unsent else ())
            sent = [message for message in overdue.lost if message not in left]
            await self._passage.mark_checked(sent, counts=True)
            # Not sent: the count stays, so the next check tries again.
            await self._passage.mark_checked(left, counts=False)
            metrics.SQS_TICKETS.labels("sent_again").inc(len(sent))
            if sent:
                log.warning("sqs.tickets_sent_again", tickets=len(sent), unsent=len(left))
            if unsent is None:
                self._outage.over()
            else:
                self._outage.note(unsent.error)
        return overdue.next_in_ms


async def send_tickets(queue: Queue, passage: TicketedStream, ids: Iterable[str]) -> Unsent | None:
    """Send the tickets of these messages; returns those that may not have been sent, if any."""
    stream = str(passage.stream.keys.stream)
    return await queue.send({message: write_ticket(stream, message) for message in ids})


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
