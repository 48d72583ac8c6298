"""What headers say: allowances and links; and what our own requests say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from tests.systems.github.answers import ALLOWED, API, NOW, answer, task
from tidegate.core.errors import InvalidArgument
from tidegate.engine.source import Cursor, Subject, Verdict
from tidegate.engine.upstream.messages import Headers
from tidegate.systems.github import CONVERSATIONS, ESSENTIAL, GithubSource, kinds, limits
from tidegate.systems.github.requests import require_api_url
from tidegate.systems.github.statuses import ForeignLink, below, is_forward, links, next_path


def headers(*lines: str) -> Headers:
    return CIMultiDictProxy(CIMultiDict([("Link", line) for line in lines]))


def test_an_allowance_uses_the_clock_of_the_upstream():
    said = limits.allowance(answer())
    assert said is not None
    assert (said.limit, said.remaining, said.resets_in_ms) == (5_000, 4_990, 1_800_000)
    assert said.window == int(NOW.timestamp()) + 1_800
    assert limits.bucket(answer()) == "core"


def test_without_a_date_the_local_clock_is_used():
    said = limits.allowance(answer(dated=False))
    assert said is not None
    assert said.resets_in_ms == 1_800_000


@pytest.mark.parametrize("date", ["Mon, 01 Jan 99999999999 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2300"])
def test_a_date_that_does_not_exist_is_ignored(date: str):
    said = limits.allowance(answer(headers={"Date": date}, dated=False))
    assert said is not None
    assert said.resets_in_ms == 1_800_000


@pytest.mark.parametrize(
    ("path", "following"),
    [
        ("/a?per_page=100", "/a?per_page=100"),
        ("/a?page=3", "/b?x=1&page=3"),
        ("/a?page=3", "/a?page=2"),
        ("/a", "/b?page=1"),
    ],
)
def test_a_link_that_leads_back_is_not_followed(path: str, following: str):
    assert not is_forward(path, following)


@pytest.mark.parametrize(
    ("path", "following"), [("/a", "/b?page=2"), ("/a?page=9", "/a?page=10&per_page=1"), ("/a?after=x", "/a?after=y")]
)
def test_a_link_that_leads_further_is_followed(path: str, following: str):
    assert is_forward(path, following)


def test_a_page_that_links_to_itself_is_requested_again_a_limited_number_of_times():
    source = GithubSource(API)
    path = source.request(task(), "secret").url
    reading = source.read(task(), answer(200, [], {"Link": f'<{path}>; rel="next"'}))
    assert (reading.verdict, reading.follow_ups) == (Verdict.RETRY, ())


@pytest.mark.parametrize("name", ["limit", "remaining", "reset"])
@pytest.mark.parametrize("value", ["", "-1", "many", "9" * 40])
def test_unreadable_headers_are_ignored(name: str, value: str):
    assert limits.allowance(answer(headers={f"x-ratelimit-{name}": value})) is None


@pytest.mark.parametrize("name", ["core|x", "", "a" * 41, "\u0663", "\ufffd"])
def test_an_invalid_bucket_name_is_ignored(name: str):
    assert limits.bucket(answer(headers={"x-ratelimit-resource": name})) is None


def test_links_are_found_by_their_relation_in_any_notation():
    found = links(
        headers('<https://a/1?x=1,2>; rel="next", <https://a/2>; title="a, b"; rel=last', '<b>; rel="first prev"')
    )
    assert found == {"next": "https://a/1?x=1,2", "last": "https://a/2", "first": "b", "prev": "b"}
    assert links(headers("nonsense", "<a>", "")) == {}


def test_the_next_page_is_relative_to_the_api_url():
    line = f'<{API}/repositories/7/issues?page=2&after=Y3Vy%3D>; rel="next"'
    assert next_path(headers(line), API) == "/repositories/7/issues?page=2&after=Y3Vy%3D"
    assert next_path(headers(f'<{API}/x>; rel="last"'), API) is None
    assert below("https://host/api/v3/repos/a/b", "https://host/api/v3") == "/repos/a/b"


@pytest.mark.parametrize(
    "url", ["https://api.github.com.evil/x", "http://api.github.com/x", "/x", "https://user@api.github.com/x", ""]
)
def test_links_to_other_hosts_are_refused(url: str):
    with pytest.raises(ForeignLink):
        below(url, API)


@given(st.lists(st.text(max_size=60), max_size=3))
def test_any_link_header_is_parsed_without_an_error(lines: list[str]):
    for relation, target in links(headers(*lines)).items():
        assert relation == relation.lower()
        assert target in ", ".join(lines)


def test_a_request_has_authorization_etag_and_user_agent():
    cursor = Cursor(etag='W/"abc"', credential="octocat", timestamp="2026-01-01T00:00:00Z")
    request = GithubSource(API).request(task(cursor=cursor), "s3cret")

    assert request.url == f"{API}/repositories/7/issues?state=all&sort=updated&direction=desc&per_page=100"
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert request.headers["If-None-Match"] == 'W/"abc"'
    assert request.headers["Accept"] == "application/vnd.github+json"
    assert request.headers["X-GitHub-Api-Version"]
    assert request.headers["User-Agent"].startswith("tidegate/")
    assert "s3cret" not in repr(request)


def test_an_etag_is_not_sent_with_another_credential_or_in_a_full_run():
    cursor = Cursor(etag='W/"abc"', credential="somebody")
    source = GithubSource(API)
    assert "If-None-Match" not in source.request(task(cursor=cursor), "x").headers
    own = Cursor(etag='W/"abc"', credential="octocat")
    assert "If-None-Match" not in source.request(task(cursor=own, full=True), "x").headers


def test_a_run_starts_with_profile_repositories_and_events():
    jobs = GithubSource(API).first_jobs(Subject(user_id="1", login="Octocat", options={"full": True}))
    assert [(job.kind, job.resource) for job in jobs] == [
        ("USER_BASIC", "user:octocat"),
        ("USER_BASIC", "user:octocat/repos"),
        ("USER_EVENTS", "user:octocat"),
    ]
    assert {job.params["login"] for job in jobs} == {"octocat"}
    assert all(job.params["full"] for job in jobs)


def test_kinds_include_their_dependencies_and_unknown_ones_are_refused():
    assert kinds.require_kinds([]) == {"USER_BASIC"}
    assert kinds.require_kinds(["REPO_REVIEWS"]) == {"USER_BASIC", "REPO_PRS", "REPO_REVIEWS"}
    assert ESSENTIAL < CONVERSATIONS
    with pytest.raises(InvalidArgument, match="include is 'STARS'"):
        GithubSource(API, ["STARS"])


@pytest.mark.parametrize("url", ["", "api.github.com", "ftp://api.github.com", "https://api.github.com?x=1"])
def test_an_invalid_api_url_is_refused(url: str):
    with pytest.raises(InvalidArgument, match="api_url"):
        GithubSource(url)


@pytest.mark.parametrize(
    "url", ["https://ada:s3cret@api.example.com", "https://s3cret@api.example.com/v3", "http://@x"]
)
def test_a_url_with_user_or_password_is_refused_and_not_shown(url: str):
    with pytest.raises(InvalidArgument, match="user or a password") as refused:
        require_api_url(url)
    assert "s3cret" not in f"{refused.value}{refused.value.value}"


def test_the_free_call_reports_the_bucket_that_was_waited_for():
    said = {"limit": 10, "remaining": 3, "reset": int(ALLOWED["x-ratelimit-reset"]), "used": 7}
    state = task(kinds.REPO_REVIEWS, Cursor(etag="e"), newest="2026-01-01T00:00:00Z", etag="e")
    source = GithubSource(API, CONVERSATIONS)
    assert source.request(state, "x").url == f"{API}/rate_limit"
    reading = source.read(state, answer(200, {"resources": {"core": said}}))
    assert reading.allowance is not None
    assert reading.allowance.remaining == 3
