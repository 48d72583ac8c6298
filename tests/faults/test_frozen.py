"""A worker is frozen past its lease, and wakes with an answer in its hands."""

import asyncio

import pytest

from tests.faults.conftest import LIMITS, Open
from tests.waiting import look_again, patience
from tidegate.engine.lifecycle import JobState

pytestmark = pytest.mark.crash


async def test_the_late_result_of_a_frozen_worker_is_rejected(site: Open):
    """One call at a time, so the only one under way is the one whose answer waits for the frozen one to wake."""
    async with site(limits=LIMITS | {"concurrency": 1}) as it:
        (login,), github = it.logins, it.github
        frozen, is_frozen = await it.working(), asyncio.Event()

        def freeze(url: str) -> None:
            if "/issues" in url and not is_frozen.is_set():
                frozen.freeze()  # the call is made, and its answer waits in the socket
                is_frozen.set()

        github.on_call = freeze
        run_ids = await it.begin(login)
        await is_frozen.wait()
        # What the frozen one was told is old by now: another page follows, and an issue has another title.
        name = github.truth(login).repositories[0].repository["full_name"]
        github.mutate.edit(name, 1)
        for _ in range(120):
            github.mutate.open_issue(name)
        hold = github.hold("/issues")
        await it.working()
        await hold.arrived()  # another has claimed the job, and waits for its answer

        calls = (await it.orchestrator.show(run_ids[0])).calls
        frozen.thaw()
        async with patience():  # what comes too late is counted as a call that was made, and as nothing else
            while (await it.orchestrator.show(run_ids[0])).calls == calls:
                await look_again()
        states = {job.page_key: job.status for job in await it.jobs(run_ids[0]) if job.job_type == "REPO_ISSUES"}
        # Ready where the frozen one was given the message once more before it was taken for dead: it asks for a permit.
        assert states["first"] in (JobState.RUNNING, JobState.READY), "nobody but the other may end it"

        hold.release()
        await it.until_over(run_ids)
        assert [told for told in (await it.comparison()).differences if told.startswith("issue")] == []
        assert await it.disagreements(run_ids) == []
        (overtaken,) = [job for job in await it.jobs(run_ids[0]) if job.fence > 1 and job.job_type == "REPO_ISSUES"]
        assert (overtaken.status, overtaken.page_key) == (JobState.SUCCEEDED, "first")
