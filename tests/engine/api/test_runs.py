"""Runs and jobs over HTTP: begun, listed, shown, canceled, tried again."""

import asyncio
from pathlib import Path

import pytest

from tests.http.serving import Client, Served, served
from tests.waiting import patience
from tidegate_simulators.github import LimitSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIGHT = LimitSettings(quota=4, window_s=3_600)
"""A run begins, and soon waits for an hour: so it is certainly active while a test looks at it."""


async def test_a_run_is_started_followed_and_shown(deployment: Served):
    client, login = deployment.client, deployment.logins[0]

    begun = await client.post("/v1/runs", {"login": login})
    assert begun.status == 201, begun
    assert begun.headers["location"] == f"/v1/runs/{begun.json['id']}"
    assert (begun.json["login"], begun.json["triggered_by"]) == (login, "manual")
    ended = await client.until_over(begun.json["id"])

    assert (ended["status"], ended["succeeded_jobs"]) == ("completed", ended["total_jobs"])
    assert (ended["failures"], ended["waits"]) == ([], [])
    assert {kind["kind"] for kind in ended["kinds"]} >= {"USER_BASIC", "USER_EVENTS", "REPO_ISSUES"}
    assert sum(kind["succeeded"] for kind in ended["kinds"]) == ended["total_jobs"]
    assert (await client.get(begun.headers["location"])).json == ended


async def test_a_run_has_the_requested_options(deployment: Served):
    wishes = {"include": ["USER_BASIC", "REPO_ISSUES"], "since": "2020-01-31", "full": True, "trigger": "signup"}

    ended = await deployment.collect(deployment.logins[1], **wishes)

    assert ended["options"] == {"include": ["USER_BASIC", "REPO_ISSUES"], "since": "2020-01-31", "full": True}
    assert ended["triggered_by"] == "signup"
    assert {kind["kind"] for kind in ended["kinds"]} == {"USER_BASIC", "REPO_ISSUES"}


async def test_a_login_is_case_insensitive(deployment: Served):
    login = deployment.logins[2]
    ended = await deployment.collect(login.upper())

    assert ended["login"] == login
    for written in (login.title(), f"@{login}", f"https%3A%2F%2Fgithub.com%2F{login.upper()}"):
        listed = (await deployment.client.get(f"/v1/runs?login={written}")).json["runs"]
        assert [run["id"] for run in listed] == [ended["id"]]
    for written in (login.title(), f"@{login}"):
        assert (await deployment.client.get(f"/v1/users/{written}/statistics")).json["login"] == login


@pytest.mark.parametrize("written", ["@{}", "https://github.com/{}", "github.com/{}/", " {} "])
async def test_a_login_may_be_a_profile_url_or_have_an_at_sign(written: str, deployment: Served):
    login = deployment.logins[12]

    ended = await deployment.collect(written.format(login), include=["USER_BASIC"])
    several = [written.format(login), login.upper(), login]
    answer = await deployment.client.post("/v1/runs", {"logins": several, "include": ["USER_BASIC"]})
    [result] = answer.json["results"]
    await deployment.client.until_over(result["run_id"])

    assert (ended["login"], ended["user_id"]) == (login, login)
    assert (result["login"], result["status"]) == (login, 201)


async def test_each_of_several_logins_has_its_own_status_and_an_invalid_one_does_not_affect_the_others(
    deployment: Served,
):
    first, second = deployment.logins[3:5]

    answer = await deployment.client.post("/v1/runs", {"logins": [first, "no--such-", second, first]})

    assert (answer.status, answer.json["begun"]) == (207, 3)
    results = {result["login"]: result for result in answer.json["results"]}
    assert list(results) == [first, "no--such-", second], "the same login twice is one run"
    assert {result["status"] for result in results.values()} == {201}
    for login in (first, second):
        assert (await deployment.client.until_over(results[login]["run_id"]))["status"] == "completed"
    assert (await deployment.client.until_over(results["no--such-"]["run_id"]))["status"] == "failed"


async def test_runs_are_paginated_newest_first(deployment: Served):
    for login in deployment.logins[5:8]:
        await deployment.collect(login, include=["USER_BASIC"])

    found, link = list[int](), "/v1/runs?state=completed&state=failed&limit=2"
    while link:
        page = (await deployment.client.get(link)).json
        assert len(page["runs"]) <= 2
        found += [run["id"] for run in page["runs"]]
        link = page["next"]

    assert found == sorted(set(found), reverse=True)
    assert len(found) >= 3
    everything = (await deployment.client.get("/v1/runs?limit=500")).json
    assert ([run["id"] for run in everything["runs"]], everything["next"]) == (found, None)
    assert (await deployment.client.get("/v1/runs?state=canceled")).json == {"runs": [], "next": None}


