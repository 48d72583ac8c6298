"""Lists with pages that link in a circle end with a failure that says so, after a bounded number of requests."""

from typing import Any

import pytest

from tests.systems.github.answers import API, answer, follow_up, issue, link, task
from tidegate.engine.source import Task, Verdict
from tidegate.engine.upstream import Answer
from tidegate.systems.github import GithubSource, kinds

source = GithubSource(API, kinds.CONVERSATIONS)
MOMENT = "2026-01-02T00:00:00Z"
RELEASE: dict[str, Any] = {"id": 1, "sha": "a"}
LISTS = {
    kinds.REPO_ISSUES: issue(1, MOMENT),
    kinds.USER_EVENTS: {"id": "1", "created_at": MOMENT},
    kinds.REPO_RELEASES: RELEASE,
    kinds.REPO_BRANCHES: {"name": "main"},
}


def linked(kind: str, number: int) -> Answer:
    return answer(200, [LISTS[kind]], link(f"/x?after={number}"))


def queried(kind: str, number: int) -> Answer:
    page = {"hasNextPage": True, "endCursor": f"c{number}"}
    if kind == kinds.REPO_REVIEWS:
        return answer(200, {"data": {"node": {"pullRequests": {"nodes": [], "pageInfo": page}}}})
    return answer(200, {"data": {"node": {"items": {"nodes": [], "pageInfo": page}}}})


def pages_until_refused(kind: str, tail: int, length: int) -> tuple[int, str]:
    """Follow a list with `tail` pages before a circle of `length` pages; returns the requests made and the reason."""
    job: Task = task(kind, newest=MOMENT) if kind == kinds.REPO_REVIEWS else task(kind)
    of = linked if kind in LISTS else queried
    for number in range(1, 1_000):
        following = number if number < tail + length else tail + (number - tail) % length
        reading = source.read(job, of(kind, following))
        if reading.verdict is not Verdict.DONE:
            assert (reading.verdict, list(reading.completed), reading.cursor) == (Verdict.RETRY, [], None)
            return number, reading.reason
        [spec] = [each for each in reading.follow_ups if each.kind == kind]
        job = follow_up(job, spec)
    raise AssertionError("the circle was followed for 1,000 pages")


@pytest.mark.parametrize("kind", [*LISTS, kinds.REPO_REVIEWS, kinds.REPO_DISCUSSIONS])
@pytest.mark.parametrize(("tail", "length"), [(1, 2), (1, 3), (0, 5), (7, 2), (20, 30)])
def test_a_list_that_links_in_a_circle_is_refused_after_few_pages(kind: str, tail: int, length: int):
    requests, reason = pages_until_refused(kind, tail, length)

    assert requests <= 4 * max(tail + 1, length)
    assert "in a circle" in reason


@pytest.mark.parametrize("kind", [*LISTS, kinds.REPO_REVIEWS, kinds.REPO_DISCUSSIONS])
def test_a_long_list_is_read_to_its_end_with_a_trail_of_constant_size(kind: str):
    job, sizes = task(kind, newest=MOMENT) if kind == kinds.REPO_REVIEWS else task(kind), set[int]()
    of = linked if kind in LISTS else queried
    for number in range(1, 300):
        reading = source.read(job, of(kind, number))
        assert reading.verdict is Verdict.DONE
        [spec] = [each for each in reading.follow_ups if each.kind == kind]
        sizes.add(len(spec.params["trail"]["anchor"]))
        job = follow_up(job, spec)

    assert sizes == {16}
