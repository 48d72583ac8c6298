"""Details of single items: jobs of workflow runs, files of commits, commits of branches, timelines of issues."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.answers import API, HELLO, answer, follow_up, link, task
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.source import Task, Verdict
from tidegate.systems.github import GithubSource, kinds
from tidegate_simulators.github import Sizes
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.repository import Repository

SOURCE = GithubSource(API, kinds.ALL)
SIZES = Sizes(issues=120, pulls=30, commits=130, issue_comments=200)


def repository_of(it: Deployment) -> Repository:
    [login] = it.sim.world.logins()
    [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
    return found


async def cost(it: Deployment, **options: Any) -> int:
    before = it.sim.report()
    [run] = await it.collect(*it.sim.world.logins(), **options)
    assert (run.failed_jobs, run.skipped_items) == (0, 0)
    return it.spent(before)["core"]


async def test_the_jobs_of_each_workflow_run_cost_a_call_once_and_again_until_it_is_completed(
    tmp_path: Path, embedded_url: str
):
    async with deployed(tmp_path, embedded_url, extras=120, include=["workflow-jobs"]) as it:
        found = repository_of(it)
        assert await cost(it) == 2 + 2 + 120, "profile and repositories, two pages of runs, and their jobs"
        bodies = await it.bodies("workflow_job")
        assert len(bodies) == sum(number % 3 for number in range(1, 121))
        assert await cost(it) == 0, "unchanged"

        number = it.sim.extras.add(found, "workflow_runs", is_open=True)  # 121: one job
        assert await cost(it) == 1 + 1
        it.sim.extras.add(found, "workflow_runs")
        assert await cost(it) == 1 + 2, "one page; the new run, and the one in progress"
        it.sim.extras.change(found, "workflow_runs", number)
        assert await cost(it) == 1 + 1, "the run that was in progress"
        assert {body["status"] for body in (await it.bodies("workflow_job")).values()} == {"completed"}
        assert await cost(it) <= 1
        assert await cost(it) == 0


async def test_the_files_of_each_commit_cost_a_call(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SIZES, include=["commit-details"]) as it:
        found = repository_of(it)
        assert await cost(it) == 2 + 2 + 130
        items = Items(it.sim.world)
        truth = {f"{found.id}:{found.history.sha(ref)}": items.whole_commit(found, ref) for ref in range(130)}
        assert await it.bodies("commit_detail") == truth
        assert await cost(it) == 0, "unchanged"
        it.sim.mutate.push(found.full_name, 3)
        assert await cost(it) == 1 + 1 + 3, "the list of repositories, the page, and three commits"


async def test_a_branch_costs_a_call_when_its_head_changes(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, extras=120, include=["branch-commits"]) as it:
        found = repository_of(it)
        assert await cost(it) == 2 + 2 + 119, "all but the default branch"
        bodies = await it.bodies("branch_commit")
        assert len(bodies) == sum(number % 3 for number in range(2, 121))
        assert all(body["branch"].endswith(f"-{body['commit']['message'].split()[-1]}") for body in bodies.values())
        assert await cost(it) == 0, "unchanged"
        it.sim.extras.change(found, "branches", 5)
        assert await cost(it) <= 1 + 1, "the page with it, and its commits"
        it.sim.extras.add(found, "branches")
        assert await cost(it) == 1 + 1


async def test_the_timeline_of_each_changed_issue_is_read(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=SIZES, include=["timelines"]) as it:
        found = repository_of(it)
        assert await cost(it) == 2 + 2 + 150, "profile and repositories, two pages of issues and pull requests"
        items = Items(it.sim.world)
        truth = [
            {**entry, "issue_number": number}
            for number in found.threads.numbers()
            for entry in items.timeline(found, number)
        ]
        collected = (await it.bodies("timeline_event")).values()
        assert {json.dumps(entry, sort_keys=True) for entry in collected} == {
            json.dumps(entry, sort_keys=True) for entry in truth
        }
        assert len(collected) == len(truth) > 300
        assert await cost(it) == 0, "unchanged"
        it.sim.mutate.close(found.full_name, next(n for n in found.threads.numbers() if not found.threads.closed[n]))
        assert 3 <= await cost(it) <= 4, "two pages, the timeline of the issue, and of what changed in the last second"


def detail(kind: str, **state: Any) -> Task:
    parent = task(kinds.REPO_ISSUES, details=[kind])
    listed = answer(200, [{"id": 1, "number": 12, "updated_at": "2026-02-01T00:00:00Z", **state}])
    [spec, *_] = SOURCE.read(parent, listed).follow_ups
    return follow_up(parent, spec)


def test_a_timeline_is_read_across_its_page_links():
    first = detail(kinds.REPO_TIMELINES)
    assert SOURCE.request(first, "x").url == f"{API}/repositories/7/issues/12/timeline?per_page=100"
    page = [{"id": 1, "event": "labeled"}, {"sha": "a", "event": "committed"}, None, {"event": "line-commented"}]
    reading = SOURCE.read(first, answer(200, page, link("/x?page=2")))
    assert [document.id for document in reading.documents] == ["7:12:1", "7:12:a"]
    assert len(reading.skipped) == 2
    [onwards] = reading.follow_ups
    assert onwards.page == "12 of 2026-02-01T00:00:00Z page 2"
    assert SOURCE.request(follow_up(first, onwards), "x").url == f"{API}/x?page=2"


@pytest.mark.parametrize("status", [404, 409, 410, 422])
def test_details_that_are_gone_are_skipped_and_the_rest_continues(status: int):
    reading = SOURCE.read(detail(kinds.REPO_TIMELINES), answer(status, {"message": "deleted"}))
    assert (reading.verdict, len(reading.skipped), list(reading.documents)) == (Verdict.DONE, 1, [])


def test_a_list_without_requested_details_creates_no_jobs():
    listed = answer(200, [{"id": 1, "number": 12, "updated_at": "2026-02-01T00:00:00Z"}])
    assert SOURCE.read(task(kinds.REPO_ISSUES), listed).follow_ups == []


def test_an_issue_that_changes_twice_in_a_run_is_read_twice():
    one = detail(kinds.REPO_TIMELINES).spec
    assert one.page != detail(kinds.REPO_TIMELINES, updated_at="2026-02-02T00:00:00Z").spec.page


def test_a_branch_name_is_quoted_and_the_default_branch_has_no_comparison():
    listed = [{"name": "main", "commit": {"sha": "a"}}, {"name": "topic/ä", "commit": {"sha": "b"}}]
    state: dict[str, Any] = {"repository": {"id": 7, "full_name": HELLO.full_name, "default_branch": "main"}}
    parent = task(kinds.REPO_BRANCHES, **state, details=[kinds.REPO_BRANCH_COMMITS])
    [spec] = SOURCE.read(parent, answer(200, listed)).follow_ups
    assert spec.page == "topic/ä"
    assert SOURCE.request(follow_up(parent, spec), "x").url == f"{API}/repositories/7/compare/main...b?per_page=100"
