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
from tests.systems.campaigns.harness import CAMPAIGN
from tests.systems.campaigns.worker_harness import WorkerHarness, worker_harness_at
from tests.waiting import patience, simulated_delay
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.model import FIRST_COME, POINTS
from tidegate.systems.campaigns.scripts import process_keys

ROOT = Path(__file__).parents[2]
USERS = [f"user-{n:03}" for n in range(60)]


@asynccontextmanager
async def killed_process(url: str, valkey: Valkey, how_far: str, name: str = "doomed") -> AsyncGenerator[WarmProcess]:
    command = (sys.executable, "-m", "tests.systems.campaigns.killed_process", url, valkey.url, name, how_far)
    process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def opened(folder: Path, valkey: Valkey) -> AsyncGenerator[tuple[WorkerHarness, str]]:
    url = await migrated_file(folder / "works.db")
    async with worker_harness_at(url, valkey, idle_timeout_seconds=30) as workers:
        yield workers, url


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("step", ["take", "read", "decide", "commit"])
async def test_each_entry_is_decided_once_when_a_process_is_killed_at_any_step(
    step: str, tmp_path: Path, embedded: Valkey
):
    async with opened(tmp_path, embedded) as (workers, url):
        await workers.open(total=100, kind=POINTS, points=1)
        await workers.enter(*USERS[:30])
        async with killed_process(url, embedded, step) as process:
            assert process.stdout is not None
            async with patience():
                assert await process.stdout.readline() == b"reached\n"
        await workers.instance("living")
        await workers.enter(*USERS[30:])

        await workers.recoverable().take_over("doomed")
        await workers.until_decided(60)

        assert {outcome for outcome, _ in (await workers.rows()).values()} == {"issued"}
        assert [await workers.campaigns.points_of(user) for user in USERS] == [1] * 60
        book = await embedded.execute("HGETALL", workers.keys()["book"])
        assert (await workers.status()).campaign.issued == int(book[b"issued"]) == 60
        hand = process_keys(embedded, "doomed")
        assert await embedded.execute("EXISTS", hand["served"], hand["taken"]) == 0
        assert (await workers.status()).processes == ["living"]


@pytest.mark.crash
async def test_the_stock_is_issued_exactly_while_processes_are_killed_repeatedly(tmp_path: Path, embedded: Valkey):
    users = [f"user-{n}" for n in range(3000)]
    async with opened(tmp_path, embedded) as (workers, url):
        await workers.open(total=2000, kind=FIRST_COME)
        recoverable = workers.recoverable()
        crowd = asyncio.create_task(_come(workers, users))
        for n in range(4):
            async with (
                killed_process(url, embedded, "work", f"doomed-{n}"),
                killed_process(url, embedded, "work", f"fated-{n}"),
            ):
                await workers.until(partial(_has_decided, workers, min(len(await workers.rows()) + 100, 2000)))
            for name in (f"doomed-{n}", f"fated-{n}"):
                await recoverable.take_over(name)
        answers = await crowd
        await workers.instance("last")
        await workers.until_decided(2000)

        rows = await workers.rows()
        assert {outcome for outcome, _ in rows.values()} == {"issued"}
        assert sorted(number for _, number in rows.values()) == list(range(1, 2001))
        accepted = {user: answer[1] for user, answer in zip(users, answers, strict=True) if answer[0] == "ACCEPTED"}
        assert accepted == {user: number for user, (_, number) in rows.items()}
        assert {answer for answer, _ in answers} == {"ACCEPTED", "SOLD_OUT"}
        assert (await workers.status()).dead == 0


async def _come(workers: WorkerHarness, users: list[str]) -> list[tuple[str, int | None]]:
    answers: list[tuple[str, int | None]] = []
    for start in range(0, len(users), 50):
        crowd = [workers.campaigns.enter(CAMPAIGN, user) for user in users[start : start + 50]]
        answers += [(each.answer.value, each.number) for each in await asyncio.gather(*crowd)]
        await simulated_delay(0.02)
    return answers


async def _has_decided(workers: WorkerHarness, count: int) -> bool:
    return len(await workers.rows()) >= count
