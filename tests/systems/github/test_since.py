"""What a run left out because of `since` is fetched by a later one that wants it, and is never taken for known."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.systems.github.answers import API, answer, follow_up, issue, link, task
from tests.systems.github.deployment import LARGE, assert_complete, deployed
from tidegate.engine.source import Cursor, Reading
from tidegate.systems.github import GithubSource, kinds

source = GithubSource(API, kinds.CONVERSATIONS)
OLD, SPRING, MAY, JUNE = "2025-01-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z"


def list_run(pages: list[list[dict[str, Any]]], cursor: Cursor | None = None, **wishes: Any) -> Reading:
    """Read a list to its end; a further lap finds that nothing happened."""
    current = task(kinds.REPO_ISSUES, cursor, **wishes)
    reading = source.read(current, _page(pages, 0))
    number = 0
    while reading.follow_ups:
        current = follow_up(current, reading.follow_ups[0])
        number = current.spec.params.get("number", 1) - 1
        is_lap = current.spec.page.startswith("lap")
        reading = source.read(current, answer(304) if is_lap else _page(pages, number))
    return msgspec.structs.replace(reading, reason=f"{number + 1} pages")


def _page(pages: list[list[dict[str, Any]]], number: int) -> Any:
    following = link(f"/repositories/7/issues?state=all&page={number + 2}") if number + 1 < len(pages) else {}
    return answer(200, pages[number], {"ETag": '"e"', **following})


def asks_conditionally(cursor: Cursor | None, kind: str = kinds.REPO_ISSUES, **wishes: Any) -> bool:
    return "If-None-Match" in source.request(task(kind, cursor, **wishes), "x").headers


PAGES = [[issue(3, JUNE)], [issue(2, SPRING)], [issue(1, OLD)]]


def test_a_list_read_down_to_a_day_is_completed_by_a_run_without_a_limit():
    part = list_run(PAGES, since=MAY)
    assert part.cursor is not None
    assert part.cursor.cursor == MAY
    assert not asks_conditionally(part.cursor)
    assert asks_conditionally(part.cursor, since=MAY)
    assert not asks_conditionally(part.cursor, since=SPRING)

    whole = list_run(PAGES, part.cursor)
    assert whole.cursor is not None
    assert whole.cursor.cursor is None
    assert whole.completed, "it was read to its end"
    assert asks_conditionally(whole.cursor)
    assert asks_conditionally(whole.cursor, since=OLD)


def test_items_skipped_between_two_runs_are_remembered_too():
    """The first run knew everything up to spring; the second looked back to May only: there is a gap."""
    known = Cursor(timestamp=SPRING, etag='"d"', credential="octocat")
    pages = [[issue(3, JUNE)], [issue(2, "2026-04-01T00:00:00Z")], [issue(1, OLD)]]

    second = list_run(pages, known, since=MAY)

    assert second.cursor == Cursor(cursor=MAY, timestamp=JUNE, etag='"e"', credential="octocat")
    assert not asks_conditionally(second.cursor)


def test_news_read_down_to_a_known_item_keep_the_gap():
    before = Cursor(cursor=SPRING, timestamp=MAY, etag='"d"', credential="octocat")
    reading = list_run([[issue(3, JUNE), issue(2, SPRING)]], before, since=SPRING)
    assert reading.cursor == Cursor(cursor=None, timestamp=JUNE, etag='"e"', credential="octocat"), "one page is all"

    reading = list_run([[issue(3, JUNE), issue(2, SPRING)], [issue(1, OLD)]], before, since=SPRING)
    assert reading.cursor == Cursor(cursor=SPRING, timestamp=JUNE, etag='"e"', credential="octocat")


def commit(sha: str, *parents: str) -> dict[str, Any]:
    return {"sha": sha, "parents": [{"sha": parent} for parent in parents]}


def commits_read(items: list[dict[str, Any]], cursor: Cursor | None = None, **wishes: Any) -> Reading:
    return source.read(task(kinds.REPO_COMMITS, cursor, **wishes), answer(200, items, {"ETag": '"e"'}))


def test_skipped_commits_are_read_by_a_run_without_a_limit():
    part = commits_read([commit("c", "b")], since=MAY)
    assert part.cursor == Cursor(cursor="c", timestamp=MAY, etag='"e"', credential="octocat")
    assert not asks_conditionally(part.cursor, kinds.REPO_COMMITS)
    assert asks_conditionally(part.cursor, kinds.REPO_COMMITS, since=JUNE)

    first = task(kinds.REPO_COMMITS, part.cursor)
    reading = source.read(first, answer(200, [commit("c", "b")], link("/repositories/7/commits?page=2")))
    (more,) = reading.follow_ups
    assert more.page == "page 2", "the head of the run before is not taken for known ground"
    whole = source.read(follow_up(first, more), answer(200, [commit("b")]))
    assert whole.cursor is not None
    assert whole.cursor.timestamp is None
    assert whole.completed


def test_commits_down_to_the_old_head_are_known_as_far_as_it_was():
    before = Cursor(cursor="b", timestamp=SPRING, etag='"d"', credential="octocat")
    met = commits_read([commit("c", "b"), commit("b", "a")], before, since=SPRING)
    assert met.cursor is not None
    assert met.cursor.timestamp == SPRING

    known = Cursor(cursor="b", etag='"d"', credential="octocat")
    missed = commits_read([commit("d", "c")], known, since=MAY)
    assert missed.cursor is not None
    assert missed.cursor.timestamp == MAY, "what lies between the old head and May was left out"
    reached = commits_read([commit("c", "b"), commit("b", "a")], known, since=MAY)
    assert reached.cursor is not None
    assert reached.cursor.timestamp is None


@pytest.mark.parametrize("kind", [kinds.REPO_ISSUES, kinds.REPO_COMMITS])
def test_a_full_run_sends_no_conditional_requests(kind: str):
    assert not asks_conditionally(Cursor(etag='"d"', credential="octocat"), kind, full=True)
    assert asks_conditionally(Cursor(etag='"d"', credential="octocat"), kind)


@pytest.mark.full
async def test_a_run_without_a_limit_completes_what_limited_runs_started(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=LARGE) as it:
        (login,) = it.sim.world.logins()
        (found,) = it.sim.truth(login).repositories
        middle = sorted(item["updated_at"] for item in found.issues)[len(found.issues) // 2]
        await it.collect(login, since=middle)
        assert 0 < len(await it.bodies("issue")) < len(found.issues)
        before = it.sim.report()
        await it.collect(login, since=middle)
        assert it.spent(before)["core"] == 0, "what the same wish brought is known"

        await it.collect(login)

        await assert_complete(it, login)
        before = it.sim.report()
        await it.collect(login)
        assert it.spent(before)["core"] == 0
