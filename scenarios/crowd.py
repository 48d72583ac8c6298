"""One process of a crowd: `python -m scenarios.crowd PART SKEW_MS`, with the settings of its deployment.

It reports that it is ready, waits for the start, does its part, and prints the result as JSON.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import uvloop

from tidegate.connections import open_context
from tidegate.core.clock import Clock, ManualClock, SystemClock
from tidegate.core.priority import Priority
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.coalescer import AlreadyProcessing, Coalescer
from tidegate.settings import Settings
from tidegate.storage.valkey import Unit, Valkey
from tidegate.systems.snapshots.events import Reason
from tidegate.systems.snapshots.model import SnapshotSubject
from tidegate.systems.snapshots.requests import RefreshRequest
from tidegate.systems.snapshots.service import Snapshots, open_snapshots

SUBJECT = SnapshotSubject("character", "7")
AT_ONCE = 20
"""What each process does at once."""
TURNS = 20
"""How many versions each takes."""


def meeting(valkey: Valkey) -> Unit:
    """Where the crowd and its starter meet."""
    return valkey.unit("crowd")


async def at_the_start(valkey: Valkey) -> None:
    """Report readiness, and wait until all processes are ready."""
    await valkey.execute("RPUSH", meeting(valkey).key("ready"), "1")
    await valkey.execute_blocking("BLPOP", meeting(valkey).key("go"), 60, within_s=60)


async def ask(snapshots: Snapshots, _clock: Clock) -> list[str]:
    """Ask for one subject, many times at once; the outcomes."""
    refresh_request = RefreshRequest(subject=SUBJECT, priority=Priority.HIGH, reason=Reason.USER_REQUEST)
    outcomes = await asyncio.gather(*(snapshots.requests.publish(refresh_request) for _ in range(AT_ONCE)))
    return [type(outcome).__name__ for outcome in outcomes]


async def take_turns(snapshots: Snapshots, clock: Clock) -> list[int]:
    """Take the lock repeatedly; the holder records its version for all processes before the release."""
    valkey, versions = snapshots.parts.valkey, list[int]()
    coalescer = Coalescer(valkey, clock=clock)
    while len(versions) < TURNS:
        outcome = await coalescer.request("taken in turns", Priority.LOW)
        if not isinstance(outcome, AlreadyProcessing):
            await valkey.execute("RPUSH", meeting(valkey).key("versions"), outcome.version)
            assert await coalescer.release("taken in turns", outcome.version)
            versions.append(outcome.version)
    return versions


async def release(snapshots: Snapshots, clock: Clock) -> list[bool]:
    """Release a lock of another process many times at once; return the replies."""
    valkey = snapshots.parts.valkey
    coalescer = Coalescer(valkey, clock=clock)
    version = await coalescer.current_version("released by all")
    assert version is not None
    return await asyncio.gather(*(coalescer.release("released by all", version) for _ in range(AT_ONCE)))


_PARTS: dict[str, Callable[[Snapshots, Clock], Awaitable[Any]]] = {
    "ask": ask,
    "take_turns": take_turns,
    "release": release,
}


async def _main(part: str, skew_ms: int) -> Any:
    clock = ManualClock(SystemClock().now() + timedelta(milliseconds=skew_ms)) if skew_ms else SystemClock()
    async with open_context(Settings.load()) as parts, open_snapshots(parts) as snapshots:
        await at_the_start(parts.valkey)
        return await _PARTS[part](snapshots, clock)


if __name__ == "__main__":
    configure_logs("console", "error")
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_main(sys.argv[1], int(sys.argv[2])))) + b"\n")
