"""From page to page: what is carried along, where reading ends, and what is said in the end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systems.github.answers import API, answer, follow_up, issue, link, message, task
from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import Cursor, JobSpec, Reading, Subject, Task, Verdict
from tidegate.storage.documents import Listing
from tidegate.systems.github import GithubSource, kinds

NEXT = link("/repositories/7/issues?state=all&page=2&after=abc")
source = GithubSource(API, kinds.CONVERSATIONS)


def only_job(reading: Reading) -> JobSpec:
    (spec,) = reading.follow_ups
    return spec


def second_page(first: Task, items: list[Any], headers: dict[str, str]) -> Task:
    return follow_up(first, only_job(source.read(first, answer(200, items, headers))))


def test_a_single_page_is_the_whole_list():
    reading = source.read(task(), answer(200, [issue(1, "2026-01-02T00:00:00Z")], {"ETag": '"e"'}))

    assert reading.cursor == Cursor(timestamp="2026-01-02T00:00:00Z", etag='"e"', credential="octocat")
    assert reading.completed == [Listing("issue", "repo:octocat/hello", 5)]
    assert [(d.kind, d.id, d.owner, d.sweep, d.version) for d in reading.documents] == [
        ("issue", "1", "1", 5, "2026-01-02T00:00:00Z")
    ]


@pytest.mark.parametrize("kind", [kinds.REPO_ISSUES, kinds.REPO_PRS, kinds.REPO_ISSUE_COMMENTS, kinds.REPO_COMMITS])
def test_a_document_moved_to_another_owner_is_not_written_for_the_former_one(kind: str):
    def page(full_name: str) -> list[Any]:
        return [{**issue(1, "2026-01-02T00:00:00Z"), "sha": "a", "url": f"{API}/repos/{full_name}/things/1"}]

    passed = source.read(task(kind), answer(200, page("Hubot/hello")))
    told = "the repository was transferred to Hubot, and is collected with that user"
    assert (passed.verdict, passed.reason) == (Verdict.GONE, told)
    assert (list(passed.documents), list(passed.completed), passed.cursor) == ([], [], None)
    for full_name in ("octocat/hello", "Octocat/renamed"):
        assert len(source.read(task(kind), answer(200, page(full_name))).documents) == 1


def test_the_cursor_is_stored_with_the_last_page_and_contains_the_first():
    first = task()
    begun = source.read(first, answer(200, [issue(2, "2026-01-02T00:00:00Z")], {"ETag": '"e"', **NEXT}))
    assert (begun.cursor, list(begun.completed)) == (None, [])
    assert only_job(begun).affinity == "octocat"

    second = follow_up(first, only_job(begun))
    assert source.request(second, "x").url == f"{API}/repositories/7/issues?state=all&page=2&after=abc"
    ended = source.read(second, answer(200, [issue(1, "2026-01-01T00:00:00Z")], {"ETag": '"f"'}))
    assert (ended.cursor, list(ended.completed)) == (None, [])

    lap = follow_up(second, only_job(ended))
    assert source.request(lap, "x").headers["If-None-Match"] == '"e"'
    reading = source.read(lap, answer(304))
    assert reading.cursor == Cursor(timestamp="2026-01-02T00:00:00Z", etag='"e"', credential="octocat")
    assert reading.completed == [Listing("issue", "repo:octocat/hello", 5)]


def test_reading_ends_at_a_known_time_and_marks_nothing_gone():
    cursor = Cursor(timestamp="2026-01-02T00:00:00Z", etag='"d"', credential="octocat")
    items = [issue(2, "2026-01-03T00:00:00Z"), issue(1, "2026-01-01T00:00:00Z")]
    reading = source.read(task(cursor=cursor), answer(200, items, {"ETag": '"e"', **NEXT}))

    assert (list(reading.follow_ups), list(reading.completed)) == ([], [])
    assert reading.cursor == Cursor(timestamp="2026-01-03T00:00:00Z", etag='"e"', credential="octocat")


def test_the_known_second_is_read_completely():
    cursor = Cursor(timestamp="2026-01-02T00:00:00Z")
    reading = source.read(task(cursor=cursor), answer(200, [issue(2, "2026-01-02T00:00:00Z")], NEXT))
    assert len(reading.follow_ups) == 1


def test_a_constantly_changing_list_is_left_to_the_next_run():
    current, laps = task(), 0
    while True:
        reading = source.read(current, answer(200, [issue(laps, f"2026-01-{laps + 1:02}T00:00:00Z")], NEXT))
        if not reading.follow_ups:
            break
        current = follow_up(current, only_job(reading))
        if current.spec.params.get("path") is not None:
            reading = source.read(current, answer(200, [issue(0, "2025-01-01T00:00:00Z")]))
            if not reading.follow_ups:
                break
            current, laps = follow_up(current, only_job(reading)), laps + 1
    assert laps < 10
    assert reading.cursor is not None
    assert list(reading.completed) == []


def test_more_items_in_one_second_than_pages_reach_are_given_up():
    moment = "2026-01-01T00:00:00Z"
    beyond = task(path="/x", oldest=moment, upto="2026-01-02T00:00:00Z", since_of_page=moment)
    reading = source.read(beyond, message(422, "Pagination with the page parameter is not supported"))
    assert (reading.verdict, "one second" in reading.reason) == (Verdict.GONE, True)


def test_events_are_read_back_far_enough_for_late_ones():
    cursor = Cursor(timestamp="2026-02-28T00:00:00Z")
    recent = {"id": "9", "created_at": "2026-03-01T11:00:00Z"}
    older = {"id": "1", "created_at": "2026-02-27T00:00:00Z"}
    following = link("/user/1/events?page=2")
    first = task(kinds.USER_EVENTS, cursor)

    assert second_page(first, [recent], following).spec.params["number"] == 2
    reading = source.read(first, answer(200, [recent, older], following))
    assert reading.cursor == Cursor(timestamp="2026-03-01T06:00:00Z", etag=None, credential="octocat")
    assert list(reading.completed) == []


@pytest.mark.parametrize(
    ("given_since", "since"),
    [("2026-01-31", "2026-01-31T00:00:00Z"), ("2026-01-31T01:00:00+01:00", "2026-01-31T00:00:00Z"), (None, None)],
)
def test_a_run_may_read_back_to_a_given_day_only(given_since: str | None, since: str | None):
    jobs = source.first_jobs(Subject(user_id="1", login="octocat", options={"since": given_since}))
    assert {job.params.get("since") for job in jobs} == {since}

    old = answer(200, [issue(1, "2026-01-01T00:00:00Z")], NEXT)
    assert len(source.read(task(since=since), old).follow_ups) == (1 if since is None else 0)


@pytest.mark.parametrize("options", [{"since": "yesterday"}, {"full": "yes"}, {"since": 5}])
def test_invalid_options_are_refused(options: dict[str, Any]):
    with pytest.raises(InvalidArgument):
        source.first_jobs(Subject(user_id="1", login="octocat", options=options))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[list[int]], int, int]:
    """Commits as lists of older parents, an old head, and how many go on a page."""
    count = draw(st.integers(1, 25))
    parents = [
        draw(st.lists(st.integers(0, child - 1), min_size=1, max_size=3, unique=True)) if child else []
        for child in range(count)
    ]
    return parents, draw(st.integers(0, count - 1)), draw(st.integers(1, 6))


def reachable(parents: list[list[int]], head: int) -> set[int]:
    found, left = {head}, [head]
    while left:
        new = [parent for parent in parents[left.pop()] if parent not in found]
        found.update(new)
        left += new
    return found


@given(histories())
def test_every_commit_not_reachable_from_the_old_head_is_read(history: tuple[list[list[int]], int, int]):
    parents, old_head, size = history
    head = len(parents) - 1
    listed = sorted(reachable(parents, head), reverse=True)
    current = task(kinds.REPO_COMMITS, Cursor(cursor=str(old_head)))
    read, number = set[str](), 0
    while True:
        part = listed[number * size : (number + 1) * size]
        items = [{"sha": str(n), "parents": [{"sha": str(p)} for p in parents[n]]} for n in part]
        is_last = (number + 1) * size >= len(listed)
        reading = source.read(current, answer(200, items, {} if is_last else link(f"/x?page={number + 2}")))
        read |= {document.id for document in reading.documents}
        if not reading.follow_ups:
            break
        current, number = follow_up(current, only_job(reading)), number + 1

    new = reachable(parents, head) - reachable(parents, old_head)
    assert read >= {f"7:{n}" for n in new}
    assert reading.cursor is not None
    assert reading.cursor.cursor == str(head)
    if old_head not in listed:
        assert reading.completed
