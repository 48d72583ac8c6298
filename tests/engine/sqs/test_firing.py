"""From a message on SQS to a run, through everything that lies between."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfUpstream
from tests.servers.migrated import migrated_file
from tests.servers.sqs import SqsServer
from tests.waiting import look_again, patience
from tidegate.connections import build_context
from tidegate.engine.schedules.due import Triggers
from tidegate.engine.schedules.store import Schedules
from tidegate.engine.source import Subject
from tidegate.engine.sqs.inbox import TriggerInbox
from tidegate.engine.sqs.queue import Queue
from tidegate.engine.tables import collection_runs
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey


@pytest.fixture
async def library(embedded: Valkey, tmp_path: Path) -> AsyncGenerator[Library]:
    async with await Database.open(await migrated_file(tmp_path / "local.db")) as database:
        yield Library(build_context(Settings(), embedded, database), ShelfUpstream({"ada-novels": 3}))


def schedules_of(library: Library) -> Schedules:
    async def pool_for(source: str, user_id: str) -> str:
        return POOL

    parts, sources = library.parts, {"shelves": library.source}
    triggers = Triggers(parts.database, sources, pool_for=pool_for, orchestrator=library.orchestrator)
    return Schedules(parts.database, sources, parts.timers.wakeup, triggers.fire)


def count_runs(tx: Transaction) -> int:
    return tx.execute(select(func.count()).select_from(collection_runs)).scalar_one()


async def test_an_event_received_repeatedly_by_several_processes_starts_one_run(
    library: Library, queue: Queue, sqs: SqsServer, url: str
):
    schedules = schedules_of(library)
    [active, paused] = await schedules.add(
        "shelves", [Subject(user_id=name, login=name) for name in ("ada", "bob")], cron="0 3 * * *"
    )
    await schedules.pause(paused.id)
    event = json.dumps({"id": "event-1", "detail-type": "clock", "detail": {"schedule": active.id}})
    sqs.put(url, *[event] * 5, json.dumps({"schedule": paused.id, "key": "k"}), json.dumps({"schedule": 404}))

    stopping = asyncio.Event()
    inboxes = [asyncio.create_task(TriggerInbox(queue, schedules.trigger).run(stopping)) for _ in range(3)]
    async with library.working(), patience():
        while sqs.held(url) != (0, 0):
            await look_again()
        run = await library.until(1)
    stopping.set()
    await asyncio.gather(*inboxes)

    assert await library.parts.database.read(count_runs) == 1
    assert run.succeeded_jobs == 3
    firing = await schedules.trigger(active.id, "event-1")
    assert (firing.run_id, firing.outcome) == (run.id, "begun")
