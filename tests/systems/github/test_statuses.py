"""Every status of GitHub, and what becomes of its job."""

import pytest

from tests.systems.github.answers import API, answer, follow_up, link, message, task
from tidegate.engine.source import Cursor, Verdict
from tidegate.storage.documents import Listing
from tidegate.systems.github import GithubSource, kinds

SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
PRIMARY = "API rate limit exceeded for user ID 1."
EMPTIED = {"x_ratelimit_remaining": "0"}

source = GithubSource(API, kinds.CONVERSATIONS)


def test_nothing_new_is_a_success_that_leaves_the_cursor_where_it_is():
    for kind in (kinds.USER_BASIC, kinds.USER_EVENTS, kinds.REPO_ISSUES, kinds.REPO_COMMITS):
        reading = source.read(task(kind, Cursor(etag='"x"', credential="octocat")), answer(304))
        assert (reading.verdict, reading.documents, reading.cursor) == (Verdict.DONE, (), None)
        assert (list(reading.follow_ups), list(reading.completed)) == ([], [])


def test_a_bad_token_is_no_good_any_more():
    reading = source.read(task(), message(401, "Bad credentials"))
    assert (reading.verdict, reading.reason) == (Verdict.UNAUTHORIZED, "401: Bad credentials")


@pytest.mark.parametrize("status", [403, 429])
def test_an_empty_window_is_waited_for_by_its_bucket_and_blocks_nothing_else(status: int):
    reading = source.read(task(), message(status, PRIMARY, **EMPTIED))

    assert (reading.verdict, reading.blocked_ms, reading.delay_ms) == (Verdict.LATER, None, 0)
    assert reading.allowance is not None
    assert (reading.allowance.remaining, reading.allowance_bucket) == (0, "core")


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(
    ("headers", "blocked_ms"), [({"retry_after": "7"}, 7_000), ({}, 60_000), ({"retry_after": "soon"}, 60_000)]
)
def test_a_secondary_limit_blocks_the_credential_for_as_long_as_it_says(
    status: int, headers: dict[str, str], blocked_ms: int
):
    reading = source.read(task(), message(status, SECONDARY, **headers))
    assert (reading.verdict, reading.blocked_ms) == (Verdict.LATER, blocked_ms)
    assert reading.is_guess == (blocked_ms == 60_000), "and says where it is the least that helps"


def test_a_secondary_limit_is_known_by_its_headers_where_the_body_did_not_come():
    reading = source.read(task(), answer(403, b"", {"retry-after": "30"}))
    assert (reading.blocked_ms, reading.is_guess) == (30_000, False)


def test_retry_after_counts_also_where_the_window_is_empty():
    assert source.read(task(), message(403, SECONDARY, retry_after="30", **EMPTIED)).blocked_ms == 30_000


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (403, "Resource not accessible by integration"),
        (422, "Validation Failed"),
        (400, "Problems parsing JSON"),
    ],
)
def test_what_cannot_be_read_is_gone_with_the_reason(status: int, text: str):
    reading = source.read(task(), message(status, text))
    assert (reading.verdict, reading.reason, reading.blocked_ms) == (Verdict.GONE, f"{status}: {text}", None)


def test_a_login_that_is_nobodys_any_more_is_asked_for_once_more_by_its_number():
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


def test_a_login_that_never_was_is_not_looked_for():
    reading = source.read(task(kinds.USER_BASIC), message(404, "Not Found"))
    assert (reading.verdict, reading.follow_ups) == (Verdict.GONE, ())


@pytest.mark.parametrize(
    "text",
    ["Max number of login attempts exceeded", "Maximum number of login attempts exceeded. Please try again later."],
)
def test_a_credential_that_is_refused_for_a_while_rests_and_nothing_is_gone(text: str):
    for kind in (kinds.USER_BASIC, kinds.REPO_COMMITS, kinds.REPO_ISSUES):
        reading = source.read(task(kind), message(403, text))
        assert (reading.verdict, reading.blocked_ms, reading.is_guess) == (Verdict.LATER, 60_000, True)


@pytest.mark.parametrize("status", [403, 451])
def test_a_repository_that_github_has_closed_to_everybody_is_unavailable_and_no_failure(status: int):
    reading = source.read(task(), message(status, "Repository access blocked"))
    assert (reading.verdict, reading.reason) == (Verdict.UNAVAILABLE, f"{status}: Repository access blocked")
    assert source.read(task(kinds.USER_BASIC), message(status, "access blocked")).verdict is Verdict.GONE


