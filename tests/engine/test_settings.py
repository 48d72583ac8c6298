"""Every count of tries is a setting, and the settings reach those who count."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from pydantic import ValidationError
from sqlalchemy import select

from tests.engine.conftest import Library
from tests.engine.shelf import HOST, ShelfSource, ShelfUpstream
from tests.engine.test_routes import ADMITTED, PATH, Secrets, claim_of
from tidegate.core.clock import ManualClock
from tidegate.engine.calls import CallRoute, Calls
from tidegate.engine.collection import open_sources
from tidegate.engine.credentials.memory_tokens import Tokens
from tidegate.engine.lifecycle import JobState
from tidegate.engine.parked_answer_store import ParkedAnswer
from tidegate.engine.settings import CollectSettings
from tidegate.engine.source import Subject, Task
from tidegate.engine.tables import page_jobs
from tidegate.engine.upstream import Request
from tidegate.primitives.gate import Outcome
from tidegate.settings import Settings

A_MOMENT = timedelta(milliseconds=1)


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_job_and_its_follow_ups_are_attempted_as_often_as_configured(
    local: Library, upstream: ShelfUpstream, attempts: int
):
    settings = CollectSettings(max_attempts=attempts, first_pause=A_MOMENT, longest_pause=A_MOMENT)
    library = Library(local.parts, upstream, settings=settings)
    upstream.trouble["/shelves/ada-poems/1"] = [500] * 9
    async with library.working():
        run = await library.ended()

    assert (run.failed_jobs, upstream.calls["/shelves/ada-poems/1"]) == (1, attempts)
    assert {job.max_attempts for job in await library.jobs(run.id)} == {attempts}


async def test_a_job_that_kills_its_workers_is_attempted_as_often_as_a_failing_one(clock: ManualClock):
    upstream = ShelfUpstream({})
    calls = Calls({"shelves": ShelfSource()}, CallRoute(upstream, Secrets("")), clock)
    taken_over = msgspec.structs.replace(ADMITTED, deliveries=2)

    last = msgspec.structs.replace(claim_of(), attempt=5, max_attempts=5)
    assert (await calls.make(last, taken_over)).state is JobState.READY
    ended = await calls.make(msgspec.structs.replace(last, attempt=6), taken_over)
    assert (ended.state, ended.reason) == (JobState.FAILED, "a worker died during the last of 5 attempts")


async def test_an_answer_that_kills_its_readers_is_read_no_more_often_than_a_job_is_attempted(clock: ManualClock):
    """It is parked, so that no call is needed; it still must not kill one worker after the other."""
    calls = Calls({"shelves": ShelfSource()}, CallRoute(ShelfUpstream({}), Secrets("")), clock)
    read = await ShelfUpstream({}).fetch(Request(url=HOST + PATH, purpose="USER"))
    kept = msgspec.structs.replace(
        claim_of(), parked=ParkedAnswer("c", read.pack(), clock.now()), attempt=5, max_attempts=5
    )
    taken_over = msgspec.structs.replace(ADMITTED, deliveries=2)

    assert (await calls.make(kept, taken_over)).state is JobState.SUCCEEDED
    ended = await calls.make(msgspec.structs.replace(kept, attempt=6), taken_over)
    assert (ended.state, ended.parked) == (JobState.FAILED, None)


async def test_the_permit_of_a_dead_worker_is_not_reused(clock: ManualClock):
    upstream = ShelfUpstream({})
    calls = Calls({"shelves": ShelfSource()}, CallRoute(upstream, Secrets("")), clock)

    taken_over = await calls.make(claim_of(), msgspec.structs.replace(ADMITTED, deliveries=2))

    assert not upstream.calls  # the dead one may have called: another permit is needed for another call
    assert (taken_over.state, taken_over.is_attempt) == (JobState.READY, False)
    assert (taken_over.settlement.outcome, taken_over.settlement.deliveries) == (Outcome.UNUSED, 2)


async def test_the_completion_of_a_run_is_attempted_as_often_as_configured(local: Library, upstream: ShelfUpstream):
    library = Library(local.parts, upstream, settings=CollectSettings(completion_attempts=3))
    (handler,) = library.collector.handlers

    assert handler.retries is not None
    assert handler.retries.max_attempts == 3


class Nowhere(ShelfSource):
    """An upstream that cannot be reached."""

    def request(self, task: Task, secret: str) -> Request:
        del secret
        return Request(url="http://127.0.0.1:1/", purpose=task.spec.kind)


async def test_the_settings_of_an_installation_apply_to_its_workers(tmp_path: Path):
    collect = CollectSettings(max_attempts=2, first_pause=A_MOMENT, longest_pause=A_MOMENT)
    settings = Settings(data_dir=tmp_path, collect=collect)
    async with open_sources(settings, [Nowhere()], Tokens("shelves", {"one": "secret"})) as collection:
        (run,) = await collection.collect("shelves", [Subject(user_id="ada", login="ada")])
        tries = await collection.parts.database.read(
            lambda tx: tx.execute(select(page_jobs.c.attempt_count)).scalars().all()
        )

    assert (run.failed_jobs, run.total_jobs, tries) == (1, 1, [2])
    assert "no connection" in (run.last_error or "")


def test_decreasing_pauses_are_refused():
    with pytest.raises(ValidationError, match="longest_pause must not be shorter"):
        CollectSettings(first_pause=timedelta(seconds=2), longest_pause=timedelta(seconds=1))
