"""A worker with a server that refuses: it continues with what is possible, and stops when asked."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from structlog.testing import capture_logs

from tests.systems.snapshots.deployment import Deployment, deployed, until
from tests.systems.snapshots.test_refresh_worker import refresh_request
from tests.waiting import observe_absence, patience
from tidegate.core.errors import ServerRefused, TidegateError, ValkeyUnavailable
from tidegate.engine.upstream import Answer
from tidegate.primitives.limiter import Limiter
from tidegate.storage.valkey import Valkey
from tidegate.systems.snapshots import calls
from tidegate.systems.snapshots.calls import CallOutcome, RefreshCalls
from tidegate.systems.snapshots.events import RefreshEvent
from tidegate.systems.snapshots.kinds import GameCharacter
from tidegate.systems.snapshots.settings import WorkerSettings
from tidegate.systems.snapshots.transports.streams import StreamConsumer
from tidegate_simulators.game import FaultKind, GameSimulator

REFUSAL = ServerRefused("Valkey", "out of memory", remedy="Give it more.")


async def test_events_that_cannot_be_returned_take_no_slot(
    tmp_path: Path, embedded: Valkey, sim: GameSimulator, monkeypatch: pytest.MonkeyPatch
):
    refresh = RefreshCalls.refresh

    async def crashing(self: RefreshCalls, event: RefreshEvent, **given: Any) -> CallOutcome:
        if event.subject.key == "1":
            raise REFUSAL
        return await refresh(self, event, **given)

    async def refused(*_: object) -> None:
        raise REFUSAL

    monkeypatch.setattr(RefreshCalls, "refresh", crashing)
    monkeypatch.setattr(StreamConsumer, "retry", refused)
    async with deployed(tmp_path, embedded, sim, high=WorkerSettings(concurrency=1, batch=1)) as deployment:
        await deployment.snapshots.requests.publish_many([refresh_request(1), refresh_request(2)])
        with capture_logs() as logs:
            async with deployment.working("refresh-high"):
                await until(lambda: sim.calls_of(2))

    assert logs[0]["event"] == "snapshots.refresh_crashed"


@pytest.mark.parametrize("error", [ValkeyUnavailable("away"), REFUSAL])
async def test_a_stop_does_not_wait_for_a_pause_of_the_upstream(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, error: TidegateError
):
    """Where the others cannot be told of it, one worker keeps it alone, and it may last a day."""
    is_told = asyncio.Event()

    async def pause(*_: object) -> None:
        is_told.set()
        raise error

    monkeypatch.setattr(Limiter, "pause", pause)
    monkeypatch.setattr(calls, "_DEFAULT_PAUSE", timedelta(hours=1))
    deployment.sim.faults.inject(FaultKind.REFUSED, times=9, subject=7)
    await deployment.snapshots.requests.publish(refresh_request(7))
    async with patience(), deployment.working("refresh-high"):
        await is_told.wait()
        await observe_absence()

    assert deployment.sim.calls_of(7) == 1
    assert await deployment.pending() == 1


@pytest.mark.parametrize(
    ("text", "span_s"),
    [
        ("Thu, 01 Jan 2026 12:01:30 GMT", 90),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 1),
        ("9" * 5_000, 86_400),
        ("7", 7),
        ("0", 1),
        ("-5", 1),
        ("soon", 1),
    ],
)
def test_the_pause_of_a_429_is_read_as_seconds_and_as_a_date(text: str, span_s: int):
    headers = CIMultiDict({"Retry-After": text, "Date": "Thu, 01 Jan 2026 12:00:00 GMT"})
    answer = Answer(
        status=429,
        headers=CIMultiDictProxy(headers),
        url="http://game.test",
        received_at=datetime(2026, 6, 1, tzinfo=UTC),
        body=b"",
        elapsed_ms=0.0,
    )
    outcome = calls.classify(GameCharacter("http://game.test"), "1", None, answer)
    assert outcome == calls.Throttled(span=timedelta(seconds=span_s))
