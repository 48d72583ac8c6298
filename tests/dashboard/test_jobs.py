"""One job: shown, and done again once, however often and from how many sides that is asked for."""

import asyncio

import pytest

from tests.http.serving import Served
from tests.waiting import patience
from tidegate.engine.reports.progress import kinds_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def agree(deployment: Served, run_id: int) -> None:
    """The counters of the run are what its jobs say."""
    run = (await deployment.client.get(f"/v1/runs/{run_id}")).json
    kinds = await deployment.collection.parts.database.read(kinds_of, [run_id])
    assert run["total_jobs"] == sum(kind.total for kind in kinds)
    assert run["failed_jobs"] == sum(kind.failed for kind in kinds)
    assert run["succeeded_jobs"] == sum(kind.succeeded + kind.unavailable for kind in kinds)


async def test_a_job_is_shown_with_its_run(deployment: Served):
    ended = await deployment.collect("nobody-at-all")
    [failure, *_] = ended["failures"]

    shown = (await deployment.client.get(f"/v1/jobs/{failure['job_id']}")).json

    listed = (await deployment.client.get(f"/v1/runs/{ended['id']}/jobs?state=failed")).json["jobs"]
    [row] = [job for job in listed if job["id"] == failure["job_id"]]
    executions = shown.pop("executions")
    assert shown == row | {
        "source": "github",
        "login": "nobody-at-all",
        "run_status": "failed",
        "unreported_claims": 0,
    }
    [last] = [one for one in executions if one["outcome"] == "failed"]
    assert (last["reason"], last["next_try_at"]) == (row["last_error"], None)
    assert (last["call"]["method"], last["call"]["status"]) == ("GET", 404)
    assert last["call"]["request_id"]
    assert (await deployment.client.get(f"/v1/jobs/{failure['job_id']}/executions")).json == {"executions": executions}
    assert (await deployment.client.get("/v1/jobs/987654")).problem == "not-found"
    assert (await deployment.client.get("/v1/jobs/0")).problem == "not-found"


async def test_concurrent_retries_of_one_job_succeed_once_and_the_run_continues(deployment: Served):
    client = deployment.client
    ended = await deployment.collect("nobody-of-that-name")
    [job_id, *others] = [failure["job_id"] for failure in ended["failures"]]
    assert others, "there is another, which stays as it is"

    answers = await asyncio.gather(*(client.post(f"/v1/jobs/{job_id}/retry") for _ in range(10)))

    good = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status == 409]
    assert len(good) + len(refused) == 10
    assert len(good) >= 1, answers
    assert {answer.problem for answer in refused} <= {"conflict"}
    again = await client.until_over(ended["id"])
    shown = (await client.get(f"/v1/jobs/{job_id}")).json
    assert (again["status"], again["failed_jobs"]) == ("failed", ended["failed_jobs"])
    assert shown["status"] == "failed"
    await agree(deployment, ended["id"])
    # The job is done once for each that was told so, and never twice for one.
    assert again["calls"] - ended["calls"] <= len(good) * shown["max_attempts"]


async def test_concurrent_retries_of_a_job_and_its_run_enqueue_each_job_once(deployment: Served):
    client = deployment.client
    ended = await deployment.collect("nobody-whatever")
    failed = [failure["job_id"] for failure in ended["failures"]]

    whole, alone = await asyncio.gather(
        client.post(f"/v1/runs/{ended['id']}/retry"), client.post(f"/v1/jobs/{failed[0]}/retry")
    )

    assert whole.status == 200
    retried = whole.json["jobs"] + (alone.json["jobs"] if alone.status == 200 else 0)
    assert retried >= len(failed), (whole, alone)
    await client.until_over(ended["id"])
    await agree(deployment, ended["id"])


async def test_a_job_of_a_canceled_run_is_not_retried(deployment: Served):
    client = deployment.client
    ended = await deployment.collect("nobody-is-canceled")
    [job_id, *_] = [failure["job_id"] for failure in ended["failures"]]
    # Between the retry and the cancel it may have ended: then it is tried again until it has not.
    async with patience():
        while True:
            await client.post(f"/v1/jobs/{job_id}/retry")
            if (await client.post(f"/v1/runs/{ended['id']}/cancel")).status == 200:
                break
            await client.until_over(ended["id"])
    other = next(failure["job_id"] for failure in ended["failures"] if failure["job_id"] != job_id)

    refused = await client.post(f"/v1/jobs/{other}/retry")

    assert (refused.status, refused.problem) == (409, "conflict")
    assert "was canceled" in refused.json["detail"]
