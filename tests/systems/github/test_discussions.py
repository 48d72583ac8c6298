"""Discussions, which only GraphQL has: what is stored, what it costs, and what is noticed later."""

from pathlib import Path
from typing import Any

import pytest

from tests.systems.github.answers import API, HELLO, answer, follow_up, message, task
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.reports.progress import unavailable_of
from tidegate.engine.source import Cursor, Reading, Task, Verdict
from tidegate.systems.github import ALL, GithubSource, kinds
from tidegate.systems.github.states import RunOptions, repository_jobs
from tidegate_simulators.github import Behaviour, FaultKind
from tidegate_simulators.github.extras import DISCUSSIONS
from tidegate_simulators.github.repository import Repository

SOURCE = GithubSource(API, ["discussions"])
OLD, SPRING, MAY, JUNE = "2025-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"
BEGAN = "2026-03-01T11:59:00Z"
"""A minute before the answers that are made by hand."""


def repository_of(it: Deployment) -> Repository:
    [login] = it.sim.world.logins()
    [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
    return found


def truth(it: Deployment) -> dict[str, Any]:
    found = repository_of(it)
    shown = [it.sim.extras.discussion(found, entry.number) for entry in it.sim.extras.of(found, DISCUSSIONS)]
    return {str(each["id"]): each for each in shown}


async def cost(it: Deployment, **options: Any) -> tuple[int, int]:
    before = it.sim.report()
    [run] = await it.collect(*it.sim.world.logins(), **options)
    assert (run.failed_jobs, run.skipped_items) == (0, 0)
    spent = it.spent(before)
    return spent["core"], spent.get("graphql", 0)


async def test_discussions_cost_a_point_per_hundred_and_one_if_unchanged(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, discussions=250, include=["discussions"]) as it:
        found, extras = repository_of(it), it.sim.extras
        assert await cost(it) == (2, 3), "the profile and the list of repositories; three pages"
        assert await it.bodies("discussion") == truth(it)
        assert len(truth(it)) == 250
        assert await cost(it) == (0, 1), "unchanged: a query has no ETag"

        extras.change(found, DISCUSSIONS, 5)
        extras.add(found, DISCUSSIONS)
        assert (await cost(it))[1] == 1
        assert await it.bodies("discussion") == truth(it)

        for number in range(10, 170):
            extras.change(found, DISCUSSIONS, number)
        assert (await cost(it))[1] == 2, "down to the former run"
        assert await it.bodies("discussion") == truth(it)


async def test_deleted_discussions_are_found_by_a_full_run_and_when_they_are_disabled(
    tmp_path: Path, embedded_url: str
):
    async with deployed(tmp_path, embedded_url, discussions=120, include=["discussions"]) as it:
        found = repository_of(it)
        await cost(it)
        it.sim.extras.remove(found, DISCUSSIONS, 7)
        await cost(it)
        assert len(await it.bodies("discussion")) == 120
        assert (await cost(it, full=True))[1] == 2
        assert await it.bodies("discussion") == truth(it)

        it.sim.mutate.disable_discussions(found.full_name)
        assert (await cost(it))[1] == 0
        assert await it.bodies("discussion") == {}
        it.sim.mutate.enable_discussions(found.full_name)
        await cost(it, full=True)
        assert await it.bodies("discussion") == truth(it)


async def test_discussions_follow_the_other_lists_with_their_own_allowance(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, discussions=3, include=["essential", "discussions"]) as it:
        await cost(it)
        assert await it.bodies("discussion") == truth(it)
        assert await cost(it) == (0, 1)


async def test_a_repository_without_discussions_costs_nothing(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, include=["discussions"]) as it:
        assert await cost(it) == (2, 0), "the profile and the list of repositories"


async def test_a_query_that_times_out_is_split(tmp_path: Path, embedded_url: str):
    slow = Behaviour(error_pause_s=0, graphql_nodes_in_time=60)
    async with deployed(tmp_path, embedded_url, discussions=120, behaviour=slow, include=["discussions"]) as it:
        await cost(it)
        assert await it.bodies("discussion") == truth(it)


@pytest.mark.parametrize("fault", [FaultKind.TRUNCATED, FaultKind.INVALID, FaultKind.PARTIAL, FaultKind.BAD_GATEWAY])
async def test_a_fault_loses_no_discussion(tmp_path: Path, embedded_url: str, fault: FaultKind):
    async with deployed(tmp_path, embedded_url, discussions=120, include=["discussions"]) as it:
        it.sim.faults.inject(fault, route="graphql", times=1)
        await cost(it)
        assert await it.bodies("discussion") == truth(it)


async def test_a_repository_listed_but_not_shown_is_withheld(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, discussions=3, include=["discussions"]) as it:
        it.sim.mutate.block(repository_of(it).full_name)
        [run] = await it.collect(*it.sim.world.logins())
        [withheld] = await it.parts.database.read(unavailable_of, [run.id])
        assert "NOT_FOUND" in withheld.reason
        assert (await cost(it))[1] == 0, "it is remembered"


def page(*nodes: Any, after: str | None = None) -> Any:
    info = {"hasNextPage": after is not None, "endCursor": after}
    return answer(200, {"data": {"node": {"items": {"nodes": list(nodes), "pageInfo": info}}}})


def item(number: int, updated_at: str) -> dict[str, Any]:
    return {"id": number, "updated_at": updated_at, "title": f"number {number}"}


def of_list(cursor: Cursor | None = None, **wishes: Any) -> Task:
    return task(kinds.REPO_DISCUSSIONS, cursor, **wishes)


def order_of(current: Task) -> str:
    body = SOURCE.request(current, "x").body or b""
    return "last changed" if b"UPDATED_AT, direction: DESC" in body else "created"


def ids(reading: Reading) -> list[str]:
    return [document.id for document in reading.documents]


def test_the_next_run_starts_where_this_one_started_and_not_at_the_last_change_it_saw():
    first = of_list()
    assert order_of(first) == "created"
    reading = SOURCE.read(first, page(item(1, OLD), after="x"))
    second = follow_up(first, *reading.follow_ups)
    assert order_of(second) == "created"
    reading = SOURCE.read(second, page(item(2, JUNE)))

    assert reading.completed
    assert reading.cursor == Cursor(timestamp=BEGAN)
    later = of_list(reading.cursor)
    assert order_of(later) == "last changed"
    found = SOURCE.read(later, page(item(2, JUNE), item(1, BEGAN), item(3, OLD), after="x"))
    assert (ids(found), list(found.follow_ups), list(found.completed)) == (["2", "1"], [], [])


def test_discussions_skipped_because_of_since_are_fetched_by_a_run_without_it():
    part = SOURCE.read(of_list(since=MAY), page(item(3, JUNE), item(2, SPRING), after="x"))
    assert (ids(part), list(part.follow_ups), list(part.completed)) == (["3"], [], [])
    assert part.cursor == Cursor(timestamp=BEGAN, cursor=MAY)

    assert order_of(of_list(part.cursor)) == "created"
    again = SOURCE.read(of_list(part.cursor, since=JUNE), page(item(3, JUNE)))
    assert again.cursor == part.cursor, "it reaches as far as before"
    assert ids(SOURCE.read(of_list(part.cursor, since=SPRING), page(item(2, SPRING)))) == ["2"]


def test_a_full_run_reads_all_discussions():
    full = of_list(Cursor(timestamp=BEGAN), full=True)
    assert order_of(full) == "created"
    assert SOURCE.read(full, page(item(1, OLD))).completed


def test_an_invalid_item_affects_only_itself():
    reading = SOURCE.read(of_list(), page(item(1, OLD), None, {"id": None, "updated_at": OLD}, after="x"))
    assert (ids(reading), len(reading.skipped), len(reading.follow_ups)) == (["1"], 2, 1)


@pytest.mark.parametrize(
    ("problem", "verdict"),
    [
        ({"type": "NOT_FOUND", "message": "Could not resolve to a node"}, Verdict.UNAVAILABLE),
        ({"type": "FORBIDDEN", "message": "Repository access blocked"}, Verdict.UNAVAILABLE),
        ({"type": "FORBIDDEN", "message": "Resource not accessible by integration"}, Verdict.GONE),
        ({"type": "SERVICE_UNAVAILABLE", "message": "timeout"}, Verdict.RETRY),
        ({"type": "RATE_LIMITED", "message": "API rate limit exceeded"}, Verdict.LATER),
    ],
)
def test_errors_say_whether_to_retry(problem: dict[str, str], verdict: Verdict):
    body = {"data": {"node": None}, "errors": [problem]}
    assert SOURCE.read(of_list(), answer(200, body)).verdict is verdict


def test_a_page_that_times_out_is_halved():
    [spec] = SOURCE.read(of_list(), message(502, "timeout")).follow_ups
    assert (spec.params["first"], spec.page) == (50, "page 1 of 50")


def test_discussion_jobs_spend_points_in_any_order_of_lists():
    both = frozenset({kinds.REPO_COMMITS, kinds.REPO_DISCUSSIONS})
    [first] = repository_jobs(HELLO, both, RunOptions(), owner="octocat")
    [second] = first.successors
    assert (first.bucket, second.kind, second.bucket) == ("core", kinds.REPO_DISCUSSIONS, "graphql")
    assert second.other_buckets == {}
    [alone] = repository_jobs(HELLO, frozenset({kinds.REPO_DISCUSSIONS}), RunOptions(), owner="octocat")
    assert (alone.bucket, alone.successors) == ("graphql", [])
    assert kinds.REPO_DISCUSSIONS not in ALL, "a run in which nothing changed costs nothing"


@pytest.mark.parametrize("cursor", [None, "x"])
def test_a_page_without_a_next_cursor_does_not_end_the_list(cursor: str | None):
    """Otherwise everything behind it would be marked as gone, or the same page would be requested for ever."""
    first = of_list()
    second = follow_up(first, *SOURCE.read(first, page(item(1, OLD), after="x")).follow_ups)
    info = {"hasNextPage": True, "endCursor": cursor}
    stuck = answer(200, {"data": {"node": {"items": {"nodes": [item(2, OLD)], "pageInfo": info}}}})

    reading = SOURCE.read(second, stuck)

    assert (ids(reading), len(reading.skipped)) == (["2"], 1)
    assert (list(reading.follow_ups), list(reading.completed), reading.cursor) == ([], [], None)