@pytest.mark.parametrize("status", [301, 408, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int):
    reading = source.read(task(), answer(status, b"<html>"))
    assert (reading.verdict, reading.reason) == (Verdict.RETRY, f"status {status}")


def test_what_is_being_computed_is_asked_for_later():
    assert source.read(task(), answer(202, {})).verdict is Verdict.LATER


@pytest.mark.parametrize("status", [202, 503])
def test_whoever_says_when_to_ask_again_is_asked_then(status: int):
    assert source.read(task(), answer(status, {}, {"Retry-After": "3"})).delay_ms == 3_000
    assert source.read(task(), answer(status, {})).delay_ms is None


@pytest.mark.parametrize("body", [b'[{"id": 1', b"<html>", b"{}", b"\xff", b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_asked_for_again(body: bytes):
    for kind in (kinds.REPO_ISSUES, kinds.REPO_COMMITS, kinds.USER_EVENTS):
        assert source.read(task(kind), answer(200, body)).verdict is Verdict.RETRY


@pytest.mark.parametrize("body", [b'{"message": "\xff"}', b'{"more": ' + b"[" * 100_000])
def test_a_failure_is_what_it_is_where_its_message_cannot_be_read(body: bytes):
    reading = source.read(task(), answer(502, body))
    assert (reading.verdict, reading.reason) == (Verdict.RETRY, "status 502")


def test_no_content_is_an_empty_list():
    reading = source.read(task(), answer(204))
    assert (reading.verdict, list(reading.documents)) == (Verdict.DONE, [])


def test_an_empty_repository_and_switched_off_issues_are_empty_lists():
    empty = source.read(task(kinds.REPO_COMMITS), message(409, "Git Repository is empty."))
    assert (empty.verdict, empty.completed) == (Verdict.DONE, [Listing("commit", "repo:octocat/hello", 5)])

    disabled = source.read(task(), message(410, "Issues are disabled for this repo"))
    assert (disabled.verdict, disabled.completed) == (Verdict.DONE, [Listing("issue", "repo:octocat/hello", 5)])


def test_the_end_of_a_timeline_is_no_failure():
    beyond = task(kinds.USER_EVENTS, path="/user/1/events?page=4", number=4)
    assert source.read(beyond, message(422, "pagination is limited")).verdict is Verdict.DONE


def test_a_link_that_leads_elsewhere_is_not_followed():
    headers = {"Link": '<https://elsewhere.example/repositories/7/issues?page=2>; rel="next"'}
    items = [{"id": 1, "updated_at": "2026-01-01T00:00:00Z"}]
    reading = source.read(task(), answer(200, items, headers))
    assert (reading.verdict, list(reading.follow_ups)) == (Verdict.RETRY, [])
    assert "elsewhere.example" in reading.reason

    assert source.read(task(), answer(200, items, link("/repositories/7/issues?page=2"))).verdict is Verdict.DONE


@pytest.mark.parametrize("kind", ["RATE_LIMITED", "RATE_LIMIT"])
def test_a_limit_of_graphql_hides_in_a_success(kind: str):
    asked = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z")
    body = {"errors": [{"type": kind, "message": PRIMARY}]}

    emptied = source.read(asked, answer(200, body, {"x-ratelimit-remaining": "0", "x-ratelimit-resource": "graphql"}))
    assert (emptied.verdict, emptied.blocked_ms, emptied.allowance_bucket) == (Verdict.LATER, None, "graphql")
    limited = source.read(asked, answer(200, body))
    assert (limited.blocked_ms, limited.is_guess) == (60_000, True)


def test_errors_of_graphql_are_told_apart():
    asked = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z")

    def verdict(kind: str) -> Verdict:
        return source.read(asked, answer(200, {"data": {"node": None}, "errors": [{"type": kind}]})).verdict

    assert (verdict("NOT_FOUND"), verdict("FORBIDDEN")) == (Verdict.GONE, Verdict.GONE)
    assert (verdict("SERVICE_UNAVAILABLE"), verdict("")) == (Verdict.RETRY, Verdict.RETRY)


def test_a_query_is_halved_until_it_asks_for_one():
    asked, sizes = task(kinds.REPO_REVIEWS, newest="2026-01-01T00:00:00Z"), list[int]()
    while (reading := source.read(asked, answer(502, b""))).verdict is Verdict.DONE:
        (spec,) = reading.follow_ups
        sizes.append(spec.params["first"])
        asked = task(kinds.REPO_REVIEWS, **spec.params)
    assert (sizes, reading.verdict) == ([50, 25, 12, 6, 3, 1], Verdict.RETRY)
