import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.processes import start_warm
from tests.virtual_time import run_virtually
from tests.waiting import patience
from tidegate.core.backoff import Backoff
from tidegate.core.errors import InvalidArgument, ValkeyUnavailable
from tidegate.runtime.service import Restarts, Service, keep_running
from tidegate.runtime.supervisor import StopReport, Supervisor

EMBEDDING = Path(__file__).with_name("embedding.py")
DRAINING = Path(__file__).with_name("draining.py")
AT_ONCE = Restarts(backoff=Backoff(first=timedelta(microseconds=1), most=timedelta(microseconds=1)))


class Steady:
    """Runs until told to stop, and notes when it did."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        self.name, self.log = name, log if log is not None else []
        self.running = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        self.running.set()
        await stopping.wait()
        self.log.append(self.name)


class Hanging:
    """Does not stop when told to; notes when it is cancelled."""

    def __init__(self) -> None:
        self.running, self.was_cancelled = asyncio.Event(), False

    async def run(self, stopping: asyncio.Event) -> None:
        self.running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


class Falling:
    """Falls `times` times, each time as `how` says, then runs like any other."""

    def __init__(self, times: int, how: Callable[[], None]) -> None:
        self.times, self.how, self.starts = times, how, 0
        self.running = asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        self.starts += 1
        if self.starts <= self.times:
            self.how()
            return
        self.running.set()
        await stopping.wait()


def _raise_ours() -> None:
    raise ValkeyUnavailable("gone")


def _raise_a_defect() -> None:
    raise ZeroDivisionError


def _raise_a_stray_cancellation() -> None:
    raise asyncio.CancelledError


def _return_unasked() -> None:
    return


def supervisor(*services: tuple[str, Service], drain_s: float = 30) -> Supervisor:
    made = Supervisor(drain_within=timedelta(seconds=drain_s), restarts=AT_ONCE)
    for name, service in services:
        made.add(name, service)
    return made


async def test_services_run_until_the_stop_and_end_in_reverse_order():
    """The heartbeat, added first, must outlive the worker that drains."""
    log: list[str] = []
    services = [Steady(name, log) for name in ("heartbeat", "worker", "http")]
    supervised = supervisor(*((service.name, service) for service in services))
    running = asyncio.create_task(supervised.run())
    for service in services:
        await service.running.wait()
    assert log == []

    supervised.stop()

    report = await running
    assert log == ["http", "worker", "heartbeat"]
    assert report == StopReport(drained=("http", "worker", "heartbeat"), failed=(), cancelled=())
    assert report.is_clean


async def test_a_service_is_stopped_only_when_later_ones_have_ended():
    earlier, later = Steady(), Hanging()
    supervised = supervisor(("earlier", earlier), ("later", later))
    running = asyncio.create_task(supervised.run())
    await later.running.wait()
    supervised.stop()
    for _ in range(10):
        await asyncio.sleep(0)
    assert earlier.log == []
    supervised.stop()
    await running


@pytest.mark.parametrize("how", [_raise_ours, _raise_a_defect, _raise_a_stray_cancellation, _return_unasked])
async def test_a_failed_service_is_restarted_without_affecting_others(how: Callable[[], None]):
    falling, steady = Falling(3, how), Steady()
    supervised = supervisor(("steady", steady), ("falling", falling))
    running = asyncio.create_task(supervised.run())
    await falling.running.wait()
    assert falling.starts == 4
    assert steady.log == []
    supervised.stop()
    assert (await running).is_clean


async def test_a_service_that_may_end_is_not_restarted():
    once, steady = Falling(1, _return_unasked), Steady()
    supervised = Supervisor(restarts=AT_ONCE)
    supervised.add("once", once, may_end=True)
    supervised.add("steady", steady)
    running = asyncio.create_task(supervised.run())
    await steady.running.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert once.starts == 1
    assert not running.done()
    supervised.stop()
    await running


async def test_the_process_ends_when_all_services_that_may_end_have_ended():
    supervised = Supervisor()
    supervised.add("once", Falling(1, _return_unasked), may_end=True)
    assert await supervised.run() == StopReport(drained=("once",), failed=(), cancelled=())


class RecordingBackoff(Backoff):
    """Says how many falls in a row it was asked about."""

    asked: list[int] = []  # noqa: RUF012 - one list for the one test

    def delay(self, attempt: int) -> timedelta:
        self.asked.append(attempt)
        return timedelta(0)


@pytest.mark.parametrize(("steady_after_s", "expected"), [(60, [1, 2, 3]), (0, [1, 1, 1])])
async def test_restart_pauses_grow_until_the_service_was_stable_for_a_while(steady_after_s: int, expected: list[int]):
    RecordingBackoff.asked = []
    restarts = Restarts(backoff=RecordingBackoff(), steady_after=timedelta(seconds=steady_after_s))
    falling, stopping = Falling(3, _raise_a_defect), asyncio.Event()
    running = asyncio.create_task(keep_running("x", falling, stopping, restarts=restarts))
    await falling.running.wait()
    stopping.set()
    assert await running
    assert RecordingBackoff.asked == expected


async def test_a_stop_ends_the_pause_before_a_restart():
    long_pause = Restarts(backoff=Backoff(first=timedelta(hours=1), most=timedelta(hours=1)))
    falling = Falling(99, _raise_ours)
    supervised = Supervisor(restarts=long_pause)
    supervised.add("falling", falling)
    running = asyncio.create_task(supervised.run())
    while not falling.starts:
        await asyncio.sleep(0)
    supervised.stop()
    async with patience():
        assert (await running).is_clean


def test_a_hanging_service_is_cancelled_and_named_and_later_ones_still_drain():
    async def scenario(passed: Callable[[], float]) -> None:
        first, hanging, last = Steady("first"), Hanging(), Steady("last")
        supervised = supervisor(("first", first), ("hanging", hanging), ("last", last), drain_s=30)
        running = asyncio.create_task(supervised.run())
        await last.running.wait()
        supervised.stop()
        report = await running
        assert report == StopReport(drained=("last", "first"), failed=(), cancelled=("hanging",))
        assert not report.is_clean
        assert hanging.was_cancelled
        assert 27 <= passed() < 30, "the last tenth is for those behind it"

    run_virtually(scenario)


def test_several_hanging_services_are_cancelled_within_the_timeout():
    async def scenario(passed: Callable[[], float]) -> None:
        supervised = supervisor(*((f"hanging{n}", Hanging()) for n in range(5)), drain_s=30)
        running = asyncio.create_task(supervised.run())
        await asyncio.sleep(0)
        supervised.stop()
        assert len((await running).cancelled) == 5
        assert passed() <= 30

    run_virtually(scenario)


async def test_a_second_stop_cancels_immediately():
    hanging = Hanging()
    supervised = supervisor(("hanging", hanging))
    running = asyncio.create_task(supervised.run())
    await hanging.running.wait()
    supervised.stop()
    supervised.stop()
    async with patience():
        assert (await running).cancelled == ("hanging",)
    assert hanging.was_cancelled


async def test_a_service_that_fails_while_draining_is_reported_and_not_restarted():
    class FallsAtTheEnd(Steady):
        async def run(self, stopping: asyncio.Event) -> None:
            await super().run(stopping)
            raise ZeroDivisionError

    falling = FallsAtTheEnd()
    supervised = supervisor(("falling", falling))
    running = asyncio.create_task(supervised.run())
    await falling.running.wait()
    supervised.stop()
    assert (await running).failed == ("falling",)
    assert falling.log == [""]


async def test_cancelling_the_supervisor_cancels_its_services():
    hanging = Hanging()
    running = asyncio.create_task(supervisor(("hanging", hanging)).run())
    await hanging.running.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert hanging.was_cancelled


async def test_an_externally_cancelled_service_does_not_affect_others():
    steady, hanging = Steady(), Hanging()
    supervised = supervisor(("steady", steady), ("hanging", hanging))
    running = asyncio.create_task(supervised.run())
    await hanging.running.wait()
    [task] = [task for task in asyncio.all_tasks() if task.get_name() == "hanging"]
    task.cancel()
    async with patience():
        assert await running == StopReport(drained=("steady",), failed=(), cancelled=("hanging",))


async def test_signal_handlers_are_installed_on_request_and_restored_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    steady = Steady()
    running = asyncio.create_task(supervisor(("steady", steady)).run(handle_signals=True))
    await steady.running.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert (await running).is_clean
    assert signal.getsignal(signal.SIGTERM) == before


async def test_signals_are_not_handled_unless_requested():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    steady = Steady()
    async with supervisor(("steady", steady)).running():
        await steady.running.wait()
        assert {number: signal.getsignal(number) for number in before} == before
    assert steady.log == [""], "it drained at the end of the block"


async def test_invalid_arguments_are_refused():
    with pytest.raises(InvalidArgument, match="drain_within"):
        Supervisor(drain_within=timedelta(0))
    with pytest.raises(InvalidArgument, match="services"):
        await Supervisor().run()
    doubled = supervisor(("same", Steady()))
    for name in ("same", ""):
        with pytest.raises(InvalidArgument, match="name"):
            doubled.add(name, Steady())


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signalled_process_finishes_running_work(loop: str, number: signal.Signals):
    child = await start_warm(sys.executable, str(DRAINING), loop, "drains", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert await child.stdout.readline() == b"working\n"
    child.send_signal(number)
    assert await child.stdout.readline() == b"stopping\n"
    child.stdin.write(b"the work is done\n")
    printed, _ = await child.communicate()
    assert printed == b"the work is done\nleft in good order\n"
    assert child.returncode == 0


@pytest.mark.smoke
@pytest.mark.crash
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_a_process_signalled_twice_does_not_wait(loop: str):
    child = await start_warm(sys.executable, str(DRAINING), loop, "hangs", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"working\n"
    child.send_signal(signal.SIGTERM)
    assert await child.stdout.readline() == b"stopping\n"
    child.send_signal(signal.SIGTERM)
    async with patience():
        printed, _ = await child.communicate()
    assert printed == b"cut off\n"
    assert child.returncode == 1


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_in_the_lifespan_of_a_web_server_is_drained_by_the_servers_signal_handler(
    number: signal.Signals,
):
    child = await start_warm(sys.executable, str(EMBEDDING), stdout=PIPE)
    assert child.stdout is not None
    async with patience():
        assert await child.stdout.readline() == b"working\n"
        child.send_signal(number)
        printed, _ = await child.communicate()
    assert printed.splitlines() == [b"uvicorn was signalled", b"worker drained", b"lifespan ended"]
