"""The short way into a campaign answers as the long way does, and takes nothing that is not plain."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.http.asgi import ask as ask_in_process
from tests.servers.migrated import migrated_file
from tests.systems.campaigns.harness import CAMPAIGN, CampaignHarness, harness_at
from tests.systems.campaigns.serving import serve_campaigns
from tests.systems.snapshots.test_fast_read import comparable
from tests.waiting import look_again, patience, simulated_delay
from tidegate.http import Binding
from tidegate.http.access import Access
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Keyring, Role
from tidegate.http.raw_handlers import Admission, Receive, Scope, Send
from tidegate.http.sessions import SessionManager
from tidegate.http.settings import HttpSettings
from tidegate.storage.valkey import Valkey
from tidegate.systems.campaigns.api.routes import VARYING, FastEntry

KEY, READ_KEY = "0123456789abcdef0123", "read-0123456789abcdef"
Reply = tuple[int, dict[str, str], bytes]


def request(user: str = "ann", *, key: str | None = None, body: bytes | None = None, more: bytes = b"") -> bytes:
    """As plain as can be."""
    body = b'{"user": "%b"}' % user.encode() if body is None else body
    named = b"" if key is None else b"Idempotency-Key: %b\r\n" % key.encode()
    head = b"POST /v1/campaigns/autumn/entries HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head + named + more + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def the_long_way(plain: bytes) -> bytes:
    """The same request, with something about it that the raw handler does not take."""
    return plain.replace(b"application/json", b'application/json; charset="utf-8"')


@pytest.fixture
async def harness(tmp_path: Path, embedded: Valkey) -> AsyncGenerator[CampaignHarness]:
    async with harness_at(await migrated_file(tmp_path / "shop.db"), embedded, max_len=3) as opened:
        await opened.open(total=3)
        yield opened


@pytest.fixture
async def binding(harness: CampaignHarness) -> AsyncGenerator[Binding]:
    settings, stopping = HttpSettings(port=0), asyncio.Event()
    with Binding(settings) as bound:
        serving = asyncio.create_task(serve_campaigns(harness.campaigns, settings, bound).run(stopping))
        yield bound
        stopping.set()
        await serving


async def ask(binding: Binding, *pieces: bytes, answers: int = 1, pause_s: float = 0.01) -> list[Reply]:
    """Send bytes over one connection, piece by piece, and read so many answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", binding.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await simulated_delay(pause_s if len(pieces) > 1 else 0)  # each in a packet of its own
        async with patience():
            return [await _answer(reader) for _ in range(answers)]
    finally:
        writer.close()
        await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> Reply:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")[:-4].split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def is_taken(harness: CampaignHarness, raw: bytes, settings: HttpSettings | None = None) -> bool:
    """Whether the raw handler answers a request itself."""
    settings, passed_on = settings or HttpSettings(), list[Scope]()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == body  # also after the raw handler has read it
        passed_on.append(scope)
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = dict(line.split(": ") for line in lines)
    admission = Admission(Authenticator(Access(settings), ()), Role.OPERATE, varying=VARYING)
    taking = FastEntry(application, harness.campaigns, admission, largest_body=settings.largest_body)
    await ask_in_process(taking, method, path, headers, body, client="127.0.0.1")
    return not passed_on


async def test_fast_and_regular_route_answer_alike(harness: CampaignHarness, binding: Binding):
    """ACCEPTED, ACCEPTED again, DUPLICATE, SOLD_OUT, and NOT_OPEN with a time: each asked for on both ways."""

    async def both(plain: bytes) -> Reply:
        assert not await is_taken(harness, the_long_way(plain))
        [short], [long] = await ask(binding, plain), await ask(binding, the_long_way(plain))
        assert comparable(short) == comparable(long)
        return short

    accepted = await both(request("zoë/a b", key="k1"))
    assert (accepted[0], accepted[2]) == (202, b'{"answer":"ACCEPTED","number":1}')
    assert accepted[1]["location"] == "/v1/campaigns/autumn/entries/zo%C3%AB/a%20b"
    assert (await both(request("zoë/a b")))[0] == 200
    await harness.campaigns.enter(CAMPAIGN, "bob")
    await harness.campaigns.enter(CAMPAIGN, "kim")
    assert (await both(request("ann")))[0] == 409
    await harness.campaigns.stop(CAMPAIGN)
    closed = await both(request("lee", more=b"X-Forwarded-Proto: https\r\n"))
    assert (closed[2], closed[1]["strict-transport-security"]) == (b'{"answer":"NOT_OPEN"}', "max-age=31536000")


