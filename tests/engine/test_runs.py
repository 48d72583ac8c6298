"""A run from its beginning to its end, on every database."""

import asyncio

import pytest

from tests.engine.conftest import Library
from tests.engine.shelf import ShelfUpstream, broken
from tidegate.core.errors import InvalidArgument, NotFound
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.runs import RunActive
from tidegate.engine.source import Subject

ADAS = [f"ada-novels-{n}" for n in range(7)] + [f"ada-poems-{n}" for n in range(3)]


@pytest.mark.every_server
async def test_a_run_collects_everything_with_one_call_per_page(library: Library, upstream: ShelfUpstream):
    async with library.working():
        run = await library.until(await library.begin())

    assert await library.items() == sorted(ADAS)
    assert set(upstream.calls.values()) == {1}
    assert upstream.calls.total() == 1 + 4 + 2 + 1
    assert (run.total_jobs, run.succeeded_jobs, run.failed_jobs) == (8, 8, 0)


async def test_a_second_run_of_a_user_is_refused_while_the_first_is_active(library: Library):
    first = await library.begin()
    with pytest.raises(RunActive, match=f"ada has an active run already: {first}"):
        await library.begin()
    async with library.working():
        await library.until(first)
        second = await library.begin()
        await library.until(second)


@pytest.mark.every_server
async def test_of_two_concurrent_starts_one_succeeds(library: Library):
    results = await asyncio.gather(*(library.begin() for _ in range(5)), return_exceptions=True)

    assert sum(isinstance(result, int) for result in results) == 1
    assert all(isinstance(result, int | RunActive) for result in results), results


@pytest.mark.every_server
async def test_a_temporary_fault_is_retried(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [500, 502, 200]
    async with library.working():
        run = await library.until(await library.begin())

    assert run.failed_jobs == 0
    assert upstream.calls["/shelves/ada-poems/0"] == 3
    assert await library.items() == sorted(ADAS)


async def test_a_permanent_fault_fails_its_job_and_not_the_run(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [500] * 9
    async with library.working():
        run_id = await library.begin()
        run = await library.until(run_id)

    assert (run.succeeded_jobs, run.failed_jobs) == (6, 1)
    assert upstream.calls["/shelves/ada-poems/0"] == 5
    (failed,) = [job for job in await library.jobs(run_id) if job.status == JobState.FAILED]
    assert (failed.resource_key, failed.last_error, failed.attempt_count) == ("shelf:ada-poems", "status 500", 5)


async def test_a_gone_resource_fails_immediately_with_the_reason(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with library.working():
        run_id = await library.begin()
        assert (await library.until(run_id)).failed_jobs == 1

    assert upstream.calls["/shelves/ada-poems/0"] == 1
    assert "no such shelf" in [job.last_error for job in await library.jobs(run_id)]


async def test_a_requested_pause_counts_no_attempt(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/users/ada"] = [429] * 8
    async with library.working():
        run_id = await library.begin()
        assert (await library.until(run_id)).failed_jobs == 0

    assert [job.attempt_count for job in await library.jobs(run_id) if job.job_type == "USER"] == [1]


@pytest.mark.every_server
async def test_failed_jobs_are_retried_and_the_run_ends_again(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/shelves/ada-poems/0"] = [404]
    async with library.working():
        run_id = await library.begin()
        await library.until(run_id)

        assert await library.orchestrator.retry(run_id) == 1
        run = await library.until(run_id)

    assert (run.succeeded_jobs, run.failed_jobs, run.total_jobs) == (8, 0, 8)
    assert await library.items() == sorted(ADAS)


@pytest.mark.every_server
async def test_a_canceled_run_makes_no_further_calls(library: Library, upstream: ShelfUpstream):
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reached = asyncio.Event()

    def hold(path: str) -> "asyncio.Future[None] | None":
        if path != "/shelves/ada-novels/0":
            return None
        reached.set()
        return held

    upstream.before_answer = hold
    async with library.working():
        run_id = await library.begin()
        await reached.wait()
        assert await library.orchestrator.cancel(run_id)
        held.set_result(None)
        assert not await library.orchestrator.cancel(run_id)
        run = await library.until(run_id, RunState.CANCELED)

    assert upstream.calls["/shelves/ada-novels/1"] == 0
    assert run.succeeded_jobs + run.canceled_jobs == run.total_jobs
    assert {job.status for job in await library.jobs(run_id)} <= {JobState.SUCCEEDED, JobState.CANCELED}


async def test_a_broken_connection_is_retried(library: Library, upstream: ShelfUpstream):
    upstream.trouble["/users/ada"] = [broken()]
    async with library.working():
        run_id = await library.begin()
        run = await library.until(run_id)

    assert run.failed_jobs == 0
    assert upstream.calls["/users/ada"] == 2


async def test_jobs_committed_but_not_enqueued_by_a_dead_process_are_found(library: Library):
    """The run was written, and nobody told the gate."""
    run_id = await library.begin()
    await library.parts.valkey.execute("FLUSHALL")
    async with library.working():
        await library.until(run_id)

    assert await library.items() == sorted(ADAS)


async def test_a_run_survives_a_flush_of_valkey(library: Library, upstream: ShelfUpstream):
    upstream.shelves["ada-novels"] = 60
    flushed = asyncio.Event()

    def flush(path: str) -> "asyncio.Future[None] | None":
        if path != "/shelves/ada-novels/10" or flushed.is_set():
            return None
        flushed.set()
        return asyncio.ensure_future(library.parts.valkey.execute("FLUSHALL"))

    upstream.before_answer = flush
    async with library.working():
        run = await library.until(await library.begin())

    assert flushed.is_set()
    assert len(await library.items()) == 63
    assert run.succeeded_jobs == run.total_jobs


async def test_invalid_arguments_are_refused(library: Library):
    with pytest.raises(InvalidArgument, match=r"^source is 'unknown'"):
        await library.orchestrator.begin("unknown", Subject(user_id="ada", login="ada"), pool="p")
    with pytest.raises(InvalidArgument, match=r"^user_id is ''"):
        await library.orchestrator.begin("shelves", Subject(user_id="", login="ada"), pool="p")
    with pytest.raises(NotFound, match="there is no run 99"):
        await library.orchestrator.cancel(99)
