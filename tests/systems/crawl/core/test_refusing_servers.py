"""Stored pages while Valkey or the database refuses writes."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder, migrated_on
from tests.servers.refusing import (
    lease_ended_ms_ago,
    lines_of_outage,
    noise,
    refusing,
    set_read_only,
    short_pauses,
)
from tests.servers.valkey import ValkeyServer
from tests.systems.crawl.core.harness import CrawlHarness
from tests.systems.crawl.core.test_wake_ups import until_applied
from tests.waiting import patience, until
from tidegate.connections import open_context
from tidegate.primitives.membership import MembershipKeys, MembershipSettings
from tidegate.primitives.wakeup import Wakeup
from tidegate.process import build_process
from tidegate.runtime.outbox_notifier import NotifiedRelay, OutboxNotifier
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.system import Context
from tidegate.systems.crawl.stages import STAGES, RawState, Stage
from tidegate.systems.crawl.writing import RAWS_STORED

LEASE = timedelta(seconds=1)
BRIEF = MembershipSettings(lease=LEASE, renew_every=LEASE / 4)

pytestmark = pytest.mark.usefixtures("logged")


def crawling(parts: Context, harness: CrawlHarness) -> Supervisor:
    """A process with the services that the crawl has for stored pages."""
    bell = Wakeup(parts.valkey, parts.unit.key("raws"))
    announcer = OutboxNotifier(parts.database, bell, leads_here=lambda: harness.processor.is_running, topic=RAWS_STORED)
    return build_process(
        parts,
        services={"raws-announcer": announcer},
        leader_services={"raws": NotifiedRelay(harness.processor, bell)},
        on_death=[harness.processor.notify],
    )


@pytest.mark.full  # tests/runtime/test_refusing_servers.py outlasts such a server too
async def test_pages_stored_while_valkey_refuses_are_applied_once_by_the_leader_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One of two processes applies the pages; the other one stores them, and its signal is refused."""
    waits = short_pauses(monkeypatch)
    with ValkeyServer() as server:
        settings = Settings(data_dir=await migrated_folder(tmp_path), valkey_url=server.url, membership=BRIEF)
        async with open_context(settings) as ours, open_context(settings) as theirs:
            stalls = [CrawlHarness(ours.database), CrawlHarness(theirs.database)]
            lease = str(MembershipKeys(ours.unit).membership)
            async with at_work(crawling(ours, stalls[0])), at_work(crawling(theirs, stalls[1])):
                run_id = await stalls[0].begin("p1", "p2")
                await stalls[0].answer(run_id, Stage.MINI_SHOP, "p1")
                await until_applied(stalls[0], 1)
                worker = next(each for each in stalls if not each.processor.is_running)
                with capture_logs() as lines:
                    with refusing(server):
                        await until(lambda: lease_ended_ms_ago(server, lease) > 2 * LEASE.total_seconds() * 1000)
                        await worker.answer(run_id, Stage.MINI_SHOP, "p2")
                        await until(lambda: waits.longest >= 10)
                    await until_applied(worker, 2)
                    await until(lambda: "server.back" in lines_of_outage(lines))
                raws = await worker.all_raws()

    assert [(raw.state, raw.attempts, raw.applied_as) for raw in raws] == [(RawState.PROCESSED, 0, 1)] * 2
    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_pages_are_applied_once_and_in_order_after_the_database_refused_writes(monkeypatch: pytest.MonkeyPatch):
    waits, stopping = short_pauses(monkeypatch), asyncio.Event()
    async with migrated_on("postgres") as (server, name), await Database.open(server.url(name)) as database:
        harness = CrawlHarness(database)
        run_id = await harness.begin("p1")
        for stage in STAGES:
            await harness.answer(run_id, stage, "p1")
        await set_read_only(server, name, "on")
        running = asyncio.create_task(harness.processor.run(stopping))
        with capture_logs() as lines:
            await until(lambda: waits.longest >= 10)
            await set_read_only(server, name, "off")
            await until_applied(harness, 1)
            await until(lambda: "server.back" in lines_of_outage(lines))
        stopping.set()
        await running
        raws = await harness.all_raws()

    assert [(raw.stage, raw.state, raw.attempts, raw.applied_as) for raw in raws] == [
        (stage, RawState.PROCESSED, 0, n) for n, stage in enumerate(STAGES, 1)
    ]
    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_a_processor_stops_while_the_database_refuses_and_leaves_its_pages_pending(
    monkeypatch: pytest.MonkeyPatch,
):
    waits, stopping = short_pauses(monkeypatch), asyncio.Event()
    async with migrated_on("postgres") as (server, name), await Database.open(server.url(name)) as database:
        harness = CrawlHarness(database)
        await harness.answer(await harness.begin("p1"), Stage.MINI_SHOP, "p1")
        await set_read_only(server, name, "on")
        running = asyncio.create_task(harness.processor.run(stopping))
        await until(lambda: waits.longest >= 2)
        stopping.set()
        async with patience():
            await running
        (raw,) = await harness.all_raws()

    assert (raw.state, raw.attempts) == (RawState.PENDING, 0)
