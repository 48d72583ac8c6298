"""A whole process while a server refuses for longer than a lease: few lines, no tracebacks, and work that resumes."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select
from structlog.testing import capture_logs

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder, migrated_on
from tests.servers.refusing import Waits, lease_ended_ms_ago, lines_of_outage, noise, refusing, set_read_only
from tests.servers.valkey import ValkeyServer
from tests.waiting import look_again, until
from tests.waiting import patience as enough_time
from tidegate.connections import open_context
from tidegate.core.errors import Unavailable
from tidegate.primitives.membership import MembershipKeys, MembershipSettings
from tidegate.process import build_process
from tidegate.runtime import delivery, outage
from tidegate.runtime.delivery import Handler
from tidegate.runtime.relay import Relay
from tidegate.runtime.waiting import end
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction, outbox
from tidegate.storage.sql.outbox import Event, outbox_events
from tidegate.system import Context

LEASE = timedelta(seconds=1)
EVENT = Event(kind="x", key="k", payload={})
BRIEF = MembershipSettings(lease=LEASE, renew_every=LEASE / 4)

pytestmark = pytest.mark.usefixtures("logged")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    short = Waits()
    monkeypatch.setattr(outage, "OUTAGE_PAUSES", short)
    return short


async def promoted(parts: Context, timer: str) -> None:
    """Wait until a timer that is scheduled now has come due: the leader works."""
    await parts.timers.schedule(timer, timedelta(milliseconds=1))
    async with enough_time():
        while not [m for m in await parts.alarms.consumer("test").read(10, 1) if m.fields[b"timer"] == timer.encode()]:
            pass


@pytest.mark.usefixtures("waits")
async def test_a_process_survives_a_valkey_that_refuses_for_longer_than_its_lease(tmp_path: Path):
    """Heartbeat, leadership, timekeeper, recoverer, relay and announcer."""
    handled: list[Event] = []

    async def handle(event: Event) -> None:
        handled.append(event)

    with ValkeyServer() as server:
        settings = Settings(data_dir=await migrated_folder(tmp_path), valkey_url=server.url, membership=BRIEF)
        async with open_context(settings) as parts:
            lease = str(MembershipKeys(parts.unit).membership)
            async with at_work(build_process(parts, handlers=[Handler("x", "handler", handle)])):
                await promoted(parts, "before")
                with capture_logs() as lines:
                    with refusing(server):
                        await parts.database.transaction(lambda tx: outbox.add(tx, EVENT))
                        await until(lambda: lease_ended_ms_ago(server, lease) > 2 * LEASE.total_seconds() * 1000)
                    await promoted(parts, "after")
                    await until(lambda: handled)
                    await until(lambda: "server.back" in lines_of_outage(lines))

    assert len(handled) == 1
    # `refusing` also breaks the connections, so the first line may be `server.away`.
    assert lines_of_outage(lines)[-2:] == ["server.refused", "server.back"]
    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_the_relay_survives_a_database_that_refuses_the_outcomes_of_events(waits: Waits):
    called, released = asyncio.Event(), asyncio.Event()
    times = 0

    async def handle(_event: Event) -> None:
        nonlocal times
        times += 1
        called.set()
        await released.wait()

    async with migrated_on("postgres") as (server, name), await Database.open(server.url(name)) as database:
        relay, stopping = Relay(database, [Handler("x", "handler", handle)]), asyncio.Event()
        running = asyncio.create_task(relay.run(stopping))
        try:
            await database.transaction(lambda tx: outbox.add(tx, EVENT))
            async with enough_time():
                await called.wait()
            with capture_logs() as lines:
                await set_read_only(server, name, "on")
                released.set()
                await until(lambda: waits.longest >= 8)
                await set_read_only(server, name, "off")
                async with enough_time():
                    while (await database.read(outbox.depth)).pending:
                        await look_again()
            stopping.set()
            await running
        finally:
            await end(running)

    assert times == 1, "the event was handled once"
    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_a_handler_that_meets_an_outage_is_retried_soon_without_a_counted_attempt(tmp_path: Path, waits: Waits):
    calls = 0

    async def handle(_event: Event) -> None:
        nonlocal calls
        calls += 1
        if calls <= 10:
            raise Unavailable("the documents are away", server="documents")

    settings = Settings(data_dir=await migrated_folder(tmp_path))
    async with await Database.open(settings.effective_database_url) as database:
        relay, stopping = Relay(database, [Handler("x", "handler", handle)], max_attempts=2), asyncio.Event()
        running = asyncio.create_task(relay.run(stopping))
        try:
            with capture_logs() as lines:
                await database.transaction(lambda tx: outbox.add(tx, EVENT))
                await until(lambda: calls == 11)
            stopping.set()
            await running
        finally:
            await end(running)

    assert waits.longest == 10
    assert lines_of_outage(lines) in (["server.away"], ["server.away", "server.back"])
    assert [line["event"] for line in lines if line["event"].startswith("outbox.")] in ([], ["outbox.delivered"])


@pytest.mark.parametrize("earlier_failures", [0, 1])
async def test_an_event_is_delivered_after_an_outage_that_is_longer_than_its_handler_is_retried(
    earlier_failures: int, tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
):
    """The event is postponed without counting an attempt, and delivered when its time comes."""
    monkeypatch.setattr(delivery, "_OUTLAST_S", 0.05)
    monkeypatch.setattr(delivery, "OUTAGE_PAUSES", waits)
    failures = [ValueError("a failure of its own")] * earlier_failures
    is_away, handled = True, asyncio.Event()

    async def handle(_event: Event) -> None:
        if failures:
            raise failures.pop()
        if is_away:
            raise Unavailable("no answer in time", server="a shop")
        handled.set()

    def postponed(tx: Transaction) -> list[int]:
        """The attempts of the event, once it is postponed because of the outage."""
        row = outbox_events.c
        return list(tx.execute(select(row.attempts).where(row.last_error.contains("no answer in time"))).scalars())

    settings = Settings(data_dir=await migrated_folder(tmp_path))
    async with await Database.open(settings.effective_database_url) as database:
        relay = Relay(database, [Handler("x", "handler", handle)], max_attempts=3, backoff=Waits())
        stopping = asyncio.Event()
        running = asyncio.create_task(relay.run(stopping))
        try:
            with capture_logs() as lines:
                await database.transaction(lambda tx: outbox.add(tx, EVENT))
                async with enough_time():
                    while await database.read(postponed) != [earlier_failures]:
                        await look_again()
                is_away = False
                async with enough_time():
                    await handled.wait()
                    while (await database.read(outbox.depth)).pending:
                        await look_again()
            stopping.set()
            await running
        finally:
            await end(running)

    assert "outbox.settle_failed" not in [line["event"] for line in lines]


async def test_an_event_that_alone_meets_outages_becomes_a_dead_letter_and_its_key_continues(
    tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch
):
    """The handler is served for other events all the time, so the failure is about this event."""
    monkeypatch.setattr(delivery, "_OUTLAST_S", 0.3)
    monkeypatch.setattr(delivery, "OUTAGE_PAUSES", waits)
    handled: list[object] = []

    async def handle(event: Event) -> None:
        if event.payload == "bad":
            raise Unavailable("no answer in time", server="a shop")
        handled.append(event.payload)

    def add(tx: Transaction, key: str, payload: object) -> None:
        outbox.add(tx, Event(kind="x", key=key, payload=payload))

    settings = Settings(data_dir=await migrated_folder(tmp_path))
    async with await Database.open(settings.effective_database_url) as database:
        relay = Relay(database, [Handler("x", "handler", handle)], max_attempts=3, backoff=Waits())
        stopping = asyncio.Event()
        running = asyncio.create_task(relay.run(stopping))
        try:
            await database.transaction(add, "a", "bad")
            await database.transaction(add, "a", "behind it")
            async with enough_time():
                while "behind it" not in handled:
                    await database.transaction(add, "b", "other")
                    await look_again()
            (dead,) = await database.read(outbox.dead_letters)
            stopping.set()
            await running
        finally:
            await end(running)

    assert (dead.attempts, dead.last_error) == (
        3,
        "handler: StepKeepsFailing: Unavailable: no answer in time, while others were served",
    )
