"""Processes of one machine notice at once which of them died, and take no other for dead."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import pytest

from tests.processes import WarmProcess, start_warm
from tests.waiting import patience
from tidegate.core.errors import ValkeyUnavailable
from tidegate.runtime import process_deaths
from tidegate.runtime.process_deaths import ProcessDeathWatcher
from tidegate.runtime.waiting import end

ROOT = Path(__file__).parents[2]
WITHIN_S = 60

pytestmark = pytest.mark.crash


class Watching:
    """This process among them: what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dead: asyncio.Queue[str] = asyncio.Queue()
        self.failures = 0
        """How often a report fails."""

    async def report(self, owner: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ValkeyUnavailable("away")
        self.dead.put_nowait(owner)

    async def next_dead(self, count: int = 1) -> set[str]:
        async with asyncio.timeout(WITHIN_S):
            return {await self.dead.get() for _ in range(count)}


@asynccontextmanager
async def watching(folder: Path) -> AsyncGenerator[Watching]:
    us, stopping = Watching(folder), asyncio.Event()
    running = asyncio.create_task(ProcessDeathWatcher(folder, "us", us.report, has_left=lambda: True).run(stopping))
    try:
        yield us
    finally:
        stopping.set()
        await running


Start = Callable[[str], Awaitable[WarmProcess]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncGenerator[Start]:
    """Starts a process of some name that shares the folder; it is killed at the end if it still runs."""
    started = list[WarmProcess]()

    async def one(owner: str) -> WarmProcess:
        command = (sys.executable, "-m", "tests.runtime.local_process", str(tmp_path), owner)
        process = await start_warm(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        started.append(process)
        assert process.stdout is not None
        async with asyncio.timeout(WITHIN_S):
            assert await process.stdout.readline() == b"here\n"
        return process

    yield one
    for process in started:
        process.kill()
        await process.communicate()


async def test_a_killed_process_is_reported_by_processes_that_share_its_folder(start: Start, tmp_path: Path):
    async with watching(tmp_path) as us:
        first, second = await start("first"), await start("second")
        assert second.stdout is not None
        told = asyncio.create_task(second.stdout.readline())
        first.kill()

        reported = asyncio.create_task(us.next_dead())
        await asyncio.wait([told, reported], return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN_S)
        assert (told.done() and told.result() == b"first\n") or (reported.done() and reported.result() == {"first"})
        await end(told, reported)


async def test_processes_that_die_together_are_all_reported(start: Start, tmp_path: Path):
    async with watching(tmp_path) as us:
        some = [await start(f"p{n}") for n in range(5)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none of them reports another
            for process in some:
                process.send_signal(number)

        assert await us.next_dead(5) == {f"p{n}" for n in range(5)}


async def test_a_process_that_died_before_the_start_is_reported_at_the_start(start: Start, tmp_path: Path):
    dead = await start("dead")
    dead.kill()
    await dead.wait()

    async with watching(tmp_path) as us:
        assert await us.next_dead() == {"dead"}
        assert [path.name for path in tmp_path.iterdir()] == ["us"]


async def test_frozen_and_gracefully_stopped_processes_are_not_reported(start: Start, tmp_path: Path):
    async with watching(tmp_path) as us:
        frozen, leaving, killed = await start("frozen"), await start("leaving"), await start("killed")
        frozen.send_signal(signal.SIGSTOP)
        await leaving.communicate()
        assert leaving.returncode == 0
        killed.kill()

        assert await us.next_dead() == {"killed"}
        frozen.kill()
        assert await us.next_dead() == {"frozen"}


async def test_a_process_that_ended_without_leaving_is_reported(tmp_path: Path):
    """It is still registered, for example because its heartbeat was cancelled while the process stopped."""

    async def report(owner: str) -> None:
        raise AssertionError(owner)

    async with watching(tmp_path) as us:
        stopping = asyncio.Event()
        ending = asyncio.create_task(
            ProcessDeathWatcher(tmp_path, "ending", report, has_left=lambda: False).run(stopping)
        )
        async with patience():
            while not (tmp_path / "ending").exists():
                await asyncio.sleep(0)
        stopping.set()
        await ending

        assert await us.next_dead() == {"ending"}


async def test_a_failed_report_is_repeated(start: Start, tmp_path: Path):
    async with watching(tmp_path) as us:
        us.failures = 3
        (await start("killed")).kill()

        assert await us.next_dead() == {"killed"}
        assert us.failures == 0


async def test_a_restarted_service_keeps_its_lock(tmp_path: Path):
    """Its process lives: others must not take it for dead meanwhile."""
    (tmp_path / "dead").touch()

    async def fail(owner: str) -> None:
        raise ZeroDivisionError(owner)

    falling = ProcessDeathWatcher(tmp_path, "falling", fail, has_left=lambda: True)
    with pytest.raises(ZeroDivisionError):
        await falling.run(asyncio.Event())

    async with watching(tmp_path) as us:
        assert await us.next_dead() == {"dead"}
        assert us.dead.empty()
        again = asyncio.create_task(falling.run(asyncio.Event()))
        await asyncio.sleep(0)
        await end(again)  # as when its process is told to hurry
        assert not (tmp_path / "falling").exists()


async def test_without_kernel_support_the_lease_decides_and_a_log_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: StringIO
):
    monkeypatch.setattr(process_deaths.sys, "platform", "plan9")
    async with watching(tmp_path):
        while not (tmp_path / "us").exists():
            await asyncio.sleep(0)

    assert logged.getvalue().count("process_deaths.unwatched") == 1