async def test_runs_are_found_by_a_part_of_the_subject_and_by_time(deployment: Served):
    client, login = deployment.client, deployment.logins[13]
    runs = [await deployment.collect(login, include=["USER_BASIC"]) for _ in range(3)]
    oldest, _, newest = (run["id"] for run in runs)

    found, link = list[int](), f"/v1/runs?search={login[1:].upper()}&since={runs[0]['created_at']}&limit=2"
    while link:
        page = (await client.get(link)).json
        found += [run["id"] for run in page["runs"] if run["login"] == login]
        link = page["next"]

    assert found == sorted((run["id"] for run in runs), reverse=True)
    before = (await client.get(f"/v1/runs?login={login}&until={runs[2]['created_at']}")).json["runs"]
    assert newest not in [run["id"] for run in before]
    assert oldest in [run["id"] for run in before]
    for nonsense in ("search=", "search=%00", "since=2026-01-01", "since=yesterday", f"search={'x' * 201}"):
        refused = await client.get(f"/v1/runs?{nonsense}")
        assert refused.status == 422, nonsense
    reversed_range = await client.get("/v1/runs?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z")
    assert "must be after since" in reversed_range.json["detail"]


async def test_the_jobs_of_a_run_are_listed_by_state_and_page(deployment: Served):
    ended = await deployment.collect(deployment.logins[8])
    path = f"/v1/runs/{ended['id']}/jobs"

    found, link = list[int](), f"{path}?state=succeeded&state=failed&limit=3"
    while link:
        page = (await deployment.client.get(link)).json
        found += [job["id"] for job in page["jobs"]]
        link = page["next"]

    assert found == sorted(set(found))
    assert len(found) == ended["total_jobs"]
    assert (await deployment.client.get(f"{path}?state=running")).json == {"jobs": [], "next": None}
    [first] = (await deployment.client.get(f"{path}?limit=1")).json["jobs"]
    assert (first["kind"], first["status"], first["attempts"]) == ("USER_BASIC", "succeeded", 1)


async def test_failed_jobs_are_shown_with_reason_and_retried_together_or_alone(deployment: Served):
    client = deployment.client
    ended = await deployment.collect("nobody-of-this-name")
    assert ended["status"] == "failed"
    assert {failure["reason"] for failure in ended["failures"]} == {
        "404: Not Found",
        "404: Not Found: GitHub has no user 'nobody-of-this-name'; check the spelling",
    }
    failed = [failure["job_id"] for failure in ended["failures"]]
    assert len(failed) == ended["failed_jobs"] > 1

    again = await client.post(f"/v1/runs/{ended['id']}/retry")
    assert (again.status, again.json) == (200, {"run_id": ended["id"], "jobs": len(failed)})
    assert (await client.until_over(ended["id"]))["failed_jobs"] == len(failed)

    alone = await client.post(f"/v1/jobs/{failed[0]}/retry")
    assert (alone.status, alone.json) == (200, {"run_id": ended["id"], "jobs": 1})
    assert (await client.until_over(ended["id"]))["status"] == "failed"


async def test_a_job_that_has_not_failed_is_not_retried(deployment: Served):
    ended = await deployment.collect(deployment.logins[9], include=["USER_BASIC"])
    [job, *_] = (await deployment.client.get(f"/v1/runs/{ended['id']}/jobs")).json["jobs"]

    assert (await deployment.client.post(f"/v1/runs/{ended['id']}/retry")).json["jobs"] == 0
    refused = await deployment.client.post(f"/v1/jobs/{job['id']}/retry")
    assert (refused.status, refused.problem) == (409, "conflict")
    assert (await deployment.client.get(f"/v1/runs/{ended['id']}")).json["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/runs/987654"),
        ("GET", "/v1/runs/987654/events"),
        ("GET", "/v1/runs/987654/jobs"),
        ("POST", "/v1/runs/987654/cancel"),
        ("POST", "/v1/runs/987654/retry"),
        ("POST", "/v1/jobs/987654/retry"),
        ("GET", "/v1/users/nobody-here/statistics"),
        ("GET", "/v1/runs/0"),
        ("GET", "/v1/runs/-1"),
        ("GET", "/v1/runs/abc"),
        ("GET", f"/v1/runs/{2**63}"),
        ("POST", "/v1/jobs/1.5/retry"),
        ("GET", "/v1/users/a%2Fb/statistics"),
    ],
)
async def test_an_unknown_resource_is_not_found(method: str, path: str, deployment: Served):
    answer = await deployment.client.ask(method, path)

    assert (answer.status, answer.problem) == (404, "not-found")


async def test_statistics_are_available_when_a_run_is_complete(deployment: Served):
    login = deployment.logins[10]
    assert (await deployment.client.get(f"/v1/users/{login}/statistics")).status == 404
    await deployment.collect(login)

    of_user = (await deployment.client.get(f"/v1/users/{login}/statistics")).json
    overall = (await deployment.client.get("/v1/statistics?days=7")).json

    assert (of_user["login"], of_user["repositories"]["total"]) == (login, 1)
    assert overall["totals"]["users"] >= 1
    assert len(overall["days"]) == 7


async def begin(client: Client, login: str) -> int:
    begun = await client.post("/v1/runs", {"login": login})
    assert begun.status == 201, begun
    return begun.json["id"]


