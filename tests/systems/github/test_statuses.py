"""Every status of GitHub, and what becomes of its job."""

from typing import Any

import pytest

from tests.systems.github.answers import API, answer, follow_up, link, message, task
from tidegate.engine.source import Cursor, Task, Verdict
from tidegate.storage.documents import Listing
from tidegate.systems.github import GithubSource, kinds, limits
from tidegate.systems.github.kinds import ListOrder

SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
PRIMARY = "API rate limit exceeded for user ID 1."
EMPTIED = {"x_ratelimit_remaining": "0"}

source = GithubSource(API, kinds.CONVERSATIONS)


def test_an_unchanged_list_is_a_success_that_keeps_the_cursor():
    for kind in (kinds.USER_BASIC, kinds.USER_EVENTS, kinds.REPO_ISSUES, kinds.REPO_COMMITS):
        reading = source.read(task(kind, Cursor(etag='"x"', credential="octocat")), answer(304))
        assert (reading.verdict, reading.documents, reading.cursor) == (Verdict.DONE, (), None)
        assert (list(reading.follow_ups), list(reading.completed)) == ([], [])


def test_a_bad_token_is_retired():
    reading = source.read(task(), message(401, "Bad credentials"))
    assert (reading.verdict, reading.reason) == (Verdict.UNAUTHORIZED, "401: Bad credentials")


@pytest.mark.parametrize("status", [403, 429])
def test_an_exhausted_window_blocks_only_its_bucket(status: int):
    reading = source.read(task(), message(status, PRIMARY, **EMPTIED))

    assert (reading.verdict, reading.blocked_ms, reading.delay_ms) == (Verdict.LATER, None, 0)
    assert reading.allowance is not None
    assert (reading.allowance.remaining, reading.allowance_bucket) == (0, "core")


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(
    ("headers", "blocked_ms"), [({"retry_after": "7"}, 7_000), ({}, 60_000), ({"retry_after": "soon"}, 60_000)]
)
def test_a_secondary_limit_blocks_the_credential_for_the_given_time(
    status: int, headers: dict[str, str], blocked_ms: int
):
    reading = source.read(task(), message(status, SECONDARY, **headers))
    assert (reading.verdict, reading.blocked_ms) == (Verdict.LATER, blocked_ms)
    assert reading.is_guess == (blocked_ms == 60_000), "and says where it is the least that helps"


def test_a_secondary_limit_is_recognised_by_its_headers_without_a_body():
    reading = source.read(task(), answer(403, b"", {"retry-after": "30"}))
    assert (reading.blocked_ms, reading.is_guess) == (30_000, False)


@pytest.mark.parametrize(
    ("text", "blocked_ms"),
    [
        ("Sun, 01 Mar 2026 13:00:00 GMT", 3_600_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", limits.LONGEST_PAUSE_MS),
        ("9" * 5_000, limits.LONGEST_PAUSE_MS),
        ("0", 1_000),
    ],
)
def test_retry_after_is_read_as_a_date_and_as_any_number(text: str, blocked_ms: int):
    reading = source.read(task(), message(403, SECONDARY, retry_after=text))
    assert (reading.blocked_ms, reading.is_guess) == (blocked_ms, False)


@pytest.mark.parametrize("text", ["-5", "1.5", "Sun, 01 Mar 2026 11:00:00 GMT", "Mon, 01 Jan 99999999999 00:00:00 GMT"])
def test_an_invalid_retry_after_is_a_guess(text: str):
    reading = source.read(task(), message(403, SECONDARY, retry_after=text))
    assert (reading.blocked_ms, reading.is_guess) == (60_000, True)


def test_retry_after_counts_also_when_the_window_is_exhausted():
    assert source.read(task(), message(403, SECONDARY, retry_after="30", **EMPTIED)).blocked_ms == 30_000


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, "Resource not accessible by integration"),
        (422, "Validation Failed"),
        (400, "Problems parsing JSON"),
    ],
)
def test_an_inaccessible_resource_is_gone_with_the_reason(status: int, text: str):
    reading = source.read(task(), message(status, text))
    assert (reading.verdict, reading.reason, reading.blocked_ms) == (Verdict.GONE, f"{status}: {text}", None)


