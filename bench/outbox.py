"""From the commit of an event to its handler, at 500 events a second on SQLite."""

import asyncio
import tempfile
import time
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.runtime.delivery import Handler
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.migrate import migrate
from tidegate.storage.sql.outbox import Event

EVENTS, PER_S = 5_000, 500


async def measure() -> Section:
    committed: dict[str, float] = {}
    handled: dict[str, float] = {}

    async def handle(event: Event) -> None:
        handled[event.event_id] = time.perf_counter()

    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        async with await Database.open(f"sqlite:///{Path(folder) / 'bench.db'}") as database:
            await migrate(database)
            stopping = asyncio.Event()
            relay = Relay(database, [Handler("measured", "bench", handle)])
            relaying = asyncio.create_task(relay.run(stopping))
            await _commit_evenly(database, committed)
            while len(handled) < EVENTS:
                await asyncio.sleep(0.05)
            stopping.set()
            await relaying
    waits = sorted((handled[event] - at) * 1000 for event, at in committed.items())
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    figure = Figure("commit → handled", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", "p99 ≤ 50 ms", p99 <= 50)
    return Section("Outbox", [figure], f"{EVENTS:,} events, one transaction each, {PER_S}/s, on SQLite.")


async def _commit_evenly(database: Database, committed: dict[str, float]) -> None:
    """One transaction every 2 ms, whether or not those before are done."""
    began, pending = time.perf_counter(), list[asyncio.Task[None]]()
    for n in range(EVENTS):
        await asyncio.sleep(max(0.0, began + n / PER_S - time.perf_counter()))
        pending.append(asyncio.create_task(_commit(database, f"key-{n % 50}", committed)))
    await asyncio.gather(*pending)


async def _commit(database: Database, key: str, committed: dict[str, float]) -> None:
    event = Event("measured", key, {})
    await database.transaction(_add, event)
    committed[event.event_id] = time.perf_counter()


def _add(tx: Transaction, event: Event) -> None:
    outbox.add(tx, event)
