"""One process of a deployment that works: `-m tests.whole.worker DATA_DIR PORT`.

Each job is one call to the upstream at PORT; its effect is one row, written once however often the job is run.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from tests.whole.upstream import call
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.gate import Admitted, Allowance, Outcome, Settlement, settlement
from tidegate.process import build_process
from tidegate.runtime.delivery import Handler
from tidegate.runtime.waiting import unless
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.system import Context


class Worker:
    """Calls, commits, settles."""

    def __init__(self, parts: Context, port: int) -> None:
        self._parts, self._port = parts, port

    async def run(self, stopping: asyncio.Event) -> None:
        print("working", flush=True)  # and heeding signals
        consumer = self._parts.jobs.consumer(self._parts.owner)
        while not stopping.is_set():
            messages = await unless(stopping, consumer.read(count=5, within_s=60)) or []
            admitted = [Admitted.from_fields(m.id, m.fields, m.deliveries) for m in messages]
            results = await asyncio.gather(*(self._work(one) for one in admitted))
            if results:
                await self._parts.gate.settle(results)
                consumer.settled(one.message for one in admitted)
        await consumer.leave()

    async def _work(self, admitted: Admitted) -> Settlement:
        said = await call(self._port, admitted.credential)
        await self._parts.database.transaction(apply, admitted.job)
        return settlement(admitted, Outcome.ANSWERED, allowance=Allowance(**said))


def apply(tx: Transaction, job: str) -> None:
    """The effect of a job and the news of it, once."""
    if outbox.once(tx, "worker", job):
        outbox.add(tx, Event("job.done", key=job, payload={}, event_id=f"done-{job}"))


class Recorder:
    """Handles the news of finished jobs, once each, by noting it in the database."""

    def __init__(self, parts: Context) -> None:
        self._parts = parts

    async def note(self, event: Event) -> None:
        await self._parts.database.transaction(outbox.once, "recorder", event.key)


async def main(data_dir: Path, port: int) -> None:
    async with open_context(Settings(data_dir=data_dir)) as parts:
        handlers = [Handler("job.done", "recorder", Recorder(parts).note)]
        await build_process(parts, handlers=handlers, services={"worker": Worker(parts, port)}).run(handle_signals=True)


if __name__ == "__main__":
    configure_logs(level="error")
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2])))
