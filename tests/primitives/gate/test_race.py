"""Several processes offer the same jobs and settle them, all at once."""

import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import start_warm
from tidegate.core.ids import new_id
from tidegate.primitives.gate import Gate
from tidegate.primitives.stream import Stream
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[3]
PROCESSES, JOBS = 4, 400


@pytest.mark.race
async def test_processes_that_enqueue_and_settle_the_same_jobs_agree(embedded: Valkey):
    """Every job comes out; the books are level at the end; never more are out than the credential may have."""
    unit = embedded.unit(f"race-{new_id()}")
    processes = [
        await start_warm(
            *(sys.executable, "-m", "tests.primitives.gate.competing_process", embedded.url, unit.name, f"process-{n}"),
            *(str(JOBS), str(PROCESSES)),
            stdout=PIPE,
            cwd=ROOT,
        )
        for n in range(PROCESSES)
    ]
    told = [(await process.communicate())[0].decode().splitlines() for process in processes]

    assert [process.returncode for process in processes] == [0] * PROCESSES
    settled = [line.split() for lines in told for line in lines]
    assert sorted(job for job, _ in settled) == sorted(f"job-{n}" for n in range(JOBS))
    assert {was_new for _, was_new in settled} == {"1"}
    gate = Gate(
        embedded, unit, stream=Stream(embedded, unit, "jobs").keys.stream, group="workers", wake=unit.key("wake")
    )
    (credential,) = (await gate.status("pool")).credentials
    assert (credential.in_flight, credential.buckets[0].held, credential.buckets[0].lost) == (0, 0, 0)
    assert (await gate.shard_status()).waiting == 0