def test_a_login_that_no_longer_exists_is_requested_once_more_by_its_id():
    first = task(kinds.USER_BASIC, Cursor(cursor="583231", etag='"e"', credential="octocat"))
    (spec,) = source.read(first, message(404, "Not Found")).follow_ups
    second = follow_up(first, spec)
    assert source.request(second, "x").url == f"{API}/user/583231"

    renamed = source.read(second, answer(200, {"id": 583231, "login": "Mona"}))
    assert (renamed.verdict, renamed.reason) == (Verdict.GONE, "octocat is now called Mona: collect Mona from now on")
    deleted = source.read(second, message(404, "Not Found"))
    assert (deleted.verdict, deleted.reason, deleted.follow_ups) == (Verdict.GONE, "404: Not Found", ())
    back = source.read(second, answer(200, {"id": 583231, "login": "Octocat"}))
    assert (back.verdict, [each.id for each in back.documents]) == (Verdict.DONE, ["583231"])


def test_a_login_that_never_existed_is_not_searched_for():
    reading = source.read(task(kinds.USER_BASIC), message(404, "Not Found"))
    assert (reading.verdict, reading.follow_ups) == (Verdict.GONE, ())


@pytest.mark.parametrize(
    "text",
    ["Max number of login attempts exceeded", "Maximum number of login attempts exceeded. Please try again later."],
)
def test_a_temporarily_refused_credential_is_blocked_and_nothing_is_gone(text: str):
    for kind in (kinds.USER_BASIC, kinds.REPO_COMMITS, kinds.REPO_ISSUES):
        reading = source.read(task(kind), message(403, text))
        assert (reading.verdict, reading.blocked_ms, reading.is_guess) == (Verdict.LATER, 60_000, True)


@pytest.mark.parametrize("status", [403, 451])
def test_a_repository_blocked_by_github_is_withheld_and_not_a_failure(status: int):
    reading = source.read(task(), message(status, "Repository access blocked"))
    assert (reading.verdict, reading.reason) == (Verdict.UNAVAILABLE, f"{status}: Repository access blocked")
    assert source.read(task(kinds.USER_BASIC), message(status, "access blocked")).verdict is Verdict.GONE


@pytest.mark.parametrize("status", [301, 408, 500, 502, 503, 504])
def test_a_temporary_error_is_retried(status: int):
    reading = source.read(task(), answer(status, b"<html>"))
    assert (reading.verdict, reading.reason) == (Verdict.RETRY, f"status {status}")


def test_data_that_is_being_computed_is_requested_later():
    assert source.read(task(), answer(202, {})).verdict is Verdict.LATER


@pytest.mark.parametrize("status", [202, 503])
def test_a_retry_after_sets_the_time_of_the_next_request(status: int):
    assert source.read(task(), answer(status, {}, {"Retry-After": "3"})).delay_ms == 3_000
    assert source.read(task(), answer(status, {})).delay_ms is None


@pytest.mark.parametrize("body", [b'[{"id": 1', b"<html>", b"{}", b"\xff", b"[" * 100_000])
def test_an_unreadable_body_is_requested_again(body: bytes):
    for kind in (kinds.REPO_ISSUES, kinds.REPO_COMMITS, kinds.USER_EVENTS):
        assert source.read(task(kind), answer(200, body)).verdict is Verdict.RETRY


@pytest.mark.parametrize("body", [b'{"message": "\xff"}', b'{"more": ' + b"[" * 100_000])
def test_a_failure_is_classified_without_a_readable_message(body: bytes):
    reading = source.read(task(), answer(502, body))
    assert (reading.verdict, reading.reason) == (Verdict.RETRY, "status 502")


def of_kind(kind: str, **state: Any) -> Task:
    """A job of any kind, with the least that its parameters must have."""
    match kinds.REGISTRY[kind].order:
        case ListOrder.DETAILS:
            state = {"path": "/repositories/7/x", "item": "1", "fields": {}, **state}
        case ListOrder.BATCHES:
            state = {"batch": [{"id": "I_1", "fields": {}}], **state}
        case ListOrder.PULL_REQUESTS:
            state = {"newest": "2026-01-01T00:00:00Z", **state}
        case _:
            pass
    return task(kind, **state)


EMPTY_REPOSITORY = {kinds.REPO_CONTRIBUTORS, kinds.REPO_CODE_FREQUENCY}


