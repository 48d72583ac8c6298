"""GitHub fails, refuses, renames, computes and moves; workers in processes of their own bear it."""

from collections import defaultdict

import aiohttp
import pytest
from chaos.deployment import Site

from tests.faults.conftest import CALM, LIMITS, PATIENT, Open, assert_all_is_well
from tests.waiting import stopwatch
from tidegate.engine.credentials import CredentialState
from tidegate.engine.lifecycle import JobState, RunState
from tidegate.engine.settings import CollectSettings
from tidegate_simulators.github import Behaviour, FaultKind, LimitSettings, Sizes

pytestmark = pytest.mark.crash

IMPATIENT = {"read_timeout": 3}
"""Seconds: less than the simulator hangs, and more than a slow machine takes for an answer."""
HANGING = Behaviour(error_pause_s=0, hang_s=60, drip_s=0)
TROUBLES = {
    FaultKind.SERVER_ERROR: "user",
    FaultKind.BAD_GATEWAY: "user.repos",
    FaultKind.GATEWAY_TIMEOUT: "user.events",
    FaultKind.TIMEOUT: "repo.issues",
    FaultKind.RESET: "repo.pulls",
    FaultKind.TRUNCATED: "repo.commits",
    FaultKind.INVALID: "repo.issues",
}


def paid_calls(it: Site) -> int:
    return sum(it.github.report().spent.values())


async def test_temporary_faults_are_retried_and_lose_nothing(site: Open):
    async with site(repositories=3, behaviour=HANGING, upstream=IMPATIENT, membership=PATIENT) as it:
        for kind, route in TROUBLES.items():
            it.github.faults.inject(kind, route=route)
        await it.start(first_pause_ms=50)
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert it.github.report().faults == {kind.value: 1 for kind in TROUBLES}
        tried = {job.attempt_count for job in await it.jobs(run_ids[0])}
        assert tried == {1, 2}


@pytest.mark.parametrize("kind", [FaultKind.SERVER_ERROR, FaultKind.RESET, FaultKind.INVALID])
async def test_a_permanent_fault_fails_its_job_after_five_attempts_and_the_run_completes(site: Open, kind: FaultKind):
    async with site(repositories=2, membership=PATIENT) as it:
        name = it.github.truth(it.logins[0]).repositories[0].repository["id"]
        it.github.faults.inject(kind, times=100, route="repo.issues", contains=f"/repositories/{name}/")
        await it.start(first_pause_ms=20)
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        (failed,) = [job for job in await it.jobs(run_ids[0]) if job.status == JobState.FAILED]
        assert (failed.job_type, failed.attempt_count) == ("REPO_ISSUES", 5)
        assert failed.last_error
        assert it.github.report().faults == {kind.value: 5}
        assert await it.disagreements(run_ids) == []


async def test_retry_pauses_grow_up_to_two_to_the_n_seconds(site: Open):
    """As it is by default: anything up to 2 s after the first failure, and up to 4 s after the second."""
    async with site(repositories=3, membership=PATIENT) as it:
        for each in it.github.truth(it.logins[0]).repositories:
            path = f"/repositories/{each.repository['id']}/"
            it.github.faults.inject(FaultKind.SERVER_ERROR, times=2, route="repo.issues", contains=path)
        at: defaultdict[str, list[float]] = defaultdict(list)
        elapsed_s = stopwatch()
        it.github.on_call = lambda url: at[url].append(elapsed_s())
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        waits = [(times[1] - times[0], times[2] - times[1]) for url, times in at.items() if "/issues" in url]
        assert len(waits) == 3
        pauses = CollectSettings().pauses
        assert [pauses.ceiling(attempt).total_seconds() for attempt in (1, 2)] == [2, 4]
        assert sum(map(sum, waits)) > 0.3, "six waits without any pause"


async def test_a_refused_token_is_used_once_and_another_of_its_pool_takes_over(site: Open):
    async with site(operators=2, repositories=3, membership=PATIENT) as it:
        refused, _ = it.github.world.operators()
        it.github.credentials.revoke(it.github.token_of(refused))
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert it.github.report().by_status["401"] <= 1
        assert {job.attempt_count for job in await it.jobs(run_ids[0])} == {1}
        states = {one.name: one.state for one in await it.collection.credential_manager.list()}
        assert states[refused] is CredentialState.INVALID or it.github.report().by_status["401"] == 0


async def test_without_a_valid_token_left_jobs_fail_without_a_retry_loop(site: Open):
    async with site(repositories=6, limits=LIMITS | {"concurrency": 4}, membership=PATIENT) as it:
        await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(4)
        it.github.credentials.revoke(it.github.token_of(it.github.world.operators()[0]))
        hold.release()
        (run,) = await it.until_over(run_ids)

        assert it.github.report().by_status["401"] == 4, "those that were under way"
        assert it.github.arrived == 3 + 4
        assert (run.status, run.succeeded_jobs) == (RunState.FAILED, 3)
        assert run.last_error is not None
        assert "credential" in run.last_error
        assert run.failed_jobs + run.canceled_jobs == run.total_jobs - 3
        assert await it.disagreements(run_ids) == []


async def test_a_secondary_limit_blocks_the_token_and_counts_no_attempt(site: Open):
    limits = LimitSettings(pause_s=1, share_without_retry_after=0)
    async with site(repositories=3, github_limits=limits, membership=PATIENT) as it:
        it.github.faults.inject(FaultKind.SECONDARY, route="repo.issues")
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert it.github.report().refused >= 1
        assert {job.attempt_count for job in await it.jobs(run_ids[0])} == {1}


