"""Calls side by side, and an orderly stop."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine.batches import claimed, finished, write
from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream
from tests.waiting import is_pending, look_again, simulated_delay
from tidegate.engine.gate_sync import Recovery
from tidegate.engine.lifecycle import JobState
from tidegate.primitives.gate import Gate, Outcome, Settlement
from tidegate.runtime.waiting import end


async def test_waiting_calls_run_concurrently(local: Library, upstream: ShelfUpstream):
    upstream.shelves = {f"ada-{n}": 1 for n in range(40)}
    under_way, all_there = 0, asyncio.get_running_loop().create_future()

    def hold(path: str) -> "asyncio.Future[None] | None":
        nonlocal under_way
        if path.startswith("/users"):
            return None
        under_way += 1
        if under_way == 40:
            all_there.set_result(None)
        return all_there

    upstream.before_answer = hold
    async with local.working():
        run = await local.ended()

    assert run.succeeded_jobs == 41


async def test_running_calls_never_exceed_the_limit(local: Library, upstream: ShelfUpstream):
    library = Library(local.parts, upstream, at_once=3)
    upstream.shelves = {f"ada-{n}": 6 for n in range(20)}
    under_way: set[asyncio.Future[None]] = set()
    most = 0

    def slowly(path: str) -> "asyncio.Future[None] | None":
        nonlocal most
        del path
        call = asyncio.ensure_future(simulated_delay(0.002))
        under_way.add(call)
        call.add_done_callback(under_way.discard)
        most = max(most, len(under_way))
        return call

    upstream.before_answer = slowly
    async with library.working():
        run = await library.ended()

    assert run.succeeded_jobs == 61
    assert most == 3


async def test_a_stop_during_a_run_repeats_no_call(local: Library, upstream: ShelfUpstream):
    """What is under way ends and is written; what was only read goes back."""
    upstream.shelves = {f"ada-{n}": 12 for n in range(6)}

    def slowly(path: str) -> "asyncio.Future[None] | None":
        del path
        return asyncio.ensure_future(simulated_delay(0.003))

    upstream.before_answer = slowly
    run_id = await local.begin()
    for calls in (5, 12, 20, 28):
        async with local.working():
            while upstream.calls.total() < calls:
                await look_again()
        assert not [job for job in await local.jobs(run_id) if job.status == JobState.RUNNING], "all was written"
    async with local.working():
        await local.until(run_id)

    assert set(upstream.calls.values()) == {1}
    assert len(await local.items()) == 72


async def test_a_stopping_worker_holds_its_results_until_they_are_written(local: Library, upstream: ShelfUpstream):
    """Else another would take the message meanwhile, and make the call again."""
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reached, may_write = asyncio.Event(), threading.Event()

    def hold(path: str) -> "asyncio.Future[None] | None":
        if not path.startswith("/users"):
            return None
        reached.set()
        return held

    upstream.before_answer = hold
    working = local.working()
    await working.__aenter__()
    run_id = await local.begin()
    await reached.wait()
    busy = asyncio.create_task(local.parts.database.transaction(lambda _: may_write.wait()))
    held.set_result(None)

    stopping = asyncio.create_task(working.__aexit__(None, None, None))
    waits = await is_pending(stopping)
    status = await local.parts.jobs.status()
    may_write.set()
    await asyncio.gather(busy, stopping)

    assert waits
    assert (status.pending, status.lag) == (1, 0)
    assert (await local.orchestrator.show(run_id)).succeeded_jobs == 1


async def test_a_call_interrupted_by_a_stop_is_repeated_with_another_permit(
    local: Library, upstream: ShelfUpstream, monkeypatch: pytest.MonkeyPatch
):
    """It may have been made: whoever has its job next must not make another with the same permit."""
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(path: str) -> "asyncio.Future[None] | None":
        del path
        reached.set()
        return held

    settle, ended = Gate.settle, list[Settlement]()

    async def noted(gate: Gate, results: Sequence[Settlement], **offers: Any) -> Any:
        ended.extend(results)
        return await settle(gate, results, **offers)

    monkeypatch.setattr(Gate, "settle", noted)
    upstream.before_answer = hold
    await local.register()
    services = [asyncio.create_task(one.run(asyncio.Event())) for one in local.collector.services.values()]
    run_id = await local.begin()
    await reached.wait()
    await end(*services)  # as whoever stops us does when our time is over
    assert not ended

    upstream.before_answer = lambda _: None
    async with local.working():
        await local.until(run_id)

    assert (ended[0].outcome, ended[0].deliveries) == (Outcome.UNUSED, 2), "which counts as one call"
    assert (ended[1].job, ended[1].outcome) == (ended[0].job, Outcome.ANSWERED)
    assert ended[1].permit != ended[0].permit


async def test_a_failed_job_retried_before_its_permit_has_ended_is_not_lost(
    local: Library, upstream: ShelfUpstream, monkeypatch: pytest.MonkeyPatch
):
    """It is committed as failed, and the gate has it still: so it takes no offer of it, and forgets it right after."""
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    settle, retried = Gate.settle, list[int]()

    async def settle_late(gate: Gate, results: Sequence[Settlement], **offers: Any) -> Any:
        for result in results if not retried else ():
            if await local.orchestrator.retry_job(int(result.job)):
                retried.append(int(result.job))
        return await settle(gate, results, **offers)

    monkeypatch.setattr(Gate, "settle", settle_late)
    async with local.working():
        run = await local.ended()

    assert len(retried) == 1
    assert (run.succeeded_jobs, run.failed_jobs) == (8, 0)


async def test_follow_ups_of_an_ended_job_are_enqueued_before_its_message_is_returned(
    local: Library, monkeypatch: pytest.MonkeyPatch
):
    """Else nobody would come back to it, should we end in between. What is to be done again meanwhile is not lost."""
    database, jobs, offer_run = local.parts.database, local.parts.jobs, Recovery.offer_run
    pending, run_id = list[int](), await local.begin()
    (job,) = await local.jobs(run_id)
    (claim,) = await claimed(database, job.id)
    await write(database, [finished(claim, JobState.FAILED)])  # by a worker that died before it settled

    async def watch(recovery: Recovery, run: int) -> int:
        pending.append((await jobs.status()).pending)
        offered = await offer_run(recovery, run)
        await local.orchestrator.retry(run_id)  # in vain, as the gate takes it for a job that it knows
        return offered

    monkeypatch.setattr(Recovery, "offer_run", watch)
    async with local.working():
        run = await local.until(run_id)

    assert pending[0] == 1
    assert (run.succeeded_jobs, run.failed_jobs) == (8, 0)
