"""How long admissions, due timers and messages stand still after `kill -9` of the leader, or of a worker.

Three processes share a data folder. The leader lets people into a room and promotes timers, 20 of each in a second.
The processes read messages and hold them; the one that holds the message of a try is killed.
"""

import asyncio
import itertools
import os
import re
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from bench.figures import Figure, Section
from tidegate.connections import open_context
from tidegate.core.telemetry.logs import configure_logs
from tidegate.primitives.membership import Election
from tidegate.primitives.timers import Timer
from tidegate.process import build_process
from tidegate.runtime.waiting import unless
from tidegate.settings import Settings
from tidegate.system import Context
from tidegate.systems.waiting_room import RoomPlan
from tidegate.systems.waiting_room.system import open_waiting_rooms

PROCESSES = 3
TRIES = 4
WATCHED_S = 15.0
PER_S = 20
TARGET_S = 1.0


class Holder:
    """Reads messages, and never acknowledges one."""

    def __init__(self, parts: Context) -> None:
        self._consumer = parts.jobs.consumer(parts.owner)

    async def run(self, stopping: asyncio.Event) -> None:
        print("here", flush=True)
        while not stopping.is_set():
            await unless(stopping, self._consumer.read(count=1, within_s=300))


async def be_process(folder: str) -> None:
    """One of the three."""
    settings = Settings(data_dir=Path(folder))
    async with open_context(settings) as parts:
        rooms = open_waiting_rooms(settings, parts.database, parts.valkey).workers()
        await build_process(parts, services={"holder": Holder(parts)}, leader_services={"rooms": rooms}).run()


async def start(folder: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.takeover", folder)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def longest_gap(parts: Context, key: str, loop: asyncio.AbstractEventLoop) -> float:
    """The longest time without a new entry, from now on."""
    last, began, gap, previous = "$", loop.time(), 0.0, loop.time()
    while (left_s := began + WATCHED_S - loop.time()) > 0:
        command = ("XREAD", "BLOCK", round(left_s * 1000) + 1, "STREAMS", key, last)
        reply = await parts.valkey.execute_blocking(*command, within_s=left_s + 1)
        now = loop.time()
        gap, previous = max(gap, now - previous), now
        if reply:
            last = reply[key.encode()][-1][0]
    return gap


async def pid_of_leader(parts: Context) -> int:
    election = Election(parts.valkey, parts.unit, parts.owner)
    while (owner := await election.leader()) is None:
        await asyncio.sleep(0.1)
    return _pid_in(owner)


def _pid_in(name: str) -> int:
    found = re.search(r"\.(\d+)\.[0-9a-f]{8}", name)
    assert found is not None
    return int(found[1])


async def kill_leader(parts: Context, room_log: str) -> tuple[float, float]:
    """The longest pause of admissions and of due timers."""
    loop = asyncio.get_running_loop()
    spans = [timedelta(seconds=n / PER_S) for n in range(round((WATCHED_S + 5) * PER_S))]
    await parts.timers.schedule_many([Timer(f"t{n}", span) for n, span in enumerate(spans)])
    gaps = [asyncio.create_task(longest_gap(parts, key, loop)) for key in (room_log, parts.alarms.keys.stream)]
    await asyncio.sleep(1)
    os.kill(await pid_of_leader(parts), signal.SIGKILL)
    admissions, timers = await asyncio.gather(*gaps)
    return admissions, timers


async def kill_holder(parts: Context, number: int) -> float:
    """How long a message has no consumer."""
    loop = asyncio.get_running_loop()
    await parts.jobs.add([{b"try": str(number).encode()}])
    holders = list[str]()
    while not holders:
        await asyncio.sleep(0.05)
        holders = [each.name for each in (await parts.jobs.status()).consumers if each.pending]
    [(last, _)] = await parts.valkey.execute("XREVRANGE", parts.jobs.keys.stream, "+", "-", "COUNT", 1)
    os.kill(_pid_in(holders[0]), signal.SIGKILL)
    killed = loop.time()
    command = ("XREAD", "BLOCK", 60_000, "STREAMS", parts.jobs.keys.stream, last)
    await parts.valkey.execute_blocking(*command, within_s=60)
    taken_s = loop.time() - killed
    await parts.valkey.execute("DEL", parts.jobs.keys.stream)
    return taken_s


async def measure() -> Section:
    admissions, timers, messages = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        settings = Settings(data_dir=Path(folder))
        async with open_context(settings) as parts:
            rooms = open_waiting_rooms(settings, parts.database, parts.valkey)
            await rooms.create(
                "sale",
                RoomPlan(
                    capacity=100_000, admit_per_second=PER_S, abandon_after=timedelta(hours=1), log_length=100_000
                ),
            )
            processes = [await start(folder) for _ in range(PROCESSES)]
            try:
                room, users = await rooms.open("sale", None), itertools.count()
                for number in range(TRIES):
                    for _ in range(round(WATCHED_S + 10) * PER_S):
                        await room.join(f"user-{next(users)}")
                    admitted, promoted = await kill_leader(parts, room.line.keys["log"])
                    admissions.append(admitted)
                    timers.append(promoted)
                    processes.append(await start(folder))
                    await asyncio.sleep(2)
                    messages.append(await kill_holder(parts, number))
                    processes.append(await start(folder))
                    await asyncio.sleep(2)
            finally:
                for process in processes:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
    rows = {
        "admissions stand still after the death of the leader": admissions,
        "due timers stand still after the death of the leader": timers,
        "a message of a dead worker is with another": messages,
    }
    figures = [
        Figure(
            what,
            f"{min(spans):.2f} to {max(spans):.2f} s, median {sorted(spans)[len(spans) // 2]:.2f} s",
            f"≤ {TARGET_S:g} s",
            max(spans) <= TARGET_S,
        )
        for what, spans in rows.items()
    ]
    return Section("Take-over on one machine", figures, f"{TRIES} tries each, {PROCESSES} processes, kill -9.")


if __name__ == "__main__":
    configure_logs(level="error")
    if len(sys.argv) > 1:
        asyncio.run(be_process(sys.argv[1]))
    else:
        print(asyncio.run(measure()).text())
