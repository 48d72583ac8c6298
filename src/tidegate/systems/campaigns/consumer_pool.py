"""The consumers of one campaign in one process: they come with the first message and go when it has been quiet.

One reader takes messages from the stream, at most as many as the consumers have time for; each consumer takes a batch
after the other and has it decided. So a campaign costs one connection for each process that serves it, however many
consumers it has, and nothing where nobody does.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tidegate.core.errors import UNDECODABLE
from tidegate.core.telemetry.logs import get_logger
from tidegate.primitives.stream import Message
from tidegate.runtime.waiting import end, unless
from tidegate.systems.campaigns.campaign import Entry
from tidegate.systems.campaigns.consumer_context import ConsumerContext
from tidegate.systems.campaigns.deciding import Decider, Task

log = get_logger(__name__)

Retire = Callable[["ConsumerPool"], Awaitable[float | None]]
"""Leave the campaign if it has been quiet; else after how many seconds without a message to ask again."""

_AHEAD = 2
"""Batches for each consumer: one that is being decided, and the next."""
_CROWD = 4
"""A line this many times as long as what a consumer pool has in hand is too long for it."""
_MOST_RESTING = 1000
"""Entries that failed and rest are held beside those that are worked on, up to this many."""
_LONGEST_READ_S = 300.0
_FINISH_WITHIN_S = 3.0
_decoder = msgspec.json.Decoder(Entry)


class ConsumerPool:
    """Serves one campaign until it has been quiet, or until told to stop."""

    def __init__(self, context: ConsumerContext, campaign: str, total_count: int, retire: Retire) -> None:
        self.campaign, self.consumers = campaign, context.settings.consumers_for(total_count)
        self._retire, self._settings, self._outages = retire, context.settings, context.outages
        self._consumer = context.stream(campaign).consumer(context.owner)
        self._most = min(self.consumers * self._settings.batch_size * _AHEAD, 1000)
        self._queue: deque[Task] = deque()
        self._more, self._room, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._crash: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._decider = Decider(
            context,
            campaign,
            self._consumer,
            crowd=self._most * _CROWD,
            on_room=self._room.set,
            on_crash=self._crashed,
        )

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to."""
        return self._stopping.is_set()

    @property
    def in_hand(self) -> int:
        """Messages that were read, and of which nothing became yet."""
        return len(self._consumer.held)

    @property
    def decided(self) -> int:
        """Entries that were decided here."""
        return self._decider.decided

    def is_run_by(self, task: asyncio.Task[object] | None) -> bool:
        """Whether this is one of the tasks that end with the pool: who waits for its end in one waits for himself."""
        return task in self._tasks or task in self._decider.tasks

    def stop(self) -> None:
        """Finish what is begun, and begin nothing. Returns at once; twice is harmless."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until it has been quiet and `retire` left, or until told to stop; then `give_back` is still to be done.

        Raises what only a defect can cause.
        """
        consumers = [asyncio.create_task(self._consume(), name="consumer") for _ in range(self.consumers)]
        self._tasks.update(consumers)
        try:
            await unless(self._stopping, self._read_all())
            await self._finish()
        finally:
            await end(*consumers)
            await self._decider.close()
        if self._crash is not None:
            raise self._crash

    async def give_back(self) -> None:
        """What was read and not done goes to others, as if it had never been read."""
        await self._consumer.leave()

    async def _finish(self) -> None:
        self._queue.clear()
        try:
            async with asyncio.timeout(_FINISH_WITHIN_S):
                await self._decider.finish()
        except TimeoutError:
            log.warning("campaign.work_abandoned", campaign=self.campaign, in_hand=self.in_hand)

    async def _read_all(self) -> None:
        """Until it has been quiet for long enough."""
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
                    await self._bury(message, "the message has no payload")
                else:
                    self._queue.append(Task(message.id, message.deliveries, _decoder.decode(payload)))
            except UNDECODABLE as error:
                await self._bury(message, f"the payload does not parse: {error}")
        self._more.set()

    async def _bury(self, message: Message, reason: str) -> None:
        await self._outages.settling.retry(lambda: self._consumer.fail(message, reason))

    async def _consume(self) -> None:
        while True:
            while not self._queue:
                self._more.clear()
                await self._more.wait()
            count = min(len(self._queue), self._settings.batch_size)
            await self._decider.decide([self._queue.popleft() for _ in range(count)])

    def _crashed(self, error: BaseException) -> None:
        self._crash = error
        self._stopping.set()
