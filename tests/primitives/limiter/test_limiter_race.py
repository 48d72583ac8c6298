"""Many processes at once, seen by an upstream that counts with a clock of its own."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.primitives.limiter.conftest import SECOND
from tests.primitives.limiter.exactness import call_at_full_speed
from tests.waiting import stopwatch
from tidegate.core.clock import SystemClock
from tidegate.core.errors import ValkeyUnavailable
from tidegate.core.ids import new_id
from tidegate.primitives.limiter import Limit, Limiter, LimiterKeys, LimiterSettings, Priority, Rate
from tidegate.storage.valkey import Unit, Valkey

HARD = LimiterSettings(rates=(Rate(name="sustained", per_second=450, burst=450),), guard=timedelta(milliseconds=250))
"""The bucket alone would let 900 through in its first second, so all depends on the window. The guard is wide because
this machine may keep eleven busy processes waiting for a core."""


@pytest.mark.race
async def test_eight_processes_with_wrong_clocks_never_exceed_the_limit_of_the_upstream(embedded: Valkey):
    unit = embedded.unit(new_id())
    await Limiter(embedded, unit, settings=HARD).status()  # its quiet time passes while the processes start

    observed = await call_at_full_speed(embedded.url, unit.name, HARD, processes=8, seconds=4)

    assert observed.windows_above(500) == 0, f"{observed.most_in_any_window()} calls within a second"
    assert observed.per_second >= 100, "they were busy"
    seconds, micros = await embedded.execute("TIME")
    limiter_ms = int(await embedded.execute("HGET", LimiterKeys(unit).state, "clock"))
    assert limiter_ms <= int(seconds) * 1000 + int(micros) // 1000, "no process's clock was taken for the server's"


@pytest.mark.smoke
@pytest.mark.race
async def test_concurrent_callers_share_one_limit(valkey: Valkey, unit: Unit):
    settings = LimiterSettings(
        limits=(Limit(name="x", permits=100, window=60 * SECOND),), rates=(), quiet_start=0 * SECOND
    )
    limiters = [Limiter(valkey, unit, SystemClock(), settings) for _ in range(40)]

    batches = await asyncio.gather(*[limiter.take(7, priority=Priority.HIGH) for limiter in limiters])

    assert sum(len(batch.grants) for batch in batches) == 100
    assert [len(batch.grants) for batch in batches if not batch.wait] == [7] * 14


@pytest.mark.race
async def test_a_busy_process_gets_its_permits_with_few_requests(embedded: Valkey, monkeypatch: pytest.MonkeyPatch):
    """How many permits a second it uses is for the benchmark: that depends on the machine."""
    questions = granted = 0
    ask = embedded.execute

    async def counted(*command: object) -> object:
        nonlocal questions
        questions += 1
        return await ask(*command)

    monkeypatch.setattr(embedded, "execute", counted)
    limiter = Limiter(embedded, embedded.unit(new_id()))
    await _acquired(limiter)
    questions, elapsed_s = 0, stopwatch()

    async def caller() -> None:
        nonlocal granted
        while elapsed_s() < 3:
            with suppress(ValkeyUnavailable):  # on a busy machine answers take longer than permits live
                (await limiter.acquire()).use()
                granted += 1

    await asyncio.gather(*[caller() for _ in range(200)])

    assert questions / elapsed_s() <= 20
    assert granted / questions >= 10


async def _acquired(limiter: Limiter) -> None:
    """Acquire once, however slow the machine is."""
    while True:
        with suppress(ValkeyUnavailable):
            await limiter.acquire()
            return
