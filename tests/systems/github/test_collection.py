"""Whole collections, over HTTP, from a simulated GitHub: what comes is the truth, and costs no more than it must."""

from pathlib import Path

import msgspec
import pytest

from tests.systems.github.deployment import CALM, LARGE, assert_complete, assert_talk_is_complete, deployed
from tidegate.engine.reports.progress import unavailable_of
from tidegate.systems.github import CONVERSATIONS, kinds
from tidegate_simulators.github import KINDS, FaultKind, LimitSettings, Sizes, parse_faults


async def test_three_users_are_collected_completely_at_the_cost_of_a_perfect_collector(
    tmp_path: Path, embedded_url: str
):
    async with deployed(
        tmp_path, embedded_url, users=3, repositories=2, sizes=LARGE, events=130, include=CONVERSATIONS
    ) as it:
        logins = it.sim.world.logins()
        runs = await it.collect(*logins)

        await assert_complete(it, *logins)
        await assert_talk_is_complete(it, *logins)
        assert [run.failed_jobs for run in runs] == [0, 0, 0]
        report = it.sim.report(logins, KINDS)
        assert report.needed is not None
        assert report.spent["core"] <= 1.05 * report.needed.core
        assert report.spent["graphql"] <= 1.05 * report.needed.graphql
        assert report.broken == 0


async def test_a_second_run_of_an_unchanged_account_costs_nothing(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, repositories=2, sizes=LARGE, include=CONVERSATIONS) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        before = it.sim.report()
        await it.collect(login)

        assert it.spent(before) == {"core": 0, "graphql": 0}
        await assert_complete(it, login)
        await assert_talk_is_complete(it, login)


@pytest.mark.full
async def test_the_reference_repository_costs_at_most_105_calls_and_then_none(tmp_path: Path, embedded_url: str):
    """1,000 issues, 500 pull requests, 3,000 commits, and their comments and reviews; 100 is the least."""
    sizes = Sizes(issues=1_000, pulls=500, commits=3_000, issue_comments=3_000, review_comments=1_500, reviews=1_000)
    include = CONVERSATIONS - {kinds.USER_EVENTS}
    async with deployed(tmp_path, embedded_url, sizes=sizes, events=0, include=include) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        first = it.sim.report()
        assert sum(first.spent.values()) - 2 <= 105, "without the profile and the list of repositories"
        await it.collect(login)
        assert it.spent(first) == {"core": 0, "graphql": 0}
        await assert_complete(it, login)
        await assert_talk_is_complete(it, login)


async def test_an_empty_repository_is_not_requested_again_until_a_push(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=2), include=CONVERSATIONS) as it:
        (login,) = it.sim.world.logins()
        (run,) = await it.collect(login)
        assert run.failed_jobs == 0
        assert it.sim.report().by_status["409"] == 1

        before = it.sim.report()
        await it.collect(login)
        assert it.spent(before)["core"] == 0

        it.sim.mutate.push(it.sim.truth(login).repositories[0].repository["full_name"])
        await it.collect(login)
        assert len(await it.bodies("commit")) == 1


@pytest.mark.full
async def test_unusual_repositories_are_recorded_with_their_reason_and_the_rest_is_complete(
    tmp_path: Path, embedded_url: str
):
    sizes = Sizes(issues=3, pulls=2, commits=4)
    async with deployed(tmp_path, embedded_url, users=12, repositories=4, sizes=sizes, quirks=True) as it:
        logins = [it.sim.world.logins()[i] for i in (2, 4, 6, 9, 11)]
        runs = await it.collect(*logins)

        await assert_complete(it, *logins)
        report = it.sim.report(logins, ["profile", "repositories", "events", "issues", "pulls", "commits"])
        assert report.needed is not None
        assert report.spent["core"] <= report.needed.core
        assert {reason for run in runs for reason in await it.failures(run)} <= {"404: Not Found"}
        withheld = await it.parts.database.read(unavailable_of, [run.id for run in runs])
        reasons = {each.reason for each in withheld}
        assert reasons
        assert reasons <= {"451: Repository access blocked", "403: Repository access blocked"}
        assert report.broken == 0


async def test_small_quotas_are_waited_for_and_never_exceeded(tmp_path: Path, embedded_url: str):
    limits = LimitSettings(quota=20, window_s=1, graphql_quota=20)
    sizes = Sizes(issues=120, pulls=110, commits=130)
    async with deployed(tmp_path, embedded_url, users=2, repositories=5, sizes=sizes, limits=limits) as it:
        logins = it.sim.world.logins()
        await it.collect(*logins)

        await assert_complete(it, *logins)
        report = it.sim.report()
        assert (report.broken, report.refused) == (0, 0)
        assert len(report.windows) > 2


@pytest.mark.full
async def test_faults_of_all_kinds_cause_delays_and_lose_nothing(tmp_path: Path, embedded_url: str):
    faults = parse_faults("500=0.02,502=0.02,reset=0.02,truncated=0.02,invalid=0.02,202=0.005")
    behaviour = msgspec.structs.replace(CALM, faults=faults)
    async with deployed(tmp_path, embedded_url, users=2, repositories=2, sizes=LARGE, behaviour=behaviour) as it:
        logins = it.sim.world.logins()
        runs = await it.collect(*logins)

        assert it.sim.report().retries_after_faults > 0
        assert [run.failed_jobs for run in runs] == [0, 0]
        await assert_complete(it, *logins)
        assert it.sim.report().broken == 0


@pytest.mark.full
async def test_in_a_pool_each_repository_stays_with_the_token_that_has_its_etags(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=2, repositories=6, include=CONVERSATIONS, is_pooled=True) as it:
        logins = it.sim.world.logins()
        await it.collect(*logins)
        await assert_complete(it, *logins)
        for _ in range(2):
            before = it.sim.report()
            await it.collect(*logins)
            # Only the three first calls of a user may meet the other token.
            assert it.spent(before)["core"] <= 2 * 3
            assert it.spent(before)["graphql"] == 0


async def test_a_secondary_limit_is_waited_for_and_counts_no_attempt(tmp_path: Path, embedded_url: str):
    limits = LimitSettings(pause_s=1, share_without_retry_after=0)
    async with deployed(tmp_path, embedded_url, repositories=3, limits=limits) as it:
        (login,) = it.sim.world.logins()
        it.sim.faults.inject(FaultKind.SECONDARY, route="repo.issues")
        (run,) = await it.collect(login)

        assert run.failed_jobs == 0
        await assert_complete(it, login)
        assert it.sim.report().broken == 0
