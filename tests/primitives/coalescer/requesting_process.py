"""One process of a crowd: says that it is there, waits for the start, does its part, prints what it got as JSON.

python -m tests.primitives.coalescer.requesting_process URL PART SKEW_MS
"""

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

from tidegate.core.clock import ManualClock, SystemClock
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer
from tidegate.storage.valkey import Unit, Valkey
from tidegate.storage.valkey.connection import connected

SUBJECT = "ada"
TASKS = 20
ROUNDS = 100


def stage(valkey: Valkey) -> Unit:
    """Where the crowd and its starter meet."""
    return valkey.unit("stage")


async def gather_at_the_start(valkey: Valkey, start: int) -> None:
    """Each start has keys of its own: a fast process must not take the signal of a slow one."""
    await valkey.execute("RPUSH", stage(valkey).key(f"ready-{start}"), "1")
    await valkey.execute_blocking("BLPOP", stage(valkey).key(f"go-{start}"), 60, within_s=60)


async def ask_then_release(coalescer: Coalescer, valkey: Valkey) -> list[Any]:
    """Ask for the same subject many times at once; when all have, release it many times at once."""
    outcomes = await asyncio.gather(*(coalescer.request(SUBJECT, Priority.HIGH) for _ in range(TASKS)))
    await gather_at_the_start(valkey, 1)
    released = await asyncio.gather(*(coalescer.release(SUBJECT, outcome.version) for outcome in outcomes))
    return [[type(outcome).__name__ for outcome in outcomes], released]


async def take_turns(coalescer: Coalescer, valkey: Valkey) -> list[int]:
    """Take the lock again and again; whoever has it writes its version down for all before letting go."""
    versions: list[int] = []
    for _ in range(ROUNDS):
        outcome = await coalescer.request(SUBJECT, Priority.LOW)
        if not isinstance(outcome, AlreadyProcessing):
            await valkey.execute("RPUSH", stage(valkey).key("versions"), outcome.version)
            assert await coalescer.release(SUBJECT, outcome.version)
            versions.append(outcome.version)
    return versions


async def main(url: str, part: str, skew_ms: int) -> list[Any]:
    clock = ManualClock(SystemClock().now() + timedelta(milliseconds=skew_ms)) if skew_ms else SystemClock()
    async with connected(url) as valkey:
        await gather_at_the_start(valkey, 0)
        parts = {"ask_then_release": ask_then_release, "take_turns": take_turns}
        return await parts[part](Coalescer(valkey, clock=clock), valkey)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
