"""Processes that are killed, wherever they are: what they held goes to others, and everything happens once."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.systems.campaigns.shop import CAMPAIGN
from tests.systems.campaigns.working import Works, works_at
from tests.waiting import patience, simulated_delay
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.model import FIRST_COME, POINTS
from tidegate.systems.campaigns.scripts import process_keys

ROOT = Path(__file__).parents[2]
USERS = [f"user-{n:03}" for n in range(60)]


@asynccontextmanager
async def doomed(url: str, valkey: Valkey, how_far: str, name: str = "doomed") -> AsyncGenerator[WarmProcess]:
    command = (sys.executable, "-m", "tests.systems.campaigns.doomed", url, valkey.url, name, how_far)
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def opened(folder: Path, valkey: Valkey) -> AsyncGenerator[tuple[Works, str]]:
    url = await migrated_file(folder / "works.db")
    async with works_at(url, valkey, idle_timeout_seconds=30) as works:
        yield works, url


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("step", ["take", "read", "decide", "commit"])
async def test_each_entry_is_decided_once_when_a_process_is_killed_at_any_step(
    step: str, tmp_path: Path, embedded: Valkey
):
    async with opened(tmp_path, embedded) as (works, url):
        await works.open(total=100, kind=POINTS, points=1)
        await works.enter(*USERS[:30])
        async with doomed(url, embedded, step) as process:
            assert process.stdout is not None
            async with patience():
                assert await process.stdout.readline() == b"reached\n"
        await works.instance("living")
        await works.enter(*USERS[30:])

        await works.recoverable().take_over("doomed")
        await works.until_decided(60)

        assert {outcome for outcome, _ in (await works.rows()).values()} == {"issued"}
        assert [await works.campaigns.points_of(user) for user in USERS] == [1] * 60
        book = await embedded.execute("HGETALL", works.keys()["book"])
        assert (await works.status()).campaign.issued == int(book[b"issued"]) == 60
        hand = process_keys(embedded, "doomed")
        assert await embedded.execute("EXISTS", hand["served"], hand["taken"]) == 0
        assert (await works.status()).processes == ["living"]


@pytest.mark.crash
async def test_the_stock_is_issued_exactly_while_processes_are_killed_repeatedly(tmp_path: Path, embedded: Valkey):
    users = [f"user-{n}" for n in range(3000)]
    async with opened(tmp_path, embedded) as (works, url):
        await works.open(total=2000, kind=FIRST_COME)
        recoverable = works.recoverable()
        crowd = asyncio.create_task(_come(works, users))
        for n in range(4):
            async with doomed(url, embedded, "work", f"doomed-{n}"), doomed(url, embedded, "work", f"fated-{n}"):
                await works.until(partial(_has_decided, works, min(len(await works.rows()) + 100, 2000)))
            for name in (f"doomed-{n}", f"fated-{n}"):
                await recoverable.take_over(name)
        answers = await crowd
        await works.instance("last")
        await works.until_decided(2000)

        rows = await works.rows()
        assert {outcome for outcome, _ in rows.values()} == {"issued"}
        assert sorted(number for _, number in rows.values()) == list(range(1, 2001))
        accepted = {user: answer[1] for user, answer in zip(users, answers, strict=True) if answer[0] == "ACCEPTED"}
        assert accepted == {user: number for user, (_, number) in rows.items()}
        assert {answer for answer, _ in answers} == {"ACCEPTED", "SOLD_OUT"}
        assert (await works.status()).dead == 0


async def _come(works: Works, users: list[str]) -> list[tuple[str, int | None]]:
    answers: list[tuple[str, int | None]] = []
    for start in range(0, len(users), 50):
        crowd = [works.campaigns.enter(CAMPAIGN, user) for user in users[start : start + 50]]
        answers += [(each.answer.value, each.number) for each in await asyncio.gather(*crowd)]
        await simulated_delay(0.02)
    return answers


async def _has_decided(works: Works, count: int) -> bool:
    return len(await works.rows()) >= count
