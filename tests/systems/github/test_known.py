"""What is known already is not asked for, and the free call that stands in for it decides nothing else."""

import msgspec
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.systems.github.answers import ALLOWED, API, HELLO, answer, follow_up, message, task
from tidegate.engine.source import Cursor, JobSpec, Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import GithubSource, kinds

source = GithubSource(API, kinds.CONVERSATIONS)
NEWEST = "2026-01-02T00:00:00Z"
EMPTY = task(kinds.REPO_COMMITS, Cursor(cursor="empty", timestamp=HELLO.pushed_at))
REVIEWED = task(kinds.REPO_REVIEWS, Cursor(etag='"e"', timestamp=NEWEST), newest=NEWEST, etag='"e"')
FREE = {"resources": {"core": {"limit": 10, "remaining": 3, "reset": int(ALLOWED["x-ratelimit-reset"]), "used": 7}}}


def without_limits(status: int) -> Answer:
    """As of a GitHub of one's own that counts nothing."""
    return msgspec.structs.replace(message(status, "Rate limiting is not enabled."), headers=_NO_HEADERS)


_NO_HEADERS = CIMultiDictProxy(CIMultiDict[str]())


def look_of(etag: str) -> JobSpec:
    """What follows a list of pull requests in which nothing changed."""
    pulls = task(kinds.REPO_PRS, Cursor(etag=etag, timestamp=NEWEST, credential="octocat"))
    (spec,) = source.read(pulls, answer(304)).follow_ups
    return spec


def looking(etag: str, left: Cursor | None) -> Task:
    return msgspec.structs.replace(follow_up(task(), look_of(etag)), cursor=left)


@pytest.mark.parametrize("known", [EMPTY, REVIEWED])
def test_known_data_stays_known_without_rate_limits(known: Task):
    assert source.request(known, "x").url == f"{API}/rate_limit"
    reading = source.read(known, without_limits(404))
    assert (reading.verdict, reading.allowance) == (Verdict.DONE, None)
    assert (list(reading.follow_ups), list(reading.completed), reading.cursor) == ([], [], None)


@pytest.mark.parametrize("known", [EMPTY, REVIEWED])
@pytest.mark.parametrize(
    ("status", "verdict"), [(409, Verdict.GONE), (502, Verdict.RETRY), (401, Verdict.UNAUTHORIZED)]
)
def test_a_status_of_the_free_call_has_its_usual_meaning(known: Task, status: int, verdict: Verdict):
    reading = source.read(known, message(status, "whatever"))
    assert (reading.verdict, list(reading.follow_ups), list(reading.completed)) == (verdict, [], [])
    assert reading.cursor is None


@pytest.mark.parametrize("known", [EMPTY, REVIEWED])
def test_an_unreadable_free_answer_is_requested_again(known: Task):
    assert source.read(known, answer(200, b"<html>")).verdict is Verdict.RETRY


def test_known_reviews_do_not_wait_for_the_graphql_bucket():
    known = looking('"e"', Cursor(etag='"e"', timestamp=NEWEST))
    assert (known.spec.bucket, known.spec.page) == ("core", "first")
    assert source.request(known, "x").url == f"{API}/rate_limit"
    reading = source.read(known, answer(200, FREE))
    assert (reading.verdict, list(reading.follow_ups), reading.allowance_bucket) == (Verdict.DONE, [], "core")
    assert reading.allowance is not None
    assert reading.allowance.remaining == 3


@pytest.mark.parametrize("said", [answer(200, FREE), without_limits(404)])
@pytest.mark.parametrize(
    ("left", "order"), [(Cursor(etag='"old"', timestamp=NEWEST), b"UPDATED_AT"), (None, b"CREATED_AT")]
)
def test_reviews_that_are_not_known_are_queried_from_the_position_of_the_last_run(
    said: Answer, left: Cursor | None, order: bytes
):
    look = looking('"e"', left)
    assert source.request(look, "x").url == f"{API}/rate_limit"
    (spec,) = source.read(look, said).follow_ups
    assert (spec.bucket, spec.page != look.spec.page) == ("graphql", True)
    request = source.request(follow_up(look, spec), "x")
    assert request.url == f"{API}/graphql"
    assert order in (request.body or b"")
    ended = {"data": {"node": {"pullRequests": {"nodes": [], "pageInfo": {"hasNextPage": False}}}}}
    assert source.read(follow_up(look, spec), answer(200, ended)).cursor == Cursor(timestamp=NEWEST, etag='"e"')


def test_changed_pull_requests_are_queried_immediately():
    pull = {"id": 1, "number": 1, "updated_at": NEWEST}
    (spec,) = source.read(task(kinds.REPO_PRS), answer(200, [pull], {"ETag": '"f"'})).follow_ups
    assert spec.bucket == "graphql"
    assert source.request(follow_up(task(), spec), "x").url == f"{API}/graphql"
