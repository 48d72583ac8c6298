"""Several processes count the same events, one is killed, the server forgets everything: the ranking is true."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.servers.migrated import migrated_file
from tests.systems.ranking.counting_process import everything
from tests.systems.ranking.harness import NOW, SEOUL, expected, standing
from tidegate.storage.valkey import Valkey
from tidegate.systems.ranking.model import RankingPeriod


async def started(url: str, valkey: Valkey, seed: int) -> WarmProcess:
    place = ("-m", "tests.systems.ranking.counting_process")
    return await start_warm(sys.executable, *place, url, valkey.url, str(seed), stdout=PIPE)


async def some_lines(process: WarmProcess, lines: int) -> None:
    assert process.stdout is not None
    for _ in range(lines):
        assert await process.stdout.readline(), "it ended too early"


@pytest.mark.race
@pytest.mark.crash
async def test_processes_that_count_the_same_events_have_the_same_ranking(embedded: Valkey, tmp_path: Path):
    url = await migrated_file(tmp_path / "tidegate.db")
    async with standing(url, embedded) as harness:
        processes = [await started(url, embedded, seed) for seed in range(3)]
        doomed = processes[0]
        await some_lines(doomed, 12)
        doomed.kill()
        await embedded.execute("FLUSHALL")
        keeping = asyncio.create_task(harness.keeper.fire())  # while the others go on
        ended = await asyncio.gather(*(process.communicate() for process in processes))
        await keeping

        assert [process.returncode for process in processes[1:]] == [0, 0]
        assert doomed.returncode == -9, "it was in the middle of it"
        assert all(out for out, _ in ended[1:])
        for period in RankingPeriod:
            assert await harness.shown(period) == expected(everything(), SEOUL, period, NOW)
        assert sum(score for _, score in await harness.shown(RankingPeriod.MONTHLY)) == len(everything())
