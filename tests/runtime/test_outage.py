"""The policy for servers that are away or refuse: growing pauses, one line per change, work that resumes."""

import asyncio
import gc
import logging

import pytest
from structlog.testing import capture_logs

from tests.servers.refusing import Waits, lines_of_outage, told
from tests.waiting import until
from tidegate.core.errors import DatabaseUnavailable, NoSpaceLeft, ServerRefused, Unavailable, ValkeyUnavailable
from tidegate.core.telemetry.logs import limit_driver_log
from tidegate.runtime import outage
from tidegate.runtime.outage import Outage, outage_in
from tidegate.runtime.service import Restarts, keep_running
from tidegate.runtime.waiting import end

pytestmark = pytest.mark.usefixtures("logged")  # its level: the end of an outage is logged as info

AWAY = ValkeyUnavailable("gone", server="valkey:1")
REFUSED = ServerRefused("valkey:1", "it is read-only", remedy="Make it writable")


class Flaky:
    """A step that fails with the given errors, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


class Time:
    """A monotonic clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    short = Waits()
    monkeypatch.setattr(outage, "OUTAGE_PAUSES", short)
    return short


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(outage, "monotonic", clock)
    return clock


async def test_a_step_is_repeated_with_growing_pauses_until_it_succeeds(waits: Waits):
    assert await Outage("x").retry(Flaky(*[AWAY] * 4, *[REFUSED] * 3)) == "done"
    assert waits.asked == [1, 2, 3, 4, 5, 6, 7]


async def test_an_outage_has_one_log_line_at_its_start_and_one_at_its_end_per_process(waits: Waits):
    parts = [Outage(f"part-{n}") for n in range(5)]
    with capture_logs() as lines:
        await asyncio.gather(*(part.retry(Flaky(*[REFUSED] * 5)) for part in parts for _ in range(20)))

    assert lines_of_outage(lines) == ["server.refused", "server.back"]
    assert "Make it writable" in told(lines, "server.refused")[0]
    assert lines[-1]["parts"] == [part_name for n in range(5) if (part_name := f"part-{n}")]
    assert waits.count == 500


async def test_an_outage_lasts_until_every_retrying_part_succeeds(waits: Waits, time: Time):
    one, two = Outage("one"), Outage("two")
    with capture_logs() as lines:
        for each in (one, two):
            await each.pause(REFUSED, 1)
        one.over()  # its reads are served, the writes of the other part are not
        assert lines_of_outage(lines) == ["server.refused"]
        time.now += 5
        two.over()

    assert lines_of_outage(lines) == ["server.refused", "server.back"]
    assert lines[-1]["after_ms"] == 5000


async def test_a_flapping_server_is_logged_at_most_every_few_seconds(waits: Waits, time: Time):
    outage = Outage("x")
    with capture_logs() as lines:
        for _ in range(100):
            time.now += 0.1
            await outage.retry(Flaky(AWAY))

    assert len(told(lines, "server.away")) == len(told(lines, "server.back")) == 2


async def test_a_change_from_unavailable_to_refused_is_logged_separately_for_each_server(time: Time):
    outage, other = Outage("x"), Outage("y")
    with capture_logs() as lines:
        outage.note(AWAY)
        outage.note(REFUSED)
        other.note(DatabaseUnavailable("gone", server="sql:1"))
        outage.over()

    assert lines_of_outage(lines) == ["server.away", "server.refused", "server.away", "server.back"]
    assert [line["server"] for line in lines] == ["valkey:1", "valkey:1", "sql:1", "valkey:1"]


async def test_an_outage_reported_once_does_not_hide_the_next_one(time: Time):
    with capture_logs() as lines:
        Outage("request").note(AWAY)
        time.now += 3600
        Outage("request").note(AWAY)

    assert lines_of_outage(lines) == ["server.away"] * 2


async def test_a_part_that_ended_does_not_keep_an_outage_open(waits: Waits):
    gone, alive = Outage("gone"), Outage("alive")
    with capture_logs() as lines:
        for each in (gone, alive):
            await each.pause(AWAY, 1)
        del gone, each
        gc.collect()
        alive.over()

    assert lines_of_outage(lines) == ["server.away", "server.back"]


async def test_a_cancelled_part_does_not_keep_an_outage_open(monkeypatch: pytest.MonkeyPatch):
    """One while it pauses, one in an attempt: that one is forgotten after a while."""
    monkeypatch.setattr(outage, "_STALE_S", 0.2)
    pausing, trying, alive = Outage("pausing"), Outage("trying"), Outage("alive")
    with capture_logs() as lines:
        task = asyncio.create_task(pausing.pause(AWAY, 1))
        await asyncio.sleep(0)
        await end(task)
        assert lines_of_outage(lines) == ["server.away"], "that a part gave up says nothing about the server"
        await trying.pause(REFUSED, 1)
        await alive.pause(REFUSED, 1)
        alive.over()
        await until(lambda: "server.back" in lines_of_outage(lines))

    assert lines_of_outage(lines) == ["server.away", "server.refused", "server.back"]


async def test_a_full_disk_is_waited_for_and_logged_only_as_such(waits: Waits):
    with capture_logs() as lines:
        await Outage("x").retry(Flaky(*[NoSpaceLeft("/data")] * 3))

    assert (waits.count, lines) == (3, [])


async def test_other_errors_are_not_retried():
    with pytest.raises(ZeroDivisionError):
        await Outage("x").retry(Flaky(ZeroDivisionError()))


async def test_a_stop_ends_the_wait_with_the_last_error():
    stopping = asyncio.Event()
    waiting = asyncio.create_task(Outage("x").retry(Flaky(*[AWAY] * 1000), stopping=stopping))
    await asyncio.sleep(0)
    stopping.set()
    with pytest.raises(ValkeyUnavailable):
        await waiting


def test_a_group_of_outages_is_an_outage_and_a_group_with_another_error_is_not():
    assert outage_in(ExceptionGroup("both", [AWAY, ExceptionGroup("inner", [REFUSED])])) is AWAY
    assert outage_in(ExceptionGroup("both", [AWAY, ZeroDivisionError()])) is None
    assert outage_in(Unavailable("x")) is not None


class Meets:
    """A service that meets an outage each time it starts, then runs."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.running = list(errors), asyncio.Event()

    async def run(self, stopping: asyncio.Event) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.running.set()
        await stopping.wait()


async def test_a_service_that_meets_a_refusal_is_restarted_with_one_log_line_and_no_traceback(waits: Waits):
    service, stopping = Meets(*[REFUSED] * 12, ExceptionGroup("of a task group", [REFUSED])), asyncio.Event()
    with capture_logs() as lines:
        running = asyncio.create_task(keep_running("relay", service, stopping, restarts=Restarts()))
        await service.running.wait()
        stopping.set()
        assert await running

    assert [line["event"] for line in lines] == ["service.started", "server.refused", "service.stopped"]
    assert waits.asked == list(range(1, 14))


def test_repeated_log_lines_of_a_library_are_reduced_to_one_per_message(caplog: pytest.LogCaptureFixture):
    limit_driver_log("noisy_driver", level=logging.WARNING)
    for node in range(1000):
        logging.getLogger("noisy_driver.connection").error("Unable to connect to node %s", node)
        logging.getLogger("noisy_driver.connection").info("trying %s", node)

    assert [record.getMessage() for record in caplog.records] == ["Unable to connect to node 0"]
