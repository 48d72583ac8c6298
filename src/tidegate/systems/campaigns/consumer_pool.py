"""Runs the consumers of one campaign in one process, from the first entry until the campaign is idle.

One reader reads entries from the stream into a bounded queue. Consumers take batches from the queue and pass them to
the `Decider`. A campaign uses one connection in each process that serves it, and none while it is idle.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream import Message
from tidegate.runtime.waiting import end, unless
from tidegate.systems.campaigns.decider import ConsumerContext, Decider, PendingEntry
from tidegate.systems.campaigns.model import CampaignEntry

log = get_logger(__name__)
Retire = Callable[["ConsumerPool"], Awaitable[float | None]]
"""Leaves the campaign if it is idle; else returns after how many seconds without a message to ask again."""
_AHEAD = 2
"""Other processes are woken when more entries wait than this many times what the pool may hold."""
_BACKLOG_FACTOR = 4
"""Other processes are woken when the line is longer than this many times what the pool may hold."""
_MOST_RESTING = 1000
"""How many entries may wait for a retry without reducing how many others are read."""
_LONGEST_READ_S = 300.0
_FINISH_WITHIN_S = 3.0
_decoder = msgspec.json.Decoder(CampaignEntry)


class ConsumerPool:
    """Decides the entries of one campaign until it is idle or `stop` is called."""

    def __init__(self, context: ConsumerContext, campaign: str, total_count: int, retire: Retire) -> None:
        self.campaign, self.consumers = campaign, context.settings.consumers_for(total_count)
        self._retire, self._settings, self._outages = retire, context.settings, context.outages
        self._consumer = context.stream(campaign).consumer(context.owner)
        # Held messages are bounded: a process that dies holds them until its lease ends.
        self._most = min(self.consumers * self._settings.batch_size * _AHEAD, 1000)
        self._queue: deque[PendingEntry] = deque()
        self._more, self._room, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._crash: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._decider = Decider(
            context,
            campaign,
            self._consumer,
            backlog_limit=self._most * _BACKLOG_FACTOR,
            on_room=self._room.set,
            on_crash=self._crashed,
        )

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called, or an unexpected error occurred."""
        return self._stopping.is_set()

    @property
    def in_hand(self) -> int:
        """Number of messages that were read and are not settled yet."""
        return len(self._consumer.held)

    @property
    def decided(self) -> int:
        """Number of entries that this pool decided."""
        return self._decider.decided

    def is_run_by(self, task: asyncio.Task[object] | None) -> bool:
        """Whether `task` belongs to this pool; such a task must not wait for the pool to end."""
        return task in self._tasks or task in self._decider.tasks

    def stop(self) -> None:
        """Finish entries in progress and start no others. Returns at once; repeating it has no effect."""
        self._stopping.set()

    async def run(self) -> None:
        """Decide entries until `retire` has left the campaign or `stop` is called; then call `return_messages`.

        Raises the unexpected error that ended a task of the pool.
        """
        consumers = [asyncio.create_task(self._consume(), name="consumer") for _ in range(self.consumers)]
        self._tasks.update(consumers)
        try:
            # Ends when the campaign is idle, or at `stop`.
            await unless(self._stopping, self._read_all())
            await self._finish()
        finally:
            await end(*consumers)
            await self._decider.close()
        if self._crash is not None:
            raise self._crash

    async def return_messages(self) -> None:
        """Make messages that were read and not settled available to other consumers."""
        await self._consumer.leave()

    async def _finish(self) -> None:
        # Entries that were not begun are given back with the other held messages; other processes decide them.
        self._queue.clear()
        try:
            async with asyncio.timeout(_FINISH_WITHIN_S):
                await self._decider.finish()
        except TimeoutError:
            log.warning("campaign.work_abandoned", campaign=self.campaign, in_hand=self.in_hand)

    async def _read_all(self) -> None:
        """Read messages until `retire` has left the campaign."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        quiet_s: float | None = self._settings.idle_timeout_seconds
        while quiet_s is not None:
            messages = await self._read(quiet_s)
            if messages:
                await self._take(messages)
                quiet_s = self._settings.idle_timeout_seconds
            else:
                quiet_s = await self._outages.leaving.retry(lambda: self._retire(self))

    async def _read(self, within_s: float) -> Sequence[Message]:
        # Entries that wait for a retry are still held. They do not count, up to a limit: a few bad entries must not
        # stop the reader.
        while (room := self._most - self.in_hand + min(self._decider.resting, _MOST_RESTING)) <= 0:
            self._room.clear()
            await self._room.wait()
        within_s = min(within_s, _LONGEST_READ_S)
        return await self._outages.reading.retry(lambda: self._consumer.read(room, within_s))

    async def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            payload = message.fields.get(b"payload")
            try:
                if payload is None:
                    await self._fail(message, "the message has no payload")
                else:
                    self._queue.append(PendingEntry(message.id, message.deliveries, _decoder.decode(payload)))
            except UNDECODABLE as error:
                await self._fail(message, f"the payload does not parse: {error}")
        self._more.set()

    async def _fail(self, message: Message, reason: str) -> None:
        await self._outages.settling.retry(lambda: self._consumer.fail(message, reason))

    async def _consume(self) -> None:
        while True:
            while not self._queue:
                # No await between the check and `clear`, so no signal is lost.
                self._more.clear()
                await self._more.wait()
            count = min(len(self._queue), self._settings.batch_size)
            await self._decider.decide([self._queue.popleft() for _ in range(count)])

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
        self._stopping.set()
