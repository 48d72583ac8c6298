"""Several processes at once, and processes that are killed in the middle."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.systems.github.statistics.test_race import busy_repository
from tests.systems.github.statistics.world import USERS, World

ROOT = Path(__file__).parents[2]
SEVERAL_PROCESSES = ("sqlite", "postgres")


async def start(world: World, *logins: str, stop_at: str = "") -> WarmProcess:
    command = (
        sys.executable,
        "-m",
        "tests.systems.github.statistics.computing_process",
        world.harness.url,
        stop_at,
        *logins,
    )
    process = await start_warm(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert await next_line(process) == b"ready\n"
    return process


async def next_line(process: WarmProcess) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def go(process: WarmProcess) -> bytes:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    return await next_line(process)


@pytest.mark.every_server
@pytest.mark.race
@pytest.mark.parametrize("world", SEVERAL_PROCESSES, indirect=True)
async def test_processes_that_compute_the_same_users_concurrently_agree(world: World):
    for login in USERS:
        await world.write_profile(login)
    for number in range(6):
        await world.write_repository(busy_repository(number, USERS[number % 3]))
    processes = await asyncio.gather(*(start(world, *order) for order in (USERS, reversed(USERS))))

    assert await asyncio.gather(*map(go, processes)) == [b"done\n"] * 2

    assert await asyncio.gather(*(process.wait() for process in processes)) == [0] * 2
    world.counted = set(USERS)
    await world.assert_right()


@pytest.mark.crash
@pytest.mark.parametrize("stop_at", ["repository", "commit"])
async def test_a_computation_interrupted_by_a_kill_is_completed_by_the_next(small_world: World, stop_at: str):
    world = small_world
    for login in USERS:
        await world.write_profile(login)
    moved = busy_repository(1, "ann")
    await world.write_repository(moved)
    await world.write_repository(busy_repository(2, "bob"))
    await world.finalize("ann", "bob")
    moved.owner = "bob"
    moved.bodies.pop(("commit", "1:c3"))
    await world.write_repository(moved)
    process = await start(world, "bob", stop_at=stop_at)
    assert await go(process) == b"stopped\n"
    process.kill()
    await process.wait()

    await world.finalize("bob")

    await world.assert_owned("bob")
    await world.finalize("ann")
    await world.assert_right()


@pytest.mark.crash
async def test_a_user_who_lost_documents_to_an_interrupted_computation_is_recomputed_by_the_next(small_world: World):
    world = small_world
    moved = busy_repository(1, "ann")
    await world.write_repository(moved)
    await world.finalize("ann")
    moved.owner = "bob"
    await world.write_repository(moved)
    process = await start(world, "bob", stop_at="review")
    assert await go(process) == b"stopped\n"
    process.kill()
    await process.wait()

    await world.finalize("cat")

    assert (await world.of("ann")).in_repositories.commits == 0
