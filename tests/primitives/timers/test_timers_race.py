import asyncio
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.primitives.timers.test_timers import messages, promoted
from tests.primitives.timers.timer_process import EACH, timers_of
from tests.processes import WarmProcess, start_warm
from tests.waiting import patience
from tidegate.core.clock import SystemClock
from tidegate.primitives.timers import Timer
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[3]


async def start(valkey: Valkey, role: str, number: int) -> WarmProcess:
    command = (sys.executable, "-m", "tests.primitives.timers.timer_process", valkey.url, role, str(number))
    return await start_warm(*command, stdout=PIPE, cwd=ROOT)


@pytest.mark.race
async def test_each_timer_set_by_any_process_is_promoted_once_by_any_other(embedded: Valkey):
    timers = timers_of(embedded)
    firing = [await start(embedded, "fire", n) for n in range(2)]
    setting = [await start(embedded, "schedule", n) for n in range(3)]
    try:
        printed = [(await process.communicate())[0].decode().split() for process in setting]
        async with patience():
            while (await timers.status()).count:
                pass
    finally:
        for process in firing:
            process.kill()
            await process.wait()
    assert [process.returncode for process in setting] == [0, 0, 0]

    cancelled = {timer_id for each in printed for timer_id in each}
    expected = {f"{number}-{n}" for number in range(3) for n in range(EACH)} - cancelled
    assert Counter(await promoted(embedded, timers)) == Counter(expected)
    await assert_none_was_early(embedded, timers.stream)


async def assert_none_was_early(valkey: Valkey, stream: str) -> None:
    """The id of an entry is the server's time at which it was added."""
    entries: list[Any] = await valkey.execute("XRANGE", stream, "-", "+")
    for entry_id, fields in entries:
        added_ms = int(entry_id.split(b"-")[0])
        assert added_ms >= int(fields[fields.index(b"due_ms") + 1] if isinstance(fields, list) else fields[b"due_ms"])


async def test_concurrent_promotions_in_one_process_promote_each_timer_once(valkey: Valkey):
    timers = timers_of(valkey)
    now = SystemClock().now()
    await timers.schedule_many([Timer(f"t{n}", now) for n in range(100)])
    await asyncio.gather(*(timers.fire() for _ in range(40)))
    assert len(await messages(valkey, timers)) == 100
    assert len(set(await promoted(valkey, timers))) == 100
