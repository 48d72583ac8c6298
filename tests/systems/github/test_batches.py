"""Details that are read by GraphQL for many items at once: review threads, and comments of discussions."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.systems.github.answers import API, HELLO, answer, follow_up, message, task
from tests.systems.github.deployment import Deployment, deployed
from tidegate.engine.source import Reading, Task, Verdict
from tidegate.systems.github import GithubSource, kinds
from tidegate_simulators.github import Behaviour, FaultKind, Sizes
from tidegate_simulators.github.extras import DISCUSSIONS
from tidegate_simulators.github.items import Items
from tidegate_simulators.github.repository import Repository

SOURCE = GithubSource(API)
CHANGED = "2026-02-01T00:00:00Z"
SIZES = Sizes(pulls=130, review_comments=300)


def repository_of(it: Deployment) -> Repository:
    [login] = it.sim.world.logins()
    [found] = it.sim.world.repositories_of(it.sim.world.require_account(login))
    return found


def comments(it: Deployment) -> dict[str, Any]:
    """Every comment and reply of the discussions."""
    found, extras = repository_of(it), it.sim.extras
    shown = [
        extras.discussion_comment(found, entry.number, comment, reply)
        for entry in extras.of(found, DISCUSSIONS)
        for comment, replies in enumerate(extras.talk_of(found, entry.number), 1)
        for reply in replies
    ]
    return {str(each["id"]): each for each in shown}


async def collected_comments(it: Deployment) -> dict[str, Any]:
    """What was collected; `reply_to_id` is missing where a comment is no reply."""
    found = await it.bodies("discussion_comment")
    return {id_: {"reply_to_id": None, **body} for id_, body in found.items()}


def threads(it: Deployment) -> dict[str, Any]:
    """Every review thread, with what links it to its pull request and to its first comment."""
    found, items = repository_of(it), Items(it.sim.world)
    said = found.review_comments
    shown = [
        items.review_thread(found, ordinal)
        | {
            "pull_request_number": said.parents[ordinal],
            "review_comment_id": items.review_comment(found, ordinal)["id"],
        }
        for ordinal in said.ordinals()
    ]
    return {str(each["id"]): each for each in shown}


async def collected_threads(it: Deployment) -> dict[str, Any]:
    """What was collected, without the fields that only GraphQL has."""
    found = await it.bodies("review_thread")
    return {id_: {k: v for k, v in body.items() if k not in ("node_id", "comments")} for id_, body in found.items()}


async def points(it: Deployment, **options: Any) -> int:
    before = it.sim.report()
    [run] = await it.collect(*it.sim.world.logins(), **options)
    assert (run.failed_jobs, run.skipped_items) == (0, 0)
    return it.spent(before).get("graphql", 0)


async def test_comments_of_discussions_are_read_with_their_replies(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, discussions=60, include=["discussion-comments"]) as it:
        found = repository_of(it)
        truth = comments(it)
        assert any(each["reply_to_id"] for each in truth.values())
        long = 1 + 1 + 1  # of two discussions: the rest of the comments of each, and of the replies to one of them
        assert await points(it) <= 1 + 5 + 1 + 2 * long
        assert await collected_comments(it) == truth
        assert len(await it.bodies("discussion")) == 60

        assert await points(it) == 1, "the list of discussions has no ETag; none of them changed"

        it.sim.extras.discuss(found, 5)
        assert await points(it) == 1 + 1
        assert await collected_comments(it) == comments(it)
        assert len(comments(it)) == len(truth) + 1 + len(it.sim.extras.talk_of(found, 5)[-1][1:])


async def test_review_threads_are_linked_to_their_comments_and_read_with_changed_pull_requests(
    tmp_path: Path, embedded_url: str
):
    async with deployed(tmp_path, embedded_url, sizes=SIZES, include=["review-threads"]) as it:
        found = repository_of(it)
        per_pull = [found.review_comments.parents.count(n) for n in found.threads.pulls()]
        assert await points(it) <= 3 * 5 + sum(count > 9 for count in per_pull)
        assert await collected_threads(it) == threads(it)
        assert len(threads(it)) == 300
        assert await points(it) == 0, "unchanged"

        it.sim.mutate.resolve_thread(found.full_name, 3)
        assert await points(it) == 0, "GitHub does not count the pull request as changed"
        it.sim.mutate.review_comment(found.full_name, found.review_comments.parents[3])
        assert await points(it) <= 2, "the pull request, and what changed in the last second"
        assert await collected_threads(it) == threads(it)


@pytest.mark.parametrize("fault", [FaultKind.TRUNCATED, FaultKind.INVALID, FaultKind.PARTIAL, FaultKind.BAD_GATEWAY])
async def test_a_fault_loses_no_comment(tmp_path: Path, embedded_url: str, fault: FaultKind):
    async with deployed(tmp_path, embedded_url, discussions=60, include=["discussion-comments"]) as it:
        it.sim.faults.inject(fault, route="graphql", times=2)
        await points(it)
        assert await collected_comments(it) == comments(it)


async def test_a_batch_that_times_out_is_split(tmp_path: Path, embedded_url: str):
    slow = Behaviour(error_pause_s=0, graphql_nodes_in_time=700)
    async with deployed(tmp_path, embedded_url, discussions=60, behaviour=slow, include=["discussion-comments"]) as it:
        await points(it)
        assert await collected_comments(it) == comments(it)


def batch(*numbers: int, kind: str = kinds.REPO_REVIEW_THREADS) -> Task:
    """The job that follows a page with changed pull requests."""
    parent = task(kinds.REPO_PRS, details=[kind])
    page = [{"id": n, "number": n, "node_id": f"PR_{n}", "updated_at": CHANGED} for n in numbers]
    [spec, *_] = SOURCE.read(parent, answer(200, page)).follow_ups
    return follow_up(parent, spec)


def nodes(*listed: Any) -> Any:
    """An answer with the details of some items; None for an item that is gone."""
    return answer(200, {"data": {"nodes": [None if each is None else {"items": each} for each in listed]}})


def connection(*ids: str, after: str | None = None) -> dict[str, Any]:
    return {
        "nodes": [{"id": id_, "node_id": id_, "comments": {"nodes": [{"id": "7"}]}} for id_ in ids],
        "pageInfo": {"hasNextPage": after is not None, "endCursor": after},
    }


def variables(current: Task) -> dict[str, Any]:
    return msgspec.json.decode(SOURCE.request(current, "x").body or b"")["variables"]


def ids(reading: Reading) -> list[str]:
    return [document.id for document in reading.documents]


def test_one_query_reads_the_threads_of_a_page_of_pull_requests():
    current = batch(3, 4)
    assert current.spec.bucket == "graphql"
    assert variables(current) == {"ids": ["PR_3", "PR_4"], "first": 9, "after": None}
    reading = SOURCE.read(current, nodes(connection("a"), connection("b")))
    assert [(each.id, body(each)["pull_request_number"]) for each in reading.documents] == [("a", 3), ("b", 4)]
    assert [body(each)["review_comment_id"] for each in reading.documents] == [7, 7]


def body(document: Any) -> dict[str, Any]:
    return msgspec.json.decode(document.text)


def test_an_item_that_is_gone_is_skipped_and_the_others_are_read():
    reading = SOURCE.read(batch(3, 4), nodes(None, connection("b")))
    assert (ids(reading), reading.skipped) == (["b"], ["review-threads of 3: it no longer exists"])


@pytest.mark.parametrize("node", [{}, {"items": None}, {"items": {"nodes": []}}, "text"])
def test_an_item_of_another_shape_is_skipped_and_the_others_are_read(node: Any):
    reading = SOURCE.read(batch(3, 4), nodes(node, connection("b")))
    assert (ids(reading), len(reading.skipped)) == (["b"], 1)
    assert reading.skipped[0].startswith("review-threads of 3: ")


def test_further_details_of_an_item_have_a_query_of_their_own():
    current = batch(3, 4)
    [spec] = SOURCE.read(current, nodes(connection("a", after="x"), connection("b"))).follow_ups
    further = follow_up(current, spec)
    assert variables(further) == {"ids": ["PR_3"], "first": 50, "after": "x"}
    reading = SOURCE.read(further, nodes(connection("c", after="x")))
    assert (list(reading.follow_ups), len(reading.skipped)) == ([], 1), "a cursor that does not move is not followed"


def test_items_that_change_again_or_other_items_are_other_jobs():
    assert batch(3, 4).spec.page == batch(3, 4).spec.page
    assert len({batch(3, 4).spec.page, batch(3, 5).spec.page, batch(3).spec.page}) == 3


def test_a_query_that_takes_too_long_is_halved_until_one_detail_is_left():
    current, sizes = batch(3, 4), list[tuple[int, int]]()
    while follow_ups := SOURCE.read(current, message(502, "timeout")).follow_ups:
        current = follow_up(current, follow_ups[0])
        asked = variables(current)
        sizes.append((len(asked["ids"]), asked["first"]))
    assert sizes == [(1, 9), (1, 4), (1, 2), (1, 1)]
    assert SOURCE.read(current, message(502, "timeout")).verdict is Verdict.RETRY


@pytest.mark.parametrize(
    ("problem", "verdict"),
    [
        ({"type": "FORBIDDEN", "message": "Resource not accessible by integration"}, Verdict.GONE),
        ({"type": "SERVICE_UNAVAILABLE", "message": "timeout"}, Verdict.RETRY),
        ({"type": "RATE_LIMITED", "message": "API rate limit exceeded"}, Verdict.LATER),
    ],
)
def test_errors_say_whether_to_retry(problem: dict[str, str], verdict: Verdict):
    failed = answer(200, {"data": None, "errors": [problem]})
    assert SOURCE.read(batch(3), failed).verdict is verdict


def test_an_answer_with_too_few_nodes_is_not_taken_for_details_without_content():
    assert SOURCE.read(batch(3, 4), nodes(connection("a"))).verdict is Verdict.RETRY


def test_pull_requests_without_a_name_in_graphql_have_no_job():
    parent = task(kinds.REPO_PRS, details=[kinds.REPO_REVIEW_THREADS])
    page = [{"id": 3, "number": 3, "updated_at": CHANGED}]
    assert SOURCE.read(parent, answer(200, page)).follow_ups == []
    assert HELLO.node_id
