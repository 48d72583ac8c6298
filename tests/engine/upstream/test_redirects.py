"""The client follows no redirect. Whoever follows one sends a request of its own, never with a secret for others."""

import msgspec
import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from tests.engine.upstream.servers import TOKEN, get, web_server
from tidegate.core.clock import SystemClock
from tidegate.core.errors import InvalidArgument
from tidegate.engine.upstream import Head, Request, UpstreamClient
from tidegate.engine.upstream.redirects import is_redirect, may_follow, redirected, target_of

HERE = "http://api.test/old"


def answered(status: int, location: str | None, url: str = HERE) -> Head:
    headers = CIMultiDictProxy(CIMultiDict({"Location": location} if location is not None else {}))
    return Head(status=status, headers=headers, url=url, received_at=SystemClock().now())


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_returned_as_a_response_to_one_request(
    client: UpstreamClient, status: int, method: str
) -> None:
    asked: list[str] = []

    async def moved(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": "/new"}, text="moved")

    async with web_server(moved) as url:
        answer = await client.fetch(Request(method=method, url=f"{url}/old", purpose="test"))

    assert (answer.status, answer.url, answer.headers["Location"]) == (status, f"{url}/old", "/new")
    assert asked == ["/old"]


@pytest.mark.parametrize(
    ("status", "location", "is_one"),
    [(301, "/new", True), (308, "/new", True), (301, None, False), (300, "/new", False), (304, "/new", False)],
)
def test_redirect_statuses_are_recognised(status: int, location: str | None, is_one: bool) -> None:
    assert is_redirect(answered(status, location)) is is_one


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/repositories/1?page=2", "http://api.test/repositories/1?page=2"),
        ("new", "http://api.test/new"),
        ("https://other.test/x#part", "https://other.test/x"),
        ("/né w#part", "http://api.test/n%C3%A9%20w"),
    ],
)
def test_redirect_targets_are_resolved(location: str, target: str) -> None:
    assert target_of(answered(301, location)) == target


@pytest.mark.parametrize(
    "location", ["ftp://example.org/", "file:///etc/passwd", "http://[", "//u:p@h/", "/" + 2_000 * "x"]
)
def test_a_redirect_target_that_is_no_http_url_is_refused(location: str) -> None:
    with pytest.raises(InvalidArgument, match="Location"):
        target_of(answered(301, location))


def test_the_token_is_sent_to_the_same_server_only() -> None:
    asked = get(HERE, Cookie="session=1", X_Api_Key="k", Accept="application/json")

    same = redirected(asked, ["http://api.test/new"])
    assert (same.url, same.headers) == ("http://api.test/new", asked.headers)
    for other in ("http://other.test/new", "https://api.test/new", "http://api.test:8080/new"):
        sent = redirected(asked, [other])
        assert (sent.url, dict(sent.headers)) == (other, {"Accept": "application/json"})


def test_a_token_dropped_by_a_redirect_stays_dropped() -> None:
    """From here to a stranger and back: the stranger would choose what is asked for with the token."""
    sent = redirected(get(HERE), ["http://stranger.test/", "http://api.test/chosen"])
    assert (sent.url, dict(sent.headers)) == ("http://api.test/chosen", {})
    assert TOKEN not in repr(msgspec.to_builtins(sent))


@pytest.mark.parametrize(
    ("method", "status", "target", "follows"),
    [
        ("GET", 302, "http://other.test/", True),
        ("POST", 307, "http://api.test/new", True),
        ("POST", 308, "http://other.test/new", False),
        ("POST", 301, "http://api.test/new", False),
        ("DELETE", 303, "http://api.test/new", False),
    ],
)
def test_a_write_request_follows_redirects_only_with_the_same_method_and_server(
    method: str, status: int, target: str, follows: bool
) -> None:
    asked = Request(url=HERE, purpose="test", method=method)
    assert may_follow(asked, answered(status, target), target) is follows
