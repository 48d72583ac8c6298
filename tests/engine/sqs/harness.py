"""A deployment whose jobs reach their workers by SQS: one process of it, in this very process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfUpstream
from tests.processes.at_work import at_work
from tests.waiting import look_again, patience
from tidegate.engine.sqs.forwarder import Forwarder, OverdueTickets, QueueIntake
from tidegate.engine.sqs.queue import Queue
from tidegate.primitives.stream import TicketedStream
from tidegate.process import build_process
from tidegate.storage.valkey import Valkey
from tidegate.system import Context

_GROW_OLD = """
local ids = {}
for n, item in ipairs(redis.call('XPENDING', KEYS[1], 'workers', '-', '+', 1000)) do
  redis.call('XCLAIM', KEYS[1], 'workers', item[2], 0, item[1], 'IDLE', ARGV[1], 'JUSTID')
  ids[n] = item[1]
end
return ids
"""


class SqsHarness(Library):
    """Its parts stand side by side, so that tests can have some of them without the others."""

    def __init__(self, parts: Context, upstream: ShelfUpstream, queue: Queue) -> None:
        self.passage = TicketedStream(parts.valkey, parts.jobs)
        self.intake = QueueIntake(queue, self.passage, parts.owner)
        self.forwarder = Forwarder(queue, self.passage, parts.owner)
        self.overdue_tickets = OverdueTickets(queue, self.passage)
        super().__init__(parts, upstream, intake=self.intake)

    @asynccontextmanager
    async def running(self, *, works: bool = True, forwards: bool = True) -> AsyncGenerator[None]:
        """As a process that has workers, a forwarder, or both."""
        collector = self.collector
        process = build_process(
            self.parts,
            handlers=collector.handlers,
            services={**(collector.services if works else {}), **({"forwarder": self.forwarder} if forwards else {})},
            sources=[self.overdue_tickets],
            leader_services={"recovery": collector.recovery_service},
            on_death=[collector.recovery_service.notify],
        )
        async with at_work(process):
            yield

    async def names(self) -> dict[str, int]:
        """In whose names messages stand: `worker`, `sender` and `onward`, and how many are read by nobody."""
        status = await self.parts.jobs.status()
        kinds = {"onward": 0, "sender": 0, "worker": 0, "nobody": status.lag}
        for each in status.consumers:
            kinds["onward" if each.name == "onward" else "sender" if "/" in each.name else "worker"] += each.pending
        return {kind: count for kind, count in kinds.items() if count}

    async def until_names(self, **wanted: int) -> None:
        async with patience():
            while await self.names() != wanted:
                await look_again()

    async def grow_old(self, valkey: Valkey, minutes: float) -> list[str]:
        """Let the server believe that everything has stood in its name for so long."""
        key = self.parts.jobs.keys.stream
        return [found.decode() for found in await valkey.execute("EVAL", _GROW_OLD, 1, key, round(minutes * 60_000))]

    async def oldest_ms(self, valkey: Valkey) -> int:
        """How long something has stood in one name; 0 where nothing does, since it is on its way to another."""
        idle = "local held = redis.call('XPENDING', KEYS[1], 'workers', '-', '+', 1)[1]; return held and held[3] or 0"
        return await valkey.execute("EVAL", idle, 1, self.parts.jobs.keys.stream)

    async def calls_out(self) -> int:
        """Permits that have not ended."""
        status = await self.parts.gate.status(POOL)
        return sum(credential.in_flight for credential in status.credentials)

    async def calls_lost(self) -> int:
        """Calls that the gate counts as made although nobody knows."""
        status = await self.parts.gate.status(POOL)
        return sum(bucket.lost for credential in status.credentials for bucket in credential.buckets)
