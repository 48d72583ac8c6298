"""Real processes, killed and frozen at their worst moment."""

import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.processes import WarmProcess, start_warm
from tests.runtime.deployment import jobs
from tests.waiting import look_again, patience
from tidegate.primitives.membership import Membership
from tidegate.primitives.stream import Stream
from tidegate.primitives.timers import Timer
from tidegate.storage.valkey import Valkey

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.crash

Starter = Callable[[], Awaitable[WarmProcess]]


@asynccontextmanager
async def deployment(valkey: Valkey, lease_ms: int, folder: Path | None = None) -> AsyncGenerator[Starter]:
    """Starts processes, which share `folder` if it is given; kills at the end those that still run."""
    started: list[WarmProcess] = []
    shared = [] if folder is None else [str(folder)]

    async def start() -> WarmProcess:
        command = (sys.executable, "-m", "tests.runtime.deployment", valkey.url, str(lease_ms), *shared)
        process = await start_warm(*command, stdout=PIPE, cwd=ROOT)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def says(process: WarmProcess) -> str:
    assert process.stdout is not None
    async with patience():
        return (await process.stdout.readline()).decode().strip()


async def leading(start: Starter) -> WarmProcess:
    process = await start()
    assert "leading" in {await says(process), await says(process)}
    return process


async def following(start: Starter) -> WarmProcess:
    process = await start()
    assert await says(process) != "leading"
    return process


async def of_worker(stream: Stream, worker: WarmProcess) -> int:
    """How many messages it holds."""
    return sum(each.pending for each in (await stream.status()).consumers if f".{worker.pid}." in each.name)


async def until_added(valkey: Valkey, count: int) -> list[dict[bytes, bytes]]:
    """The first `count` messages that are in the stream from now on, whoever holds them."""
    stream, _ = jobs(valkey)
    entries: list[Any] = []
    async with patience():
        while len(entries) < count:
            last = entries[-1][0] if entries else b"0"
            command = ("XREAD", "BLOCK", 1000, "STREAMS", stream.keys.stream, last)
            reply = await valkey.execute_blocking(*command, within_s=1)
            entries += reply[stream.keys.stream.encode()] if reply else []
    return [fields for _, fields in entries]


async def test_messages_of_a_killed_leader_are_taken_over_after_its_lease(valkey: Valkey):
    """Its timers are promoted by another, and the message that it worked on is given to another.

    A lease has 10 s by default, and what follows then is seen by tests/faults/test_killed.py.
    """
    stream, timers = jobs(valkey)
    async with deployment(valkey, lease_ms=2000) as start:
        leader = await leading(start)
        await stream.add([{b"held": b"by the leader"}])
        while not (await stream.status()).pending:
            pass  # it is the only reader
        follower = await following(start)
        await timers.schedule_many([Timer(f"t{n}", timedelta(milliseconds=500), b"x") for n in range(50)])

        leader.kill()

        first, *added = await until_added(valkey, 52)
        assert first == {b"held": b"by the leader"}
        assert {b"held": b"by the leader", b"deliveries": b"2"} in added
        promoted = sorted(fields[b"timer"] for fields in added if b"timer" in fields)
        assert promoted == sorted(f"t{n}".encode() for n in range(50))
        assert await says(follower) == "leading"


@pytest.mark.smoke
async def test_a_frozen_leader_is_replaced_takes_no_wake_up_and_does_no_harm_when_it_resumes(
    valkey: Valkey,
):
    _, timers = jobs(valkey)
    async with deployment(valkey, lease_ms=1000) as start:
        leader, follower = await leading(start), await following(start)
        leader.send_signal(signal.SIGSTOP)
        assert await says(follower) == "leading"

        # The frozen one still waits at the wakeup, and has waited longest.
        await timers.schedule("after", timedelta(milliseconds=100))
        await until_added(valkey, 1)

        leader.send_signal(signal.SIGCONT)
        await timers.schedule_many([Timer(f"t{n}", timedelta(milliseconds=10 * n)) for n in range(50)])
        async with patience():
            while (await timers.status()).count:
                pass
        entries = await until_added(valkey, 51)
        assert len({fields[b"timer"] for fields in entries}) == 51


