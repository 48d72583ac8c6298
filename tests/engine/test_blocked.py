"""A credential that has to rest sends nothing that was dispatched before and had not left."""

import asyncio
from itertools import pairwise

from tests.engine.conftest import POOL, Library
from tests.engine.shelf import ShelfUpstream
from tests.waiting import simulated_delay
from tidegate.core.clock import monotonic_ms
from tidegate.engine.gate_sync import Recovery

REST_MS = 1_500


async def test_jobs_that_were_not_sent_wait_at_the_gate_without_a_counted_attempt(
    local: Library, upstream: ShelfUpstream
):
    """Two calls at a time, so most of the jobs that have their permits are not sent yet when one is refused."""
    upstream.shelves = {f"ada-{n}": 1 for n in range(30)}
    upstream.trouble["/shelves/ada-4/0"] = [429]
    library = Library(local.parts, upstream, at_once=2)
    library.source.rest_ms = REST_MS
    refused_ms = list[float]()

    def note(path: str) -> "asyncio.Future[None] | None":
        if path == "/shelves/ada-4/0" and not refused_ms:
            refused_ms.append(monotonic_ms())
        return asyncio.ensure_future(simulated_delay(0.001))

    upstream.before_answer = note
    async with library.working():
        run = await library.ended()

    assert (run.succeeded_jobs, run.failed_jobs, run.calls) == (31, 0, 32)
    assert upstream.calls.total() == 32, "whoever was not sent is called once"
    assert {job.attempt_count for job in await library.jobs(run.id)} == {1}
    # One other call may have been under way when the refusal was.
    during = [at for at in upstream.sent_ms if refused_ms[0] < at < refused_ms[0] + REST_MS]
    assert len(during) <= 1
    assert max(after - before for before, after in pairwise(upstream.sent_ms)) >= REST_MS - 50
    status = await library.parts.gate.status(POOL)
    assert status.credentials[0].concurrency_now < 50


async def test_a_gate_without_data_restores_allowances_from_sql(local: Library, upstream: ShelfUpstream):
    upstream.shelves = {f"ada-{n}": 1 for n in range(10)}
    upstream.trouble["/shelves/ada-4/0"] = [429]
    async with local.working():
        await local.ended()
    (before,) = (await local.parts.gate.status(POOL)).credentials
    assert before.concurrency_now < before.concurrency

    await local.parts.valkey.execute("FLUSHALL")
    await Recovery(local.parts.database, local.parts.gate).remind_gate()
    await local.register()
    (after,) = (await local.parts.gate.status(POOL)).credentials
    assert (after.concurrency_now, after.per_minute_now) == (before.concurrency_now, before.per_minute_now)
