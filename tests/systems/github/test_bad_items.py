"""Bad items and bad bodies: an item is skipped and counted, a body that is no list is asked for again."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.systems.github.answers import API, answer, follow_up, issue, link, task
from tests.systems.github.deployment import CALM, Deployment, deployed
from tidegate.engine.lifecycle import RunState
from tidegate.engine.metrics import COLLECT_ITEMS_SKIPPED
from tidegate.engine.reports.progress import jobs_of
from tidegate.engine.source import Cursor, Reading, Subject, Task, Verdict
from tidegate.systems.github import CONVERSATIONS, GithubSource, kinds
from tidegate_simulators.github import FaultKind, Sizes, parse_faults

source = GithubSource(API, kinds.CONVERSATIONS)

MOMENT = "2026-01-02T00:00:00Z"
GOOD: dict[str, dict[str, Any]] = {
    kinds.REPO_ISSUES: issue(1, MOMENT),
    kinds.REPO_PRS: issue(1, MOMENT),
    kinds.REPO_ISSUE_COMMENTS: issue(1, MOMENT),
    kinds.REPO_REVIEW_COMMENTS: issue(1, MOMENT),
    kinds.REPO_COMMITS: {"sha": "a", "parents": []},
    kinds.USER_EVENTS: {"id": "1", "created_at": MOMENT},
}
BAD = [None, 7, "text", [], {}, {"id": None, "sha": None}, {"id": {"value": 1}, "sha": 1}, {"id": True, "sha": ""}]


@pytest.mark.parametrize("kind", GOOD)
def test_invalid_items_are_skipped_and_the_rest_of_the_page_is_kept(kind: str):
    reading = source.read(task(kind), answer(200, [*BAD, GOOD[kind], None]))

    assert (reading.verdict, len(reading.documents)) == (Verdict.DONE, 1)
    assert len(reading.skipped) == len(BAD) + 1
    assert all(reading.skipped)


UNDECODABLE_ITEMS = {
    "half of a sign": rb'{"id": 2, "title": "\ud800 ] , \" }"}',
    "bytes that are no text": b'{"id": 2, "title": "\xff\xfe", "login": "\xc3("}',
    "nested too deeply": b'{"id": 2, "a": ' + b'{"a": [' * 5_000 + b"1" + b"]}" * 5_000 + b"}",
    "no number": b'{"id": 2, "score": NaN}',
    "control character": b'{"id": 2, "title": "a\nb"}',
    "unknown escape": rb'{"id": 2, "title": "\x, ["}',
    "nothing": b" ",
}


@pytest.mark.parametrize("kind", [*GOOD, "repositories"])
@pytest.mark.parametrize("item", UNDECODABLE_ITEMS.values(), ids=UNDECODABLE_ITEMS)
def test_an_item_that_cannot_be_decoded_costs_no_other_item_of_its_page(kind: str, item: bytes):
    asked = repositories() if kind == "repositories" else task(kind)
    good = {"id": 7, "full_name": "octocat/hello"} if kind == "repositories" else GOOD[kind]
    reading = source.read(asked, answer(200, b"\r\n[%b,%b , %b]\n" % (item, msgspec.json.encode(good), item)))

    assert (reading.verdict, len(reading.documents), len(reading.skipped)) == (Verdict.DONE, 1, 2)


def of_lists(kind: str) -> tuple[Task, bytes, dict[str, Any]]:
    """A job, an answer in which its list of items is to be inserted, and a valid item."""
    page = b'"pageInfo": {"hasNextPage": false, "endCursor": null}'
    repository = {"id": 7, "full_name": "octocat/hello"}
    batch = [{"id": name, "fields": {}} for name in ("D_1", "D_2")]
    comment = {"node_id": "C_1", "id": "5"}
    match kind:
        case "search":
            searched = msgspec.structs.replace(repositories().spec, params={"query": "stars:>9"})
            asked = msgspec.structs.replace(repositories(), spec=searched)
            return asked, b'{"total_count": 3, "note": "[", "items": [%b], "incomplete_results": false}', repository
        case kinds.REPO_WORKFLOW_RUNS:
            return task(kind), b'{"total_count": 3,\n"workflow_runs" : [%b]}', {"id": 1, "status": "completed"}
        case kinds.REPO_WORKFLOW_JOBS:
            asked = task(kind, path="/repositories/7/actions/runs/1/jobs", item="1")
            return asked, b'{"jobs":[%b],"total_count":3}', {"id": 1}
        case kinds.REPO_REVIEWS:
            pulls = b'{"data": {"node": {"pullRequests": {"nodes": [{"id": "P", "number": 1, "updatedAt": "2026", '
            pulls += b'"reviews": {"nodes": [%b], ' + page + b"}}], " + page + b"}}}}"
            return task(kind, newest=MOMENT), pulls, review(1)
        case "reviews of one pull request":
            asked = task(kinds.REPO_REVIEWS, newest=MOMENT, pending=[["P", "c"]], is_over=True)
            one = b'{"data": {"node": {"id": "P", "number": 1, "updatedAt": "2026", "reviews": {"nodes": [%b], '
            return asked, one + page + b"}}}}", review(1)
        case "pull requests":
            pulls = b'{"data": {"node": {"pullRequests": {"nodes": [%b], ' + page + b"}}}}"
            return task(kinds.REPO_REVIEWS, newest=MOMENT), pulls, pull(review(1))
        case kinds.REPO_DISCUSSIONS:
            answered = b'{"data": {"node": {"items": {' + page + b', "nodes": [%b]}}}}'
            return task(kind), answered, {"id": 1, "updated_at": MOMENT}
        case kinds.REPO_DISCUSSION_COMMENTS:
            nodes = b'{"data": {"nodes": [null, {"items": {"nodes": [%b], ' + page + b"}}]}}"
            return task(kind, batch=batch), nodes, comment
        case _:
            nodes = b'{"data": {"nodes": [null, {"items": {"nodes": [{"node_id": "C_9", "replies": {"nodes": [%b], '
            nodes += page + b'}, "id": 7}], ' + page + b"}}]}}"
            return task(kinds.REPO_DISCUSSION_COMMENTS, batch=batch), nodes, comment


LISTS = {
    "search": 1,
    kinds.REPO_WORKFLOW_RUNS: 1,
    kinds.REPO_WORKFLOW_JOBS: 1,
    kinds.REPO_REVIEWS: 1,
    "reviews of one pull request": 1,
    "pull requests": 1,
    kinds.REPO_DISCUSSIONS: 1,
    kinds.REPO_DISCUSSION_COMMENTS: 1,
    "replies": 2,
}
"""Lists inside of objects, and the documents of a page with one valid item."""


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("item", UNDECODABLE_ITEMS.values(), ids=UNDECODABLE_ITEMS)
def test_an_item_of_a_list_inside_an_object_costs_no_other_item(kind: str, item: bytes):
    asked, around, good = of_lists(kind)
    whole = source.read(asked, answer(200, around.replace(b"%b", msgspec.json.encode(good))))
    listed = b"%b, %b ,%b" % (item, msgspec.json.encode(good), item)
    reading = source.read(asked, answer(200, around.replace(b"%b", listed)))

    assert (reading.verdict, len(reading.documents)) == (Verdict.DONE, LISTS[kind])
    assert len(reading.skipped) == len(whole.skipped) + 2


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("item", [None, 7, "text", [], {"id": {"value": 1}}])
def test_an_item_of_another_type_inside_an_object_costs_no_other_item(kind: str, item: Any):
    asked, around, good = of_lists(kind)
    whole = source.read(asked, answer(200, around.replace(b"%b", msgspec.json.encode(good))))
    listed = msgspec.json.encode([item, good, item])[1:-1]
    reading = source.read(asked, answer(200, around.replace(b"%b", listed)))

    assert (reading.verdict, len(reading.documents)) == (Verdict.DONE, LISTS[kind])
    assert len(reading.skipped) == len(whole.skipped) + 2


@pytest.mark.parametrize("kind", LISTS)
def test_an_answer_with_a_list_that_is_cut_off_or_missing_is_requested_again(kind: str):
    asked, around, good = of_lists(kind)
    items = b'{"id": NaN}, ' + msgspec.json.encode(good)
    whole = around.replace(b"%b", items)
    for body in (whole[:-1], whole[: whole.index(items)] + items, whole.replace(b"{", b'{"broken": NaN, ', 1), b"{}"):
        reading = source.read(asked, answer(200, body))
        assert (reading.verdict, list(reading.completed), reading.cursor) == (Verdict.RETRY, [], None)


def test_invalid_repositories_are_skipped_and_the_others_are_collected():
    good = {"id": 7, "full_name": "octocat/hello", "node_id": None, "owner": None, "has_issues": None}
    foreign = {"id": 8, "full_name": "hubot/hello"}
    nameless = {"id": 9, "full_name": "octocat"}
    reading = source.read(repositories(), answer(200, [None, foreign, good, nameless, {"id": 10}]))

    assert [document.id for document in reading.documents] == ["7"]
    assert len(reading.skipped) == 4
    assert {job.resource for job in reading.follow_ups} == {"repo:octocat/hello"}


def test_an_unreadable_repository_is_not_marked_gone():
    """It may be the one that the last run knew, so what is in it stays known, until a whole list lacks it."""
    hello = {"id": 7, "full_name": "octocat/hello"}
    first = source.read(repositories(), answer(200, [hello]))
    spoilt = source.read(repositories(first.cursor), answer(200, [None]))
    whole = source.read(repositories(spoilt.cursor), answer(200, []))

    assert "repo:octocat/hello" in {listing.resource for listing in whole.completed}


def repositories(cursor: Cursor | None = None) -> Task:
    first = source.first_jobs(Subject(user_id="1", login="octocat"))[1]
    return Task(spec=first, run_id=5, user_id="1", credential="octocat", cursor=cursor)


CUT_OFF = [
    b"[" * 5_000,
    rb'[{"id": 1, "a": "\ud800"}, {"id"',
    b'[{"id": 1, "a": "]}]',
    b'[{"id": NaN}] []',
    b"{" * 5_000,
]


@pytest.mark.parametrize("kind", [*GOOD, "repositories"])
@pytest.mark.parametrize("body", [b"", b"null", b"<html></html>", b'[{"id": 1', b'{"message": "hm"}', b"7", *CUT_OFF])
def test_a_body_that_is_no_list_is_requested_again_and_is_not_an_empty_list(kind: str, body: bytes):
    asked = repositories() if kind == "repositories" else task(kind)
    reading = source.read(asked, answer(200, body))

    assert (reading.verdict, list(reading.completed), reading.cursor) == (Verdict.RETRY, [], None)


NEXT = link("/repositories/7/issues?page=2")


@pytest.mark.parametrize("kind", GOOD)
def test_a_page_without_readable_items_does_not_end_the_list(kind: str):
    first = task(kind)
    spoilt = source.read(first, answer(200, [None, {}], NEXT))
    (spec,) = spoilt.follow_ups
    second = follow_up(first, spec)
    reading = source.read(second, answer(200, [GOOD[kind]]))

    assert "page=2" in source.request(second, "x").url
    assert (spoilt.cursor, len(reading.documents)) == (None, 1)


def test_after_an_unreadable_first_commit_the_next_page_is_numbered_from_the_current_head():
    """Pages are counted from the head. Where that is unknown, the 101st commit would fall between two pages."""
    first = task(kinds.REPO_COMMITS)
    (spec,) = source.read(first, answer(200, [None, {"sha": "b"}], NEXT)).follow_ups
    assert "sha=" not in source.request(follow_up(first, spec), "x").url

    (spec,) = source.read(first, answer(200, [{"sha": "a", "parents": None}, {"sha": "b"}], NEXT)).follow_ups
    assert "sha=a&page=2" in source.request(follow_up(first, spec), "x").url


def review(number: int, **changed: Any) -> dict[str, Any]:
    return {"id": f"R{number}", "fullDatabaseId": str(number), "state": "APPROVED", "url": "u", **changed}


def pull(*reviews: Any, after: str | None = None) -> dict[str, Any]:
    page = {"hasNextPage": after is not None, "endCursor": after}
    return {"id": "P", "number": 1, "updatedAt": MOMENT, "reviews": {"nodes": list(reviews), "pageInfo": page}}


def answered(*pulls: Any, **more: Any) -> Reading:
    page = {"hasNextPage": False, "endCursor": None}
    body = {"data": {"node": {"pullRequests": {"nodes": list(pulls), "pageInfo": page}}}, **more}
    return source.read(task(kinds.REPO_REVIEWS, newest=MOMENT), answer(200, body))


def test_invalid_graphql_nodes_are_skipped_and_the_others_are_kept():
    reading = answered(
        None, {}, pull(None, review(1, author=None, commit=None, body=None), review(2, fullDatabaseId=2))
    )

    assert (reading.verdict, [document.id for document in reading.documents]) == (Verdict.DONE, ["1"])
    assert len(reading.skipped) == 4


def test_a_forbidden_node_affects_only_itself():
    forbidden = {"type": "FORBIDDEN", "message": "no", "path": ["node", "pullRequests", "nodes", 0]}
    reading = answered(None, pull(review(1)), errors=[forbidden])
    assert (reading.verdict, len(reading.documents), len(reading.skipped)) == (Verdict.DONE, 1, 1)

    passing = answered(None, pull(review(1)), errors=[{"type": "SERVICE_UNAVAILABLE", "message": "later"}])
    assert passing.verdict is Verdict.RETRY


@pytest.mark.parametrize("cursor", [None, "c"])
def test_a_page_of_pull_requests_without_a_next_cursor_is_a_gap(cursor: str | None):
    """The cursor of the list stays where it was, so the next run reads the pull requests behind it."""
    asked = task(kinds.REPO_REVIEWS, newest=MOMENT, after="c")
    page = {"hasNextPage": True, "endCursor": cursor}
    body = {"data": {"node": {"pullRequests": {"nodes": [pull(review(1))], "pageInfo": page}}}}

    reading = source.read(asked, answer(200, body))

    assert ([document.id for document in reading.documents], len(reading.skipped)) == (["1"], 1)
    assert (list(reading.follow_ups), list(reading.completed), reading.cursor) == ([], [], None)


@pytest.mark.parametrize("cursor", [None, "c"])
def test_reviews_without_a_next_cursor_affect_only_themselves(cursor: str | None):
    asked = task(kinds.REPO_REVIEWS, newest=MOMENT, pending=[["P", "c"], ["Q", "d"]], is_over=True)
    node = pull(review(1))
    node["reviews"]["pageInfo"] = {"hasNextPage": True, "endCursor": cursor}

    reading = source.read(asked, answer(200, {"data": {"node": node}}))

    assert ([document.id for document in reading.documents], len(reading.skipped)) == (["1"], 1)
    assert reading.follow_ups[0].params["pending"] == (("Q", "d"),)


def test_a_pull_request_deleted_while_its_reviews_were_read_affects_only_itself():
    asked = task(kinds.REPO_REVIEWS, newest=MOMENT, pending=[["P", "c"], ["Q", "d"]], is_over=True)
    for body in ({"data": {"node": None}}, {"data": {"node": None}, "errors": [{"type": "NOT_FOUND"}]}):
        reading = source.read(asked, answer(200, body))
        assert (reading.verdict, len(reading.skipped)) == (Verdict.DONE, 1)
        assert reading.follow_ups[0].params["pending"] == (("Q", "d"),)


@pytest.mark.parametrize("node", [{}, {"pullRequests": {}}, {"pullRequests": {"nodes": []}}, {"pullRequests": None}])
def test_a_graphql_answer_without_its_list_is_requested_again(node: dict[str, Any]):
    reading = source.read(task(kinds.REPO_REVIEWS, newest=MOMENT), answer(200, {"data": {"node": node}}))
    assert (reading.verdict, list(reading.completed)) == (Verdict.RETRY, [])


def test_a_profile_is_stored_only_for_the_requested_account():
    known = Cursor(cursor="583231")
    mixed_up = source.read(task(kinds.USER_BASIC, known), answer(200, {"id": 9, "login": "hubot"}))
    assert (mixed_up.verdict, list(mixed_up.documents)) == (Verdict.RETRY, [])
    assert mixed_up.reason == "asked for the profile of octocat, and got that of hubot"

    passed_on = source.read(task(kinds.USER_BASIC, known), answer(200, {"id": 9, "login": "octocat"}))
    assert (passed_on.verdict, list(passed_on.documents), passed_on.cursor) == (Verdict.GONE, [], None)
    assert "is a different account now: its number is 9, was 583231" in passed_on.reason

    accepted = source.read(task(kinds.USER_BASIC, known, full=True), answer(200, {"id": 9, "login": "octocat"}))
    assert [document.id for document in accepted.documents] == ["9"]
    assert [listing.kind for listing in accepted.completed] == ["user"], "the profile of the former account is gone"
    assert accepted.cursor is not None
    assert accepted.cursor.cursor == "9"


def test_data_of_another_account_with_the_same_login_is_not_stored():
    def listed(owner: int) -> Any:
        return answer(200, [{"id": owner, "full_name": "octocat/hello", "owner": {"id": owner}}])

    first = source.read(repositories(), listed(583231))
    second = source.read(repositories(first.cursor), listed(9))
    assert (second.verdict, list(second.documents), list(second.follow_ups)) == (Verdict.GONE, [], [])

    def done(actor: int) -> Any:
        return answer(200, [{"id": str(actor), "created_at": MOMENT, "actor": {"id": actor}}])

    begun = source.read(task(kinds.USER_EVENTS), done(583231))
    other = source.read(task(kinds.USER_EVENTS, begun.cursor), done(9))
    assert (other.verdict, list(other.documents)) == (Verdict.GONE, [])


LONG = Sizes(issues=311, pulls=40, commits=120, issue_comments=30, review_comments=20, reviews=30)


async def stored(it: Deployment, kind: str) -> set[str]:
    return {id_.rpartition(":")[2] for id_ in await it.bodies(kind)}


def expected(it: Deployment, login: str) -> dict[str, set[str]]:
    found = it.sim.truth(login).repositories
    return {
        "issue": {str(item["id"]) for each in found for item in each.issues},
        "pull_request": {str(item["id"]) for each in found for item in each.pulls},
        "commit": {item["sha"] for each in found for item in each.commits},
        "issue_comment": {str(item["id"]) for each in found for item in each.issue_comments},
        "review_comment": {str(item["id"]) for each in found for item in each.review_comments},
        "review": {str(item["id"]) for each in found for item in each.reviews},
        "event": {event["id"] for event in it.sim.truth(login).events},
    }


async def test_an_invalid_item_on_every_page_of_every_list_affects_only_itself(tmp_path: Path, embedded_url: str):
    faults = parse_faults(
        "null@repo.issues=1,no-id@repo.pulls=1,wrong-type@repo.commits=1,null@user.events=1,"
        "no-id@repo.issue_comments=1,wrong-type@repo.review_comments=1,null@graphql=1"
    )
    behaviour = msgspec.structs.replace(CALM, faults=faults)
    async with deployed(
        tmp_path, embedded_url, sizes=LONG, events=120, include=CONVERSATIONS, behaviour=behaviour
    ) as it:
        (login,) = it.sim.world.logins()
        counted = COLLECT_ITEMS_SKIPPED.labels("github", kinds.REPO_ISSUES)._value.get()  # pyright: ignore[reportPrivateUsage]
        (run,) = await it.collect(login)

        assert (run.status, run.failed_jobs) == (RunState.COMPLETED, 0)
        for kind, ids in expected(it, login).items():
            assert ids - await stored(it, kind) <= it.sim.corrupter.hidden, kind
        assert 0 < len(expected(it, login)["issue"] - await stored(it, "issue")) <= 4, "one of a page"
        assert run.skipped_items >= len(it.sim.corrupter.hidden) > 6
        told = COLLECT_ITEMS_SKIPPED.labels("github", kinds.REPO_ISSUES)._value.get()  # pyright: ignore[reportPrivateUsage]
        assert told - counted >= 4
        jobs = await it.parts.database.read(jobs_of, run.id)
        assert {job.kind for job in jobs if "skipped 1 unreadable items" in (job.last_error or "")} >= {*GOOD} - {
            kinds.USER_BASIC
        }


UNREADABLE = "null@repo.issues=1,no-id@repo.pulls=1,wrong-type@repo.commits=1,null@user.repos=1,null@graphql=1"


async def test_a_temporarily_unreadable_item_is_read_again_in_the_same_run(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=5)) as it:
        (login,) = it.sim.world.logins()
        it.sim.faults.inject(FaultKind.NULL_ITEM, route="repo.issues")
        (run,) = await it.collect(login)

        assert it.sim.corrupter.hidden
        assert (run.skipped_items, run.failed_jobs, len(await it.bodies("issue"))) == (0, 0, 5)
        assert it.sim.report().by_route["repo.issues"] == 2
        it.sim.mutate.delete_issue(it.sim.truth(login).repositories[0].repository["full_name"], 1)
        await it.collect(login)
        assert len(await it.bodies("issue")) == 4, "the list has no gap, and tells what is gone"


async def test_items_unreadable_in_one_run_are_fetched_by_the_next(tmp_path: Path, embedded_url: str):
    sizes = Sizes(issues=120, pulls=3, commits=5, issue_comments=2, review_comments=2, reviews=4)
    async with deployed(tmp_path, embedded_url, sizes=sizes, include=CONVERSATIONS, repositories=2) as it:
        (login,) = it.sim.world.logins()
        it.sim.faults.set_rules(parse_faults(UNREADABLE))
        (first,) = await it.collect(login)
        it.sim.faults.set_rules([])
        (second,) = await it.collect(login)

        assert (first.skipped_items > 0, second.skipped_items) == (True, 0)
        for kind, ids in expected(it, login).items():
            assert await stored(it, kind) == ids, kind
        before = it.sim.report()
        await it.collect(login)
        assert not any(it.spent(before).values())


async def test_permanently_unreadable_items_cost_calls_in_two_runs_and_then_none(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=5, pulls=3, commits=4)) as it:
        (login,) = it.sim.world.logins()
        it.sim.faults.set_rules(parse_faults(UNREADABLE.replace("null@user.repos=1,", "")))
        for _ in range(2):
            (run,) = await it.collect(login)
            assert run.skipped_items == 3
        before = it.sim.report()
        (run,) = await it.collect(login)
        assert (run.skipped_items, run.failed_jobs) == (0, 0)
        assert not any(it.spent(before).values())


async def test_a_collected_document_stays_when_its_item_becomes_unreadable(tmp_path: Path, embedded_url: str):
    """A list with a bad item cannot tell what is gone: the item may be any of those that it lacks."""
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=5)) as it:
        (login,) = it.sim.world.logins()
        await it.collect(login)
        it.sim.faults.set_rules(parse_faults("null@repo.issues=1"))
        (run,) = await it.collect(login, full=True)

        assert (run.skipped_items, len(await it.bodies("issue"))) == (1, 5)


async def test_bodies_of_another_kind_are_requested_again(tmp_path: Path, embedded_url: str):
    async with deployed(tmp_path, embedded_url, sizes=Sizes(issues=5), users=2) as it:
        login = it.sim.world.logins()[0]
        await it.collect(login)
        for kind in (FaultKind.HTML, FaultKind.EMPTY, FaultKind.INVALID, FaultKind.NO_CONTENT):
            it.sim.faults.inject(kind, route="repo.issues")
        it.sim.faults.inject(FaultKind.MIXED_UP, route="user")
        (run,) = await it.collect(login, full=True)

        assert (run.failed_jobs, run.skipped_items, len(await it.bodies("issue"))) == (0, 0, 5)
        assert set(await it.bodies("user")) == {str(it.sim.truth(login).profile["id"])}


async def test_answers_without_content_lose_no_document(tmp_path: Path, embedded_url: str):
    """In a first run, and in a full one that could mark documents as gone; of lists in REST and in GraphQL."""
    async with deployed(tmp_path, embedded_url, sizes=LONG, events=120, include=CONVERSATIONS) as it:
        (login,) = it.sim.world.logins()
        for full in (False, True):
            for fault in (FaultKind.NO_CONTENT, FaultKind.RESET_CONTENT, FaultKind.EMPTY):
                for route in ("user.repos", "repo.issues", "repo.commits", "user.events", "graphql"):
                    it.sim.faults.inject(fault, route=route)
            (run,) = await it.collect(login, full=full)

            assert (run.status, run.failed_jobs, run.skipped_items) == (RunState.COMPLETED, 0, 0)
            for kind, ids in expected(it, login).items():
                assert await stored(it, kind) == ids, kind


async def test_null_fields_of_deleted_accounts_and_forks_are_stored_and_counted(tmp_path: Path, embedded_url: str):
    behaviour = msgspec.structs.replace(CALM, faults=parse_faults("nested-null=1"))
    async with deployed(tmp_path, embedded_url, sizes=LONG, include=CONVERSATIONS, behaviour=behaviour) as it:
        (login,) = it.sim.world.logins()
        (run,) = await it.collect(login)

        assert (run.failed_jobs, run.skipped_items) == (0, 0)
        for kind, ids in expected(it, login).items():
            assert await stored(it, kind) == ids, kind
        assert await it.statistics.of_user(login) is not None
