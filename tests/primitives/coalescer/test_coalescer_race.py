"""Many at once, in one process and in several."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.primitives.coalescer.requesting_process import TASKS, stage
from tests.primitives.processes import output, started
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer, Published, Upgraded
from tidegate.storage.valkey import Valkey

CROWD = Path(__file__).with_name("requesting_process.py")


async def run_crowd(valkey: Valkey, part: str, *, starts: int, skews_ms: Sequence[int] = (0,) * 5) -> list[list[Any]]:
    """What each of several processes got; all begin at the same moment, as often as there are starts."""
    async with AsyncExitStack() as running:
        crowd = [await running.enter_async_context(started(CROWD, valkey.url, part, str(skew))) for skew in skews_ms]
        for start in range(starts):
            for _ in crowd:
                assert await valkey.execute_blocking("BLPOP", stage(valkey).key(f"ready-{start}"), 60, within_s=60)
            await valkey.execute("RPUSH", stage(valkey).key(f"go-{start}"), *range(len(crowd)))
        return [json.loads(lines[-1]) for lines in await asyncio.gather(*map(output, crowd))]


@pytest.mark.full
async def test_a_thousand_concurrent_requests_publish_once(valkey: Valkey):
    coalescer = Coalescer(valkey)
    outcomes = await asyncio.gather(*(coalescer.request("ada", Priority.LOW) for _ in range(1000)))
    kinds = Counter(type(outcome) for outcome in outcomes)
    assert kinds == {Published: 1, AlreadyProcessing: 999}
    assert len({outcome.version for outcome in outcomes}) == 1


async def test_one_of_many_concurrent_high_requests_takes_over_the_low_lock(valkey: Valkey):
    coalescer = Coalescer(valkey)
    await coalescer.request("ada", Priority.LOW)
    outcomes = await asyncio.gather(*(coalescer.request("ada", Priority.HIGH) for _ in range(200)))
    assert Counter(type(outcome) for outcome in outcomes) == {Upgraded: 1, AlreadyProcessing: 199}


async def test_one_of_many_concurrent_releases_succeeds(valkey: Valkey):
    coalescer = Coalescer(valkey)
    version = (await coalescer.request("ada", Priority.LOW)).version
    assert sum(await asyncio.gather(*(coalescer.release("ada", version) for _ in range(200)))) == 1


@pytest.mark.race
async def test_of_concurrent_processes_one_publishes_and_one_releases(embedded: Valkey):
    results = await run_crowd(embedded, "ask_then_release", starts=2)
    kinds = Counter(kind for outcomes, _ in results for kind in outcomes)
    assert kinds == {"Published": 1, "AlreadyProcessing": 5 * TASKS - 1}
    assert sum(sum(released) for _, released in results) == 1


@pytest.mark.race
async def test_across_processes_with_wrong_clocks_versions_neither_repeat_nor_decrease(embedded: Valkey):
    granted = await run_crowd(embedded, "take_turns", starts=1, skews_ms=[0, -2000, 2000, -1000, 1000])
    in_order = [int(version) for version in await embedded.execute("LRANGE", stage(embedded).key("versions"), 0, -1)]
    assert sorted(version for versions in granted for version in versions) == in_order
    assert len(set(in_order)) == len(in_order)
