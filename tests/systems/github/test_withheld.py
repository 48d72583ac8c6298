"""Repositories that are listed and cannot be read: one probe in a run, none in a run in which nothing changed."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.systems.github.answers import API, NOW, answer, message, task
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.reports.progress import unavailable_of
from tidegate.engine.source import Cursor, Subject, Task, Verdict
from tidegate.systems.github import CONVERSATIONS, GithubSource, kinds
from tidegate_simulators.github import Sizes

source = GithubSource(API)
LISTED = {"id": 7, "full_name": "octocat/hello", "pushed_at": "2026-02-01T00:00:00Z"}


def ahead(cursor: Cursor | None = None, date: Any = NOW, **changed: Any) -> Task:
    """The job that goes ahead for a repository, as the list that was answered at `date` begins it."""
    first = source.first_jobs(Subject(user_id="1", login="octocat", options=changed.pop("options", {})))[1]
    listing = Task(spec=first, run_id=5, user_id="1", credential="octocat")
    listed = msgspec.structs.replace(answer(200, [{**LISTED, **changed}], dated=False), received_at=date)
    (spec,) = source.read(listing, listed).follow_ups
    return Task(spec=spec, run_id=5, user_id="1", credential="octocat", cursor=cursor)


def test_one_list_of_a_repository_is_read_first_and_the_others_follow():
    spec = ahead().spec
    assert (spec.kind, spec.followed_by) == (kinds.REPO_COMMITS, (kinds.REPO_ISSUES, kinds.REPO_PRS))
    for other in spec.successors:
        assert (other.resource, other.params, other.page, other.followed_by) == (
            spec.resource,
            spec.params,
            "first",
            (),
        )


@pytest.mark.parametrize(
    ("status", "text"), [(404, "Not Found"), (451, "Repository access blocked"), (403, "Repository access blocked")]
)
def test_a_withheld_repository_is_requested_once_and_remembered(status: int, text: str):
    found = source.read(ahead(), message(status, text))
    assert (found.verdict, found.reason, list(found.follow_ups)) == (Verdict.UNAVAILABLE, f"{status}: {text}", [])

    again = ahead(found.cursor, NOW + timedelta(minutes=59))
    assert source.request(again, "x").url == f"{API}/rate_limit", "which costs nothing"
    told = source.read(again, answer(200, {"resources": {}}))
    assert (told.verdict, told.reason, told.cursor) == (Verdict.UNAVAILABLE, f"{status}: {text}", None)


@pytest.mark.parametrize(
    "changed",
    [{"pushed_at": "2026-02-02T00:00:00Z"}, {"date": NOW + timedelta(hours=1)}, {"options": {"full": True}}],
    ids=["something was pushed", "an hour has passed", "a full run"],
)
def test_it_is_requested_again_when_it_may_have_changed(changed: dict[str, Any]):
    found = source.read(ahead(), message(451, "Repository access blocked"))
    again = ahead(found.cursor, **changed)
    assert "/repositories/7/commits" in source.request(again, "x").url
    back = source.read(again, answer(200, [{"sha": "a"}], {"ETag": '"e"'}))
    assert back.cursor == Cursor(cursor="a", etag='"e"', credential="octocat"), "it is read from the beginning"


def test_each_confirming_request_postpones_the_next_one_up_to_a_week():
    cursor, probed, days = None, list[float](), 0.0
    while days < 30:
        at = NOW + timedelta(days=days)
        job = ahead(cursor, at)
        if source.request(job, "x").url != f"{API}/rate_limit":
            probed.append(days)
            refusal = msgspec.structs.replace(
                message(404, "Not Found"), received_at=at, headers=answer(dated=False).headers
            )
            cursor = source.read(job, refusal).cursor
        days += 1 / 24
    pauses = [after - before for before, after in pairwise(probed)]
    assert pauses[:4] == pytest.approx([1 / 24, 1 / 24, 2 / 24, 4 / 24])
    assert max(pauses) <= 7 + 1 / 24
    assert len(probed) == 12


def test_a_refusal_of_one_pool_does_not_count_for_another():
    """Its credentials may have access, so each pool probes for itself, and remembers its own answer."""
    found = source.read(ahead(), message(404, "Not Found"))
    other = msgspec.structs.replace(ahead(found.cursor), pool="others")
    assert "/repositories/7/commits" in source.request(other, "x").url

    both = source.read(other, message(451, "Repository access blocked")).cursor
    for pool, reason in (("", "404: Not Found"), ("others", "451: Repository access blocked")):
        again = msgspec.structs.replace(ahead(both), pool=pool)
        assert source.request(again, "x").url == f"{API}/rate_limit"
        assert source.read(again, answer(200, {"resources": {}})).reason == reason


def test_the_last_refusals_of_many_pools_are_kept():
    cursor = None
    for n in range(20):
        cursor = source.read(msgspec.structs.replace(ahead(cursor), pool=f"p{n}"), message(404, "Not Found")).cursor
    believed = [
        n
        for n in range(20)
        if source.request(msgspec.structs.replace(ahead(cursor), pool=f"p{n}"), "x").url == f"{API}/rate_limit"
    ]
    assert believed == list(range(12, 20))


def test_a_list_read_before_continues_at_its_position():
    before = Cursor(cursor="a", etag='"e"', credential="octocat")
    found = source.read(ahead(before), message(404, "Not Found"))
    found = source.read(ahead(found.cursor, NOW + timedelta(hours=1)), message(404, "Not Found"))
    again = ahead(found.cursor, pushed_at="2026-02-02T00:00:00Z")
    assert source.request(again, "x").headers["If-None-Match"] == '"e"'
    assert source.read(again, answer(304)).verdict is Verdict.DONE


def test_a_missing_permission_is_a_failure_and_does_not_concern_the_repository():
    reading = source.read(ahead(), message(403, "Resource not accessible by integration"))
    assert (reading.verdict, reading.cursor) == (Verdict.GONE, None)
    assert source.read(task(kinds.USER_BASIC), message(404, "Not Found")).verdict is Verdict.GONE


def names(it: Deployment, login: str) -> list[str]:
    return [found.full_name for found in it.sim.world.repositories_of(it.sim.world.require_account(login))]


async def test_withheld_repositories_cost_one_call_each_and_then_none(tmp_path: Path, embedded_url: str):
    async with deployed(
        tmp_path, embedded_url, repositories=4, sizes=Sizes(issues=2, pulls=2), include=CONVERSATIONS
    ) as it:
        (login,) = it.sim.world.logins()
        gone, blocked, taken_down, readable = names(it, login)
        it.sim.mutate.delete(gone, still_listed=True)
        it.sim.mutate.block(blocked)
        it.sim.mutate.take_down(taken_down)
        (first,) = await it.collect(login)
        (second,) = await it.collect(login)
        counted = it.sim.report().by_status

        assert [counted.get(status, 0) for status in ("404", "403", "451")] == [1, 1, 1], "one probe each, in two runs"
        assert (first.failed_jobs, second.failed_jobs) == (0, 0)
        for run in (first, second):
            withheld = await it.parts.database.read(unavailable_of, [run.id])
            assert {each.resource: each.reason for each in withheld} == {
                f"repo:{gone}": "404: Not Found",
                f"repo:{blocked}": "403: Repository access blocked",
                f"repo:{taken_down}": "451: Repository access blocked",
            }
        assert {body["html_url"].split("/")[4] for body in (await it.bodies("issue")).values()} == {
            readable.partition("/")[2]
        }


async def test_each_pool_makes_its_own_requests(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, users=2) as it:
        login, other = it.sim.world.logins()
        (name,) = names(it, login)
        it.sim.mutate.delete(name, still_listed=True)
        for pool in (login, other, login, other):
            await it.end_of(await it.begin(login, pool=pool))

        assert it.sim.report().by_status["404"] == 2


async def test_a_repository_that_is_shown_again_is_read_from_the_start(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=3, commits=2)) as it:
        (login,) = it.sim.world.logins()
        (name,) = names(it, login)
        it.sim.mutate.make_private(name, still_listed=True)
        await it.collect(login)
        assert await it.bodies("commit") == {}
        it.sim.mutate.make_public(name)
        (run,) = await it.collect(login, full=True)

        assert (run.failed_jobs, len(await it.bodies("commit")), len(await it.bodies("issue"))) == (0, 2, 3)