async def test_a_stopping_leader_hands_over_immediately(valkey: Valkey):
    _, timers = jobs(valkey)
    async with deployment(valkey, NEVER_MS) as start:
        leader, follower = await leading(start), await following(start)
        await timers.schedule("after", timedelta(milliseconds=500))
        leader.send_signal(signal.SIGTERM)
        assert await says(follower) == "leading"
        assert await leader.wait() == 0
        await until_added(valkey, 1)


NEVER_MS = 3_600_000
"""A lease that does not end while a test runs: what happens then was not decided by a lease."""


async def test_messages_of_a_killed_leader_are_taken_over_by_local_processes_before_its_lease_ends(
    valkey: Valkey, tmp_path: Path
):
    stream, timers = jobs(valkey)
    async with deployment(valkey, NEVER_MS, tmp_path) as start:
        leader = await leading(start)
        await stream.add([{b"held": b"by the leader"}])
        while not (await stream.status()).pending:
            pass  # it is the only reader
        follower = await following(start)
        await timers.schedule("after", timedelta(milliseconds=100))

        leader.kill()

        _, *added = await until_added(valkey, 3)
        assert {b"held": b"by the leader", b"deliveries": b"2"} in added
        assert any(fields.get(b"timer") == b"after" for fields in added)
        assert await says(follower) == "leading"


async def test_a_leader_with_cancelled_services_is_replaced_by_local_processes_before_its_lease_ends(
    valkey: Valkey, tmp_path: Path
):
    """Told twice to stop, both at once: it can neither resign nor leave, so it counts as dead."""
    stream, _ = jobs(valkey)
    async with deployment(valkey, NEVER_MS, tmp_path) as start:
        leader = await leading(start)
        await stream.add([{b"held": b"by the leader"}])
        async with patience():
            while not await of_worker(stream, leader):
                await look_again()
        follower = await following(start)

        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            leader.send_signal(number)

        assert await leader.wait() == 1
        assert await says(follower) == "leading"
        async with patience():
            while not await of_worker(stream, follower):
                await look_again()


async def test_messages_of_a_killed_worker_are_taken_over_by_the_leader_before_its_lease_ends(
    valkey: Valkey, tmp_path: Path
):
    stream, _ = jobs(valkey)
    async with deployment(valkey, NEVER_MS, tmp_path) as start:
        await leading(start)
        worker = await following(start)
        async with patience():
            while not await of_worker(stream, worker):
                await stream.add([{b"for": b"anybody"}])  # the leader reads too

        worker.kill()

        async with patience():
            while await of_worker(stream, worker):
                await look_again()
        entries = await until_added(valkey, (await stream.status()).depth)
        assert {b"for": b"anybody", b"deliveries": b"2"} in entries


async def test_a_frozen_process_is_not_reported_dead_by_local_processes(valkey: Valkey, tmp_path: Path):
    membership = Membership(valkey, valkey.unit("processes"), "test")
    async with deployment(valkey, NEVER_MS, tmp_path) as start:
        leader = await leading(start)
        frozen, killed = await following(start), await following(start)
        owners = {member.owner for member in await membership.members()}
        frozen.send_signal(signal.SIGSTOP)
        killed.kill()

        async with patience():
            while len(present := {member.owner for member in await membership.members()}) == len(owners):
                await look_again()
        assert owners - present == {owner for owner in owners if f".{killed.pid}." in owner}
        frozen.send_signal(signal.SIGCONT)
        for process in (frozen, leader):
            process.terminate()
            assert await process.wait() == 0
        assert await membership.members() == []
        assert await membership.known_dead() == []
        assert list(tmp_path.iterdir()) == [], "no file of anybody is left"