async def test_errors_are_answered_by_the_regular_route(harness: CampaignHarness, binding: Binding):
    await harness.open("winter", total=10)
    for user in "abc":
        await harness.campaigns.enter("winter", user)
    busy = request("zoe").replace(b"autumn", b"winter")
    unknown = request("zoe").replace(b"autumn", b"nothing")
    [full], [lost] = await ask(binding, busy), await ask(binding, unknown)

    assert (full[0], full[1]["retry-after"], full[1]["content-type"]) == (503, "1", "application/problem+json")
    assert (lost[0], lost[1]["content-type"]) == (404, "application/problem+json")


ODD = [
    request().replace(b"POST", b"GET"),
    request().replace(b"/entries ", b"/entries?x=1 "),
    request().replace(b"/entries ", b"/entries/ann/events "),
    request().replace(b"application/json", b"text/plain"),
    request().replace(b"Content-Type: application/json\r\n", b""),
    request().replace(b"Host: 127.0.0.1", b"Host: evil.example"),
    request(more=b"Origin: http://evil.example\r\n"),
    request().replace(b"Content-Length: 15", b"Transfer-Encoding: chunked"),
    request(more=b"Expect: 100-continue\r\n"),
    request(more=b"Content-Encoding: gzip\r\n"),
    request(body=b'{"user": ""}'),
    request(body=b'{"user": "a", "colour": 1}'),
    request(body=b'{"user": "a"'),
    request(body=b'{"user": "\xff"}'),
    request(body=b"[" * 5000),
    request(body=b'{"user": "a", "key": "k2"}', key="k1"),
    request(body=b'{"user": "a", "data": "%b"}' % (b"x" * 4100)),
    request(body=b'{"user": "a", "data": "%b"}' % (b"x" * 9000)),
]


async def test_unusual_requests_use_the_regular_route(harness: CampaignHarness):
    assert [odd for odd in ODD if await is_taken(harness, odd)] == []
    assert not await harness.line(), "what is passed on enters nowhere before"
    assert await is_taken(harness, request())


async def test_a_key_is_required_when_configured(harness: CampaignHarness):
    settings = HttpSettings(api_key=SecretStr(KEY))
    assert not await is_taken(harness, request(), settings)
    assert not await is_taken(harness, request(more=b"Authorization: Bearer wrong\r\n"), settings)
    assert await is_taken(harness, request(more=b"Authorization: Bearer %b\r\n" % KEY.encode()), settings)


async def test_read_only_callers_and_sessions_use_the_regular_route(harness: CampaignHarness):
    settings = HttpSettings(api_key=SecretStr(KEY), read_keys=(SecretStr(READ_KEY),))
    keyring = Keyring(settings)
    assert not await is_taken(harness, request(more=b"Authorization: Bearer %b\r\n" % READ_KEY.encode()), settings)
    for key in (KEY, READ_KEY):
        known = keyring.find(key)
        assert known is not None
        token, caller = SessionManager(keyring, settings.session_lasts).open(known)
        cookie = f"Cookie: tidegate_session={token}\r\n"
        assert not await is_taken(harness, request(more=cookie.encode()), settings)
        assert not await is_taken(
            harness, request(more=f"{cookie}X-Tidegate-CSRF: {caller.csrf}\r\n".encode()), settings
        )


async def test_pipelined_requests_are_answered_in_order(harness: CampaignHarness, binding: Binding):
    """Also where the next comes while the first is at the door, and where one takes the long way."""
    pieces = [request("a"), request("b"), the_long_way(request("a")), request("b")]
    await harness.valkey.execute("CLIENT", "PAUSE", 200, "WRITE")  # so long the first is at the door
    replies = await ask(binding, *pieces, answers=4)
    more = await ask(binding, b"".join([request("a"), request("b")]), answers=2)

    assert [reply[2] for reply in replies + more] == [
        b'{"answer":"ACCEPTED","number":1}',
        b'{"answer":"ACCEPTED","number":2}',
        *[b'{"answer":"DUPLICATE","number":%d}' % number for number in (1, 2, 1, 2)],
    ]


async def test_the_entry_of_a_disconnected_client_counts(harness: CampaignHarness, binding: Binding):
    _, writer = await asyncio.open_connection("127.0.0.1", binding.port)
    writer.write(request("ann", key="k1"))
    await writer.drain()
    writer.transport.abort()
    async with patience():
        while not await harness.line():
            await look_again()

    [again] = await ask(binding, request("ann", key="k1"))
    assert again[2] == b'{"answer":"ACCEPTED","number":1}'