async def test_a_user_has_one_active_run_and_the_second_request_names_it(tmp_path: Path):
    """So a client whose first answer was lost sends the same again."""
    async with served(tmp_path, limits=TIGHT) as poor:
        client, login = poor.client, poor.logins[0]
        run_id = await begin(client, login)

        second = await client.post("/v1/runs", {"login": login})
        several = await client.post("/v1/runs", {"logins": [login]})

        assert (second.status, second.problem, second.json["run_id"]) == (409, "run-active", run_id)
        assert second.headers["location"] == f"/v1/runs/{run_id}"
        assert (several.status, several.json["begun"]) == (207, 0)
        assert several.json["results"][0] | {"detail": ""} == {
            "login": login,
            "status": 409,
            "run_id": run_id,
            "detail": "",
        }
        assert (await client.post(f"/v1/runs/{run_id}/cancel")).status == 200


async def test_of_concurrent_starts_for_one_user_one_succeeds(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT) as poor:
        body = {"login": poor.logins[0]}
        answers = await asyncio.gather(*(poor.client.post("/v1/runs", body) for _ in range(20)))

        begun = [answer for answer in answers if answer.status == 201]
        assert len(begun) == 1
        named = {answer.json["run_id"] for answer in answers if answer.status == 409}
        assert named == {begun[0].json["id"]}


async def test_a_canceled_run_is_ended_and_canceling_again_has_no_effect(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        following = asyncio.create_task(poor.client.until_over(run_id))

        first = await poor.client.post(f"/v1/runs/{run_id}/cancel")
        again = await poor.client.post(f"/v1/runs/{run_id}/cancel")

        assert (first.status, first.json["status"]) == (200, "canceled")
        late = {name: again.json[name] for name in ("calls", "started_at")}  # of a call that was under way
        assert (again.status, again.json) == (200, first.json | late)
        assert (await following)["status"] == "canceled", "whoever listens is told"
        retried = await poor.client.post(f"/v1/runs/{run_id}/retry")
        assert (retried.status, retried.problem) == (409, "conflict")


async def test_a_run_that_is_complete_cannot_be_canceled(deployment: Served):
    ended = await deployment.collect(deployment.logins[11], include=["USER_BASIC"])
    refused = await deployment.client.post(f"/v1/runs/{ended['id']}/cancel")

    assert (refused.status, refused.problem, refused.json["run_id"]) == (409, "conflict", ended["id"])


async def test_without_a_credential_no_run_is_started(tmp_path: Path):
    async with served(tmp_path, has_token=False) as bare:
        alone = await bare.client.post("/v1/runs", {"login": bare.logins[0]})
        several = await bare.client.post("/v1/runs", {"logins": bare.logins})

        assert (alone.status, alone.problem) == (409, "no-credential")
        assert "credentials add" in alone.json["detail"]
        assert [result["status"] for result in several.json["results"]] == [409, 409]
        assert (await bare.client.get("/v1/runs")).json["runs"] == []


async def test_after_removal_of_the_configured_token_no_run_is_started(tmp_path: Path):
    async with served(tmp_path) as rich:
        assert (await rich.client.ask("DELETE", "/v1/credentials/GITHUB_TOKEN")).status == 200

        alone = await rich.client.post("/v1/runs", {"login": rich.logins[0]})
        several = await rich.client.post("/v1/runs", {"logins": rich.logins})

        assert (alone.status, alone.problem) == (409, "no-credential")
        for word in ("GITHUB_TOKEN was removed", "restart the process", "credentials add"):
            assert word in alone.json["detail"]
        assert [result["status"] for result in several.json["results"]] == [409, 409]
        assert (await rich.client.get("/v1/runs")).json["runs"] == []
        added = {"token": rich.sim.token_of(rich.sim.world.operators()[0]), "check": True}
        assert (await rich.client.post("/v1/credentials", added)).status == 201
        assert (await rich.collect(rich.logins[0], include=["USER_BASIC"]))["status"] == "completed"


async def test_a_waiting_run_shows_reason_and_end_of_the_wait(tmp_path: Path):
    async with served(tmp_path, users=1, repositories=3, limits=TIGHT) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        async with patience():
            async for event in poor.client.events(f"/v1/runs/{run_id}/events"):
                waits = event.data["waits"] if event.data else []
                if waits and waits[0]["reason"] == "exhausted":
                    break
            else:
                raise AssertionError("it never waited")

        [wait] = waits
        assert wait["bucket"] == "core"
        assert wait["opens_at"] > event.data["created_at"]
        quotas = (await poor.client.get("/v1/quotas")).json["pools"]
        [allowance] = quotas[0]["allowances"]
        assert quotas[0]["waiting"]["core"] > 0
        assert allowance["credentials"] == [wait["credential"]] == ["GITHUB_TOKEN"]
        [bucket] = [each for each in allowance["buckets"] if each["name"] == "core"]
        assert (bucket["limit"], bucket["left"], bucket["reason"]) == (4, 0, "exhausted")
        assert bucket["opens_at"] is not None
        await poor.client.post(f"/v1/runs/{run_id}/cancel")
