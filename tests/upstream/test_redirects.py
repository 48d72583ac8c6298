"""Redirects are followed for those who only read, not too far, and never with a secret for somebody else."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from tests.servers.guarded import free_port
from tests.upstream.servers import TOKEN, get, raw_server, reset, says, web_server
from tidegate.upstream import (
    ConnectFailed,
    ConnectionBroken,
    Redirect,
    RedirectRefused,
    Request,
    UpstreamClient,
    UpstreamSettings,
)

Handler = Callable[[web.Request], Awaitable[web.Response]]


def redirecting(*, to: str, status: int = 301) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        if request.path != "/old":
            return web.json_response({name.lower(): value for name, value in request.headers.items()})
        return web.Response(status=status, headers={"Location": to}, text='{"message": "Moved Permanently"}')

    return handler


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_told(client: UpstreamClient, status: int) -> None:
    async with web_server(redirecting(to="/repositories/1?page=2", status=status)) as url:
        answer = await client.fetch(get(f"{url}/old"))

    assert (answer.status, answer.url) == (200, f"{url}/repositories/1?page=2")
    assert answer.redirects == (Redirect(status, f"{url}/repositories/1?page=2"),)
    assert answer.calls == 2
    assert TOKEN.encode() in answer.body, "the same host may know the token"


async def test_a_request_that_does_not_follow_has_the_redirect_as_its_answer(client: UpstreamClient) -> None:
    async with web_server(redirecting(to="/new")) as url:
        answer = await client.fetch(Request(url=f"{url}/old", purpose="test", follows_redirects=False))

    assert (answer.status, answer.url, answer.headers["Location"]) == (301, f"{url}/old", "/new")
    assert (answer.calls, answer.redirects) == (1, ())
    assert b"Moved Permanently" in answer.body


async def test_the_head_is_asked_for_there_too(client: UpstreamClient) -> None:
    async with web_server(redirecting(to="/new")) as url:
        answer = await client.fetch(Request(method="HEAD", url=f"{url}/old", purpose="test"))

    assert (answer.status, answer.body, answer.calls) == (200, b"", 2)


async def test_another_host_does_not_get_the_token(client: UpstreamClient) -> None:
    async def show(request: web.Request) -> web.Response:
        return web.json_response({name.lower(): value for name, value in request.headers.items()})

    async with web_server(show) as other, web_server(redirecting(to=f"{other}/new")) as url:
        sent = get(f"{url}/old", Cookie="session=1", X_Api_Key="k", Accept="application/json")
        answer = await client.fetch(sent)

    assert answer.url == f"{other}/new"
    assert TOKEN.encode() not in answer.body
    assert not {b'"authorization"', b'"cookie"', b'"x-api-key"'} & set(answer.body.split())
    assert b'"accept": "application/json"' in answer.body


async def test_the_token_does_not_come_back_with_us(client: UpstreamClient) -> None:
    """From here to a stranger and back: what was taken off stays off."""
    targets: dict[str, str] = {}

    async def home(request: web.Request) -> web.Response:
        if request.path == "/old":
            return web.Response(status=302, headers={"Location": targets["stranger"]})
        return web.Response(text=request.headers.get("Authorization", "none"))

    async def stranger(_request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": targets["home"]})

    async with web_server(home) as url, web_server(stranger) as other:
        targets.update(home=f"{url}/new", stranger=f"{other}/")
        answer = await client.fetch(get(f"{url}/old"))

    assert (answer.body, answer.calls) == (b"none", 3)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_whoever_writes_is_not_led_elsewhere(client: UpstreamClient, method: str) -> None:
    async with web_server(redirecting(to="/new", status=307)) as url:
        answer = await client.fetch(Request(method=method, url=f"{url}/old", body=b"{}", purpose="test"))

    assert (answer.status, answer.headers["Location"], answer.calls) == (307, "/new", 1)


@pytest.mark.parametrize(("status", "location"), [(301, None), (300, "/new"), (304, "/new"), (201, "/new")])
async def test_what_is_no_redirect_is_an_answer(client: UpstreamClient, status: int, location: str | None) -> None:
    async def handler(_request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": location} if location else {})

    async with web_server(handler) as url:
        answer = await client.fetch(get(url))

    assert (answer.status, answer.calls) == (status, 1)


async def test_nobody_is_sent_around_for_ever(client: UpstreamClient) -> None:
    calls = 0

    async def around(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=302, headers={"Location": request.path + "x"})

    async with web_server(around) as url:
        with pytest.raises(RedirectRefused, match="more than 5 times") as caught:
            await client.fetch(get(url))

    assert calls == 6
    assert (len(caught.value.redirects), caught.value.was_sent) == (5, True)


async def test_the_number_of_redirects_can_be_chosen() -> None:
    async with (
        web_server(redirecting(to="/new")) as url,
        UpstreamClient(UpstreamSettings(most_redirects=0)) as client,
    ):
        with pytest.raises(RedirectRefused):
            await client.fetch(get(f"{url}/old"))


@pytest.mark.parametrize("location", ["ftp://example.org/", "file:///etc/passwd", "http://[", "//u:p@h/"])
async def test_a_place_that_is_no_web_address_is_refused(client: UpstreamClient, location: str) -> None:
    said = f"HTTP/1.1 301 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    async with raw_server(says(said)) as server:
        with pytest.raises(RedirectRefused) as caught:
            await client.fetch(get(server.url))

    assert caught.value.was_sent is True
    assert caught.value.head is not None


async def test_a_place_written_carelessly_is_found(client: UpstreamClient) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.path == "/old":
            return web.Response(status=301, headers={"Location": "/né w#part"})
        return web.Response(text=request.raw_path)

    async with web_server(handler) as url:
        answer = await client.fetch(get(f"{url}/old"))

    assert answer.body == b"/n%C3%A9%20w"


async def test_after_a_redirect_even_a_refused_connection_was_a_call(client: UpstreamClient) -> None:
    async with web_server(redirecting(to=f"http://127.0.0.1:{free_port()}/")) as url:
        with pytest.raises(ConnectFailed) as caught:
            await client.fetch(get(f"{url}/old"))

    assert caught.value.was_sent is True
    assert [redirect.status for redirect in caught.value.redirects] == [301]


async def test_after_a_redirect_a_broken_connection_was_a_call(client: UpstreamClient) -> None:
    async with raw_server(says(then=reset)) as server, web_server(redirecting(to=server.url)) as url:
        with pytest.raises(ConnectionBroken) as caught:
            await client.fetch(get(f"{url}/old"))

    assert caught.value.was_sent is True