@pytest.mark.parametrize("kind", kinds.REGISTRY)
@pytest.mark.parametrize("status", [200, 203, 204, 205])
def test_an_answer_without_content_is_requested_again(kind: str, status: int):
    """An empty list would mark all its documents as gone, and end the list at this page."""
    if status == 204 and kind in EMPTY_REPOSITORY:
        return
    for headers in ({}, link("/x?page=2"), {"ETag": '"e"'}):
        reading = source.read(of_kind(kind), answer(status, b"", headers))
        found = (reading.verdict, list(reading.completed), list(reading.follow_ups), reading.cursor)
        assert found == (Verdict.RETRY, [], [], None)


@pytest.mark.parametrize("kind", sorted(EMPTY_REPOSITORY))
def test_an_empty_repository_has_no_contributors_and_no_changes(kind: str):
    reading = source.read(task(kind), answer(204))
    assert reading.verdict is Verdict.DONE
    assert [listing.kind for listing in reading.completed] == [kinds.DOCUMENTS[kind]]


@pytest.mark.parametrize("state", [{"number": 2, "path": "/x?page=2"}, {"lap": 2}])
def test_no_content_after_the_first_page_is_requested_again(state: dict[str, Any]):
    """The repository is not empty, since its first page had content."""
    reading = source.read(task(kinds.REPO_CONTRIBUTORS, **state), answer(204))
    assert (reading.verdict, reading.cursor) == (Verdict.RETRY, None)


def test_an_empty_repository_and_disabled_issues_are_empty_lists():
    empty = source.read(task(kinds.REPO_COMMITS), message(409, "Git Repository is empty."))
    assert (empty.verdict, empty.completed) == (Verdict.DONE, [Listing("commit", "repo:octocat/hello", 5)])

    disabled = source.read(task(), message(410, "Issues are disabled for this repo"))
    assert (disabled.verdict, disabled.completed) == (Verdict.DONE, [Listing("issue", "repo:octocat/hello", 5)])


def test_the_end_of_a_timeline_is_not_a_failure():
    beyond = task(kinds.USER_EVENTS, path="/user/1/events?page=4", number=4)
    assert source.read(beyond, message(422, "pagination is limited")).verdict is Verdict.DONE


def test_a_link_to_another_host_is_not_followed():
    headers = {"Link": '<https://elsewhere.example/repositories/7/issues?page=2>; rel="next"'}
    items = [{"id": 1, "updated_at": "2026-01-01T00:00:00Z"}]
    reading = source.read(task(), answer(200, items, headers))
    assert (reading.verdict, list(reading.follow_ups)) == (Verdict.RETRY, [])
    assert "elsewhere.example" in reading.reason

    assert source.read(task(), answer(200, items, link("/repositories/7/issues?page=2"))).verdict is Verdict.DONE


@pytest.mark.parametrize("kind", ["RATE_LIMITED", "RATE_LIMIT"])
def test_a_graphql_limit_in_a_successful_response_is_recognised(kind: str):
    asked = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z")
    body = {"errors": [{"type": kind, "message": PRIMARY}]}

    emptied = source.read(asked, answer(200, body, {"x-ratelimit-remaining": "0", "x-ratelimit-resource": "graphql"}))
    assert (emptied.verdict, emptied.blocked_ms, emptied.allowance_bucket) == (Verdict.LATER, None, "graphql")
    limited = source.read(asked, answer(200, body))
    assert (limited.blocked_ms, limited.is_guess) == (60_000, True)


def test_graphql_errors_are_distinguished():
    asked = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z")

    def verdict(kind: str) -> Verdict:
        return source.read(asked, answer(200, {"data": {"node": None}, "errors": [{"type": kind}]})).verdict

    assert (verdict("NOT_FOUND"), verdict("FORBIDDEN")) == (Verdict.GONE, Verdict.GONE)
    assert (verdict("SERVICE_UNAVAILABLE"), verdict("")) == (Verdict.RETRY, Verdict.RETRY)


def test_a_query_is_halved_down_to_one_item():
    asked, sizes = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z"), list[int]()
    while (reading := source.read(asked, answer(502, b""))).verdict is Verdict.DONE:
        (spec,) = reading.follow_ups
        sizes.append(spec.params["first"])
        asked = task(kinds.REPO_REVIEWS, **spec.params)
    assert (sizes, reading.verdict) == ([50, 25, 12, 6, 3, 1], Verdict.RETRY)