async def test_a_window_exhausted_by_others_is_waited_for_and_counts_no_attempt(site: Open):
    """Another program uses the same token: refusals tell, and their headers say until when."""
    limits = LimitSettings(quota=10, window_s=2)
    async with site(repositories=3, github_limits=limits, limits=LIMITS | {"concurrency": 3}, membership=PATIENT) as it:
        await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived(3)
        await use_up(it)
        hold.release()
        await it.until_over(run_ids)

        assert (await it.comparison()).differences == []
        assert await it.disagreements(run_ids) == []
        refused = it.github.report().refused - 1
        assert refused == 3, "what was under way was refused, and nobody tried again before the window's end"
        assert {job.attempt_count for job in await it.jobs(run_ids[0])} == {1}


async def use_up(it: Site) -> None:
    """What is left of the token's window, by somebody else, until the first refusal."""
    (operator,) = it.github.world.operators()
    headers = {"Authorization": f"Bearer {it.github.token_of(operator)}", "User-Agent": "another program"}
    async with aiohttp.ClientSession(headers=headers) as session:
        while True:
            async with session.get(f"{it.github.url}/users/{it.logins[0]}") as answer:
                if answer.status != 200:
                    return


async def test_an_unreadable_item_is_recorded_with_its_reason_and_the_rest_is_complete(site: Open):
    async with site(repositories=6, membership=PATIENT) as it:
        await it.working()
        hold = it.github.hold("/repositories/")
        run_ids = await it.begin(*it.logins)
        await hold.arrived()
        names = [each.repository["full_name"] for each in it.github.truth(it.logins[0]).repositories]
        blocked, taken_down, private, without_issues = names[:4]
        it.github.mutate.block(blocked)
        it.github.mutate.take_down(taken_down)
        it.github.mutate.make_private(private)
        it.github.mutate.disable_issues(without_issues)
        hold.release()
        await it.until_over(run_ids)

        differences = (await it.comparison()).differences
        assert [told for told in differences if not told.startswith(("repository", "user", "event"))] == []
        assert await it.disagreements(run_ids) == []
        jobs = await it.jobs(run_ids[0])
        reasons = {(job.status, job.resource_key, job.last_error) for job in jobs if job.last_error is not None}
        assert reasons == {
            (JobState.UNAVAILABLE, f"repo:{blocked}", "403: Repository access blocked"),
            (JobState.UNAVAILABLE, f"repo:{taken_down}", "451: Repository access blocked"),
            (JobState.UNAVAILABLE, f"repo:{private}", "404: Not Found"),
        }
        assert {job.attempt_count for job in jobs} == {1}, "what is permanent is not tried again"
        by_status = it.github.report().by_status
        assert [by_status[status] for status in ("403", "404", "451")] == [1, 1, 1], (
            "one call finds out that a repository is withheld"
        )
        assert by_status["410"] == 1  # issues that were switched off: an empty list
        assert it.github.report().broken == 0


async def test_an_empty_repository_is_a_success_without_items(site: Open):
    async with site(sizes=Sizes(issues=2), membership=PATIENT) as it:
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        assert it.github.report().by_status["409"] == 1
        await assert_all_is_well(it, run_ids)


async def test_a_redirect_is_followed(site: Open):
    async with site(membership=PATIENT) as it:
        repository = it.github.truth(it.logins[0]).repositories[0].repository
        it.github.move(f"/repositories/{repository['id']}/issues", f"/repos/{repository['full_name']}/issues")
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)
        await assert_all_is_well(it, run_ids)


async def test_a_renamed_repository_is_stored_under_its_new_name(site: Open):
    async with site(membership=PATIENT) as it:
        (login,) = it.logins
        await it.working()
        first = await it.begin(login)
        await it.until_over(first)
        name = it.github.truth(login).repositories[0].repository["full_name"]
        it.github.mutate.rename(name, "somewhere-else")
        second = await it.begin(login)
        await it.until_over(second)

        compared = await it.comparison()
        assert compared.differences == []
        resources = {found.resource async for found in it.documents.iterate("issue")}
        assert resources == {f"repo:{login}/somewhere-else"}


async def test_no_item_is_lost_while_items_are_inserted_during_paging(site: Open):
    restless = Behaviour(restless=0.6, error_pause_s=0, hang_s=0, drip_s=0)
    sizes = Sizes(issues=300, pulls=150, commits=250)
    async with site(sizes=sizes, behaviour=restless, membership=PATIENT) as it:
        await it.working()
        await it.working()
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        assert it.github.report().mutations > 3
        numbers = {found.body["number"] async for found in it.documents.iterate("issue")}
        assert numbers >= set(range(1, 451))
        assert await it.documents.count("issue") == await it.documents.count("issue", with_gone=True)
        assert await it.documents.count("pull_request") >= 150
        assert await it.documents.count("commit") >= 250
        assert await it.disagreements(run_ids) == []


async def test_data_that_is_being_computed_is_requested_again_and_counts_no_attempt(site: Open):
    async with site(behaviour=CALM, membership=PATIENT) as it:
        it.github.faults.inject(FaultKind.PENDING, route="repo.commits")
        await it.start(first_pause_ms=100)
        run_ids = await it.begin(*it.logins)
        await it.until_over(run_ids)

        await assert_all_is_well(it, run_ids)
        assert it.github.report().by_status["202"] == 1
        assert {job.attempt_count for job in await it.jobs(run_ids[0])} == {1}
