"""Processes that are killed on the way to a ticket, and several that want the same seats."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from examples.ticketing import reservations
from examples.ticketing.bank import Card, charges
from examples.ticketing.shop import process_of

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.systems.snapshots.deployment import until
from tests.ticketing.buying_process import KEY, SEATS
from tests.ticketing.harness import TicketingHarness, harness_at
from tests.waiting import patience
from tidegate.core.clock import ManualClock, SystemClock
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clock() -> ManualClock:
    """As late as it is: the other processes have clocks of their own."""
    return ManualClock(SystemClock().now())


@asynccontextmanager
async def buyer(url: str, schedule: int, how_far: str, *users: str) -> AsyncGenerator[WarmProcess]:
    command = (sys.executable, "-m", "tests.ticketing.buying_process", url, str(schedule), how_far, *users)
    process = await start_warm(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def said(process: WarmProcess) -> str:
    assert process.stdout is not None
    async with patience():
        return (await process.stdout.readline()).decode().strip()


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.race
async def test_of_many_buyers_in_several_processes_one_gets_each_seat(
    harness_on_each_server: TicketingHarness, migrated_url: str
):
    sale = await harness_on_each_server.sale(seats=len(SEATS))
    crowds = [[f"{name}-{n}" for n in range(4)] for name in ("ada", "bob", "cem")]
    await harness_on_each_server.enter(sale, *(user for crowd in crowds for user in crowd))
    async with (
        buyer(migrated_url, sale, "rush", *crowds[0]) as one,
        buyer(migrated_url, sale, "rush", *crowds[1]) as two,
        buyer(migrated_url, sale, "rush", *crowds[2]) as three,
    ):
        processes = (one, two, three)
        assert [await said(each) for each in processes] == ["ready"] * 3
        for each in processes:
            assert each.stdin is not None
            each.stdin.write(b"go\n")
        got = [seat for each in processes for seat in msgspec.json.decode(await said(each), type=list[str])]

    assert sorted(got) == sorted(f"{seat} completed" for seat in SEATS)
    assert len(await harness_on_each_server.events()) == len(await harness_on_each_server.rows(charges)) == len(SEATS)
    assert set((await harness_on_each_server.seats(sale)).values()) == {"taken"}


@asynccontextmanager
async def after_the_death_of_one(
    how_far: str, folder: Path, valkey: Valkey, clock: ManualClock
) -> AsyncGenerator[tuple[TicketingHarness, int, str]]:
    """A purchase up to a step at which its process was killed; the shop, the evening, and the reservation."""
    url = await migrated_file(folder / "shop.db")
    async with harness_at(url, valkey, clock, folder) as harness:
        sale = await harness.sale()
        await harness.enter(sale, "ada", "bob")
        async with buyer(url, sale, how_far, "ada") as doomed:
            held = await said(doomed)
            doomed.kill()
            await doomed.wait()
        yield harness, sale, held


@pytest.mark.crash
async def test_a_hold_of_a_dead_process_expires(tmp_path: Path, embedded: Valkey, clock: ManualClock):
    async with after_the_death_of_one("reserve", tmp_path, embedded, clock) as (harness, sale, held):
        assert (await harness.seats(sale))["A1"] == "taken"
        mine = await harness.database.read(reservations.get, held)
        harness.clock.advance(mine.held_until - harness.clock.now() - timedelta(milliseconds=1))
        assert (await harness.keep())[0] == 1
        harness.clock.advance(timedelta(milliseconds=1))
        await harness.keep()

        assert (await harness.state(mine), (await harness.seats(sale))["A1"]) == ("expired", "free")


@pytest.mark.crash
@pytest.mark.parametrize(("how_far", "state", "sold"), [("begin", "held", 0), ("charge", "paid", 1)])
async def test_a_payment_of_a_dead_process_gets_the_state_of_the_bank(
    how_far: str, state: str, sold: int, tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with after_the_death_of_one(how_far, tmp_path, embedded, clock) as (harness, _, held):
        mine = await harness.database.read(reservations.get, held)
        harness.clock.advance(timedelta(minutes=2))
        await harness.keep()

        assert await harness.state(mine) == state
        assert len(await harness.events()) == sold


@pytest.mark.crash
async def test_a_payment_repeated_after_the_death_of_a_process_is_charged_once(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with after_the_death_of_one("charge", tmp_path, embedded, clock) as (harness, _, held):
        payment = await harness.shop.payment_service.pay(held, "ada", KEY, Card.GOOD)

        assert payment.state == "completed"
        assert len(await harness.rows(charges)) == len(await harness.events()) == 1


@pytest.mark.crash
async def test_a_payment_of_a_process_that_died_before_publishing_is_ranked(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with after_the_death_of_one("complete", tmp_path, embedded, clock) as (harness, _, _):
        process = process_of(harness.shop)
        running = asyncio.create_task(process.run())

        async def is_ranked() -> bool:
            return await harness.ranked() == [("1", 1)]

        await until(is_ranked)
        process.stop()
        assert (await running).is_clean
