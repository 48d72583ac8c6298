"""Several processes at one paced host, one of which is killed with a permit in its hand."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from itertools import pairwise
from pathlib import Path

import pytest

from tests.primitives.gate.harness import GROUP, jobs
from tests.primitives.gate.test_pace import HOST, IDENTITY
from tests.processes import WarmProcess, start_warm
from tidegate.core.ids import new_id
from tidegate.primitives.gate import Gate
from tidegate.primitives.stream import Stream
from tidegate.primitives.wakeup import Wakeup
from tidegate.runtime.timekeeper import Timekeeper
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[3]
PROCESSES, JOBS, GAP_MS = 3, 25, 20


async def start_competing_process(valkey: Valkey, unit_name: str, owner: str, what: str) -> WarmProcess:
    command = (
        sys.executable,
        "-m",
        "tests.primitives.gate.paced_process",
        valkey.url,
        unit_name,
        owner,
        str(JOBS),
        what,
    )
    return await start_warm(*command, stdout=PIPE, cwd=ROOT)


@pytest.mark.race
@pytest.mark.crash
async def test_a_paced_host_gets_one_call_at_a_time_from_all_processes_although_some_die(embedded: Valkey):
    unit = embedded.unit(f"paced-{new_id()}")
    stream = Stream(embedded, unit, "jobs")
    gate = Gate(embedded, unit, stream=stream.keys.stream, group=GROUP, wake=unit.key("wake"))
    for n in range(PROCESSES):
        await gate.register(f"crawl:{n}", pool="octocat", limits=IDENTITY)
    await gate.pace("octocat", HOST, gap_ms=GAP_MS)
    await gate.enqueue(jobs(JOBS, bucket=HOST))
    stopping = asyncio.Event()
    keeping = asyncio.create_task(Timekeeper(Wakeup(embedded, unit.key("wake")), [gate]).run(stopping))
    victim = await start_competing_process(embedded, unit.name, "victim", "hang")
    assert victim.stdout is not None
    assert (await victim.stdout.readline()).startswith(b"holding")
    workers = [await start_competing_process(embedded, unit.name, f"worker-{n}", "work") for n in range(PROCESSES)]
    victim.kill()
    await victim.wait()
    assert await embedded.execute("LLEN", unit.key("calls")) == 0, "its call may be under way, for all anybody knows"

    assert await stream.take_over("victim") == 1

    await asyncio.gather(*(worker.communicate() for worker in workers))
    stopping.set()
    await keeping
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    calls = [list(map(int, line.split())) for line in await embedded.execute("LRANGE", unit.key("calls"), 0, -1)]
    calls.sort()
    assert len(calls) == JOBS
    assert {under_way for _, _, under_way in calls} == {1}
    pauses_us = [after[0] - before[1] for before, after in pairwise(calls)]
    # The server's clock is read in whole milliseconds.
    assert min(pauses_us) > (GAP_MS - 1) * 1000
