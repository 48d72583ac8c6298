"""The overview is right: while a run goes on, when it failed, while it waits for a quota, and when nobody works."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.engine.api.test_runs import TIGHT, begin
from tests.http.serving import Client, Served, served
from tidegate.dashboard.attention import CredentialWait, DeploymentState, PoolWait, find_attention
from tidegate.dashboard.dead_letters import DeadLetterCount
from tidegate.dashboard.runtime_status import ProcessList
from tidegate.engine.credentials import Credential, CredentialKind, CredentialState
from tidegate.engine.reports.overview import FailedJob, JobCounts, RunCounts
from tidegate.primitives.stream.message import StreamStatus
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event

pytestmark = pytest.mark.asyncio(loop_scope="module")

GITHUB = "https://api.github.com"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


async def test_an_idle_deployment_has_an_overview_without_problems(deployment: Served):
    def is_led(seen: dict[str, Any]) -> bool:
        return (seen["leader"], seen["processes"]) == (deployment.collection.parts.owner, 1)

    # A starved process may lose its lease, and gets it back.
    told = await deployment.client.until("/v1/overview", is_led)

    assert [(server["name"], server["is_up"], server["reason"]) for server in told["servers"]] == [
        ("database", True, None),
        ("valkey", True, None),
    ]
    assert (told["active"], told["waits"], told["unknown"]) == ([], [], [])
    assert told["jobs"] == dict.fromkeys(JobCounts.__struct_fields__, 0)
    assert [each for each in told["attention"] if each["severity"] == "critical"] == []
    assert {each["kind"] for each in told["dead"]} == {"events", "messages", "campaigns", "crawl"}
    assert datetime.fromisoformat(told["at"]) <= datetime.now(UTC)


async def test_an_ended_run_is_counted_and_no_longer_active(deployment: Served):
    before = (await deployment.client.get("/v1/overview")).json["runs"]

    await deployment.collect(deployment.logins[0])

    told = (await deployment.client.get("/v1/overview")).json
    assert told["runs"] == before | {"completed": before["completed"] + 1}
    assert told["active"] == []


async def test_failures_are_shown_with_reason_and_link(deployment: Served):
    ended = await deployment.collect("nobody-of-this-name")

    told = (await deployment.client.get("/v1/overview")).json

    ours = [job for job in told["failed"] if job["run_id"] == ended["id"]]
    assert {job["job_id"] for job in ours} == {failure["job_id"] for failure in ended["failures"]}
    assert {(job["login"], job["source"]) for job in ours} == {("nobody-of-this-name", "github")}
    assert all(job["reason"].startswith("404: Not Found") for job in ours)
    assert [job["at"] for job in ours] == sorted((job["at"] for job in ours), reverse=True)
    assert told["runs"]["failed"] >= 1
    assert {"severity": "info", "link": "#/runs?state=failed"}.items() <= told["attention"][-1].items()


async def test_a_run_waiting_for_quota_is_shown_with_reason_and_time(tmp_path: Path):
    async with served(tmp_path, limits=TIGHT, users=1, dashboard=True) as poor:
        run_id = await begin(poor.client, poor.logins[0])
        # Right after the first request the credential is still being probed.
        told = await poor.client.until(
            "/v1/overview",
            lambda told: [wait["reason"] for wait in told["waits"]] == ["exhausted"] and not told["jobs"]["running"],
        )
        detail = (await poor.client.get(f"/v1/runs/{run_id}")).json

        [wait] = told["waits"]
        assert (wait["bucket"], wait["reason"], wait["jobs"]) == ("core", "exhausted", told["jobs"]["waiting"])
        [credential] = wait["credentials"]
        assert credential == {"credential": "GITHUB_TOKEN", "reason": "exhausted", "opens_at": wait["until"]}
        left = datetime.fromisoformat(wait["until"]) - datetime.now(UTC)
        assert timedelta(minutes=50) < left < timedelta(minutes=61)
        assert [run["id"] for run in told["active"]] == [run_id]
        assert {name: told["jobs"][name] for name in ("total", "succeeded", "failed")} == {
            "total": detail["total_jobs"],
            "succeeded": detail["succeeded_jobs"],
            "failed": 0,
        }
        assert told["runs"]["running"] + told["runs"]["planning"] == 1
        [attention] = told["attention"]
        assert (attention["severity"], attention["until"]) == ("info", wait["until"])
        assert "GITHUB_TOKEN" in attention["text"]

        runtime = (await poor.client.get("/v1/runtime")).json
        assert runtime["gate"]["pools"][0]["waiting"] == {"core": wait["jobs"]}
        assert runtime["gate"]["waiting"] == wait["jobs"]
        await poor.client.post(f"/v1/runs/{run_id}/cancel")


async def test_missing_workers_are_the_first_problem_shown(tmp_path: Path):
    async with served(tmp_path, users=1, works=False, dashboard=True) as idle:
        run_id = await begin(idle.client, idle.logins[0])
        told = await idle.client.until("/v1/overview", lambda told: told["jobs"]["waiting"] > 0)

        assert told["attention"][0]["severity"] == "critical"
        assert told["attention"][0]["text"].startswith(f"No worker is running: {told['jobs']['waiting']} jobs pending")
        await idle.client.post(f"/v1/runs/{run_id}/cancel")


def is_anything_dead(told: Any) -> bool:
    return any(each["count"] for each in told["dead"])


def _add_dead_letter(tx: Transaction) -> None:
    outbox.add(tx, Event("no.handler", "dead letters", {}))
    [event] = outbox.pending_page(tx, after=0, limit=10, kinds=["no.handler"])
    outbox.mark_dead(tx, event.id, attempts=12, error="it failed")


async def test_dead_letters_are_counted_by_kind_and_listed_as_problems(deployment: Served):
    database = deployment.collection.parts.database
    await database.transaction(_add_dead_letter)

    counts = (await deployment.client.until("/v1/overview/dead", is_anything_dead))["dead"]
    told = (await deployment.client.get("/v1/overview")).json

    [events] = [each for each in counts if each["kind"] == "events"]
    assert events == {"kind": "events", "label": "events", "count": 1, "parts": [], "link": "#/dead/events"}
    assert told["dead"] == counts
    assert {"severity": "warning", "text": "1 dead letter of events", "link": "#/dead/events", "until": None} in (
        told["attention"]
    )


async def test_the_runtime_shows_the_leader_and_the_workers(deployment: Served):
    owner = deployment.collection.parts.owner

    told = (await deployment.client.get("/v1/runtime")).json

    named = [f"{part}{name}" for part in ("", "github.", "crawl.") for name in ("jobs", "alarms")]
    assert [stream["name"] for stream in told["streams"]] == named
    jobs = told["streams"][named.index("github.jobs")]
    assert any(consumer["name"].startswith(owner) for consumer in jobs["consumers"])
    [process] = told["processes"]
    assert (process["owner"], process["is_leader"], process["is_here"]) == (owner, True, True)
    assert owner.startswith(f"{process['host']}.{process['pid']}.")
    assert 0 < process["lease_ms"] <= 10_000
    assert [timers["name"] for timers in told["timers"]] == [
        f"{part}{name}" for part in ("", "github.", "crawl.") for name in ("alarms", "gate")
    ]
    assert (told["outbox"]["pending"], told["unknown"]) == (0, [])


async def test_the_crawl_is_shown_also_without_sites(deployment: Served):
    told = (await deployment.client.get("/v1/crawl/overview")).json

    assert (told["active"], told["unknown"]) == ([], [])
    assert set(told["pages"].values()) == {0}
    assert told["raws"] == {"pending": 0, "failed": 0, "processed_day": 0}
    assert told["hosts"] == {"total": 0, "resting": []}
    assert told["identities"] == {"enabled": 1, "disabled": 0, "resting": 0}


async def test_missing_snapshot_kinds_are_explained(deployment: Served):
    answer = await deployment.client.get("/v1/snapshots/overview")

    assert (answer.status, answer.problem) == (404, "not-found")
    assert "no kind of snapshots is configured" in answer.json["detail"]


def credential(state: CredentialState = CredentialState.VALID, audience: str = GITHUB) -> Credential:
    return Credential(
        source="github",
        name="ours",
        kind=CredentialKind.TOKEN,
        owner="mona",
        account="mona",
        allowance="user-1@api.github.com",
        audience=audience,
        pool="github",
        user_id=None,
        state=state,
        details={},
        created_at=NOW,
        changed_at=NOW,
        checked_at=NOW,
        invalid_at=None,
        invalid_reason=None,
    )


def state(**changes: Any) -> DeploymentState:
    quiet: dict[str, Any] = {
        "now": NOW,
        "away": [],
        "processes": None,
        "runs": RunCounts(),
        "jobs": JobCounts(),
        "failed": [],
        "waits": [],
        "credentials": [credential()],
        "audiences": {"github": GITHUB},
        "awaited_tokens": {},
        "dead": [],
        "open_breakers": [],
    }
    return DeploymentState(**(quiet | changes))


def waiting(reason: str, *credentials: str) -> PoolWait:
    waits = [CredentialWait(credential=name, reason=reason, opens_at=None) for name in credentials]
    return PoolWait(pool="github", bucket="core", jobs=3, reason=reason, until=None, credentials=waits)


async def test_the_most_severe_problem_comes_first_and_temporary_conditions_are_omitted():
    nobody = ProcessList(members=[], jobs=[StreamStatus(0, 0, 0, 0, [])])
    dead = DeadLetterCount(kind="snapshots", label="snapshots", count=12, parts=[], link="#/dead/snapshots")
    none = DeadLetterCount(kind="crawl", label="the crawl", count=0, parts=[], link="#/dead/crawl")

    told = find_attention(
        state(
            runs=RunCounts(failed=1),
            waits=[waiting("exhausted", "mona"), waiting("concurrency", "mona"), waiting("no_credential")],
            dead=[dead, none],
            processes=nobody,
            away=["database"],
        )
    )

    assert [(each.severity, each.text) for each in told] == [
        ("critical", "The database does not answer"),
        ("critical", "There is no leader: timers, schedules and the completion of runs are delayed"),
        ("critical", "No credential serves the pool github; waiting for core: 3 jobs"),
        ("warning", "12 dead letters of snapshots"),
        ("info", "The quota of mona for core is used up; waiting: 3 jobs"),
        ("info", "1 run failed in the last 24 hours"),
    ]
    assert find_attention(state()) == []


@pytest.mark.parametrize(
    "credentials", [[], [credential(CredentialState.INVALID)], [credential(audience="https://github.example/api/v3")]]
)
async def test_a_missing_valid_credential_is_a_problem(credentials: list[Credential]):
    told = find_attention(state(credentials=credentials))

    assert (told[-1].severity, told[-1].link) == ("info", "#/credentials")
    assert told[-1].text.startswith(f"There is no valid credential for {GITHUB}, so nothing can be collected")


async def test_a_token_waiting_for_its_upstream_is_shown_instead_of_a_missing_credential():
    [told] = find_attention(state(credentials=[], awaited_tokens={"github": "no connection"}))

    assert (told.severity, told.text) == ("warning", "GITHUB_TOKEN is not in use yet: no connection")


async def test_credentials_are_not_judged_while_the_database_is_unavailable():
    assert find_attention(state(credentials=None)) == []


def failed(minutes_ago: int) -> FailedJob:
    return FailedJob(
        job_id=1,
        run_id=7,
        source="github",
        login="mona",
        kind="commits",
        resource="mona/left-pad",
        attempts=5,
        reason="no connection",
        at=NOW - timedelta(minutes=minutes_ago),
    )


@pytest.mark.parametrize(
    ("ages", "text"),
    [
        ([1], "1 job failed in the last 10 minutes. Latest reason: no connection"),
        ([1, 9, 11], "2 jobs failed in the last 10 minutes. Latest reason: no connection"),
        ([1] * 10, "10 jobs or more failed in the last 10 minutes. Latest reason: no connection"),
    ],
)
async def test_an_unavailable_upstream_is_inferred_from_failing_jobs(ages: list[int], text: str):
    [told] = find_attention(state(failed=[failed(age) for age in ages]))

    assert (told.severity, told.text, told.link) == ("warning", text, "#/runs/7")


async def test_old_failures_are_not_shown_as_problems():
    assert find_attention(state(failed=[failed(11)])) == []


async def ask(client: Client, path: str, times: int) -> list[bytes]:
    asked: list[Awaitable[Any]] = [client.get(path) for _ in range(times)]
    return [answer.body for answer in await asyncio.gather(*asked)]


async def test_concurrent_requests_share_few_reads(deployment: Served):
    bodies = await ask(deployment.client, "/v1/overview", 20)

    assert len(set(bodies)) <= 5, "each read has a moment of its own"
