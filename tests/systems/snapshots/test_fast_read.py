"""The raw handler of reads answers as the application does, and passes everything unusual on to it."""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from pydantic import SecretStr

from tests.http.asgi import ask as ask_in_process
from tests.systems.snapshots.deployment import Deployment, until
from tests.systems.snapshots.http_service import serve_snapshots
from tests.waiting import patience, simulated_delay
from tidegate.http import Binding
from tidegate.http.access import Access
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import Keyring, Role
from tidegate.http.raw_handlers import CONNECTION, Admission, Receive, Scope, Send
from tidegate.http.sessions import SessionManager
from tidegate.http.settings import HttpSettings
from tidegate.systems.snapshots.api.fast_read import FastRead, ReadCoalescer

KEY = "0123456789abcdef0123"
PLAIN = b"GET /v1/snapshots/character/7 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LONG = PLAIN.replace(b" HTTP", b"?wait=0 HTTP")
"""The same, which the raw handler leaves to the application."""
PATH = "/v1/snapshots/character/7"
Asked = tuple[str, str, dict[str, str]]
"""Method, address and headers."""

Serve = Callable[[HttpSettings], AbstractAsyncContextManager[Binding]]


@pytest.fixture
async def serve(deployment: Deployment) -> AsyncGenerator[Serve]:
    @asynccontextmanager
    async def serve(settings: HttpSettings) -> AsyncGenerator[Binding]:
        stopping = asyncio.Event()
        with Binding(settings) as binding:
            serving = asyncio.create_task(serve_snapshots(deployment.snapshots, settings, binding).run(stopping))
            yield binding
            stopping.set()
            await serving

    async with deployment.working():
        await deployment.until_fresh(7)
        yield serve


async def ask(binding: Binding, *pieces: bytes, answers: int = 1) -> list[tuple[int, dict[str, str], bytes]]:
    """Send bytes over one connection, piece by piece, and read so many answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", binding.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await simulated_delay(0.01 if len(pieces) > 1 else 0)  # each in a packet of its own
        async with patience():
            return [await _answer(reader) for _ in range(answers)]
    finally:
        writer.close()
        await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode()[:-4].split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))


def comparable(answer: tuple[int, dict[str, str], bytes]) -> tuple[int, dict[str, str], bytes]:
    status, headers, body = answer
    return status, {name: value for name, value in headers.items() if name not in ("date", "x-request-id")}, body


async def is_taken(deployment: Deployment, request: Asked, settings: HttpSettings | None = None) -> bool:
    """Whether the raw handler answers a request itself."""
    passed_on: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        passed_on.append(scope)
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    snapshots = deployment.snapshots
    coalescer = ReadCoalescer(snapshots.reader.read, snapshots.feed)
    admission = Admission(Authenticator(Access(settings or HttpSettings()), ()), Role.READ)
    handler = FastRead(application, snapshots.reader, admission, coalescer, longest_wait_s=25)
    await ask_in_process(handler, *request, client="127.0.0.1")
    return not passed_on


async def is_held_and_taken(deployment: Deployment, request: Asked, settings: HttpSettings | None = None) -> bool:
    """Whether it is taken in a moment in which the snapshot is held: news may have come in between."""
    await deployment.read(7)
    return await is_taken(deployment, request, settings)


async def test_fast_and_regular_route_answer_alike(serve: Serve, deployment: Deployment):
    assert await is_held_and_taken(deployment, ("GET", PATH, {}))
    assert not await is_held_and_taken(deployment, ("GET", f"{PATH}?wait=0", {}))
    async with serve(HttpSettings(port=0)) as binding:
        [short, at_once], [long] = await ask(binding, PLAIN, PLAIN, answers=2), await ask(binding, LONG)
        secure = [each.replace(b"\r\n\r\n", b"\r\nX-Forwarded-Proto: https\r\n\r\n") for each in (PLAIN, LONG)]
        [short_tls], [long_tls] = [await ask(binding, each) for each in secure]
        tag = short[1]["etag"].encode()
        known = b'Host: localhost\r\nIf-None-Match: "x", ' + tag
        short_304, long_304 = [
            (await ask(binding, each.replace(b"Host: 127.0.0.1", known)))[0] for each in (PLAIN, LONG)
        ]

    assert comparable(short) == comparable(at_once) == comparable(long)
    assert short[1]["x-request-id"] != at_once[1]["x-request-id"]
    assert comparable(short_304) == comparable(long_304)
    assert comparable(short_tls) == comparable(long_tls)
    assert short_tls[1]["strict-transport-security"] == "max-age=31536000"
    assert (short[0], short_304[0]) == (200, 304)
    assert short[1]["date"].endswith(" GMT")
    assert len(short[1]["x-request-id"]) == len(long[1]["x-request-id"])


async def test_one_connection_may_use_both_routes_in_turn(serve: Serve):
    async with serve(HttpSettings(port=0)) as binding:
        answers = await ask(binding, PLAIN, LONG, PLAIN, PLAIN, LONG, answers=5)

    assert [status for status, _, _ in answers] == [200] * 5
    assert len({body for _, _, body in answers}) == 1


async def test_pipelined_and_fragmented_requests_are_answered(serve: Serve):
    async with serve(HttpSettings(port=0)) as binding:
        together = await ask(binding, PLAIN + PLAIN, answers=2)
        in_pieces = await ask(binding, PLAIN[:20], PLAIN[20:50], PLAIN[50:] + PLAIN, answers=2)

    assert [status for status, _, _ in together + in_pieces] == [200] * 4


async def test_authentication_is_the_same(serve: Serve, deployment: Deployment):
    foreign = PLAIN.replace(b"127.0.0.1", b"evil.example")
    keyed = HttpSettings(port=0, api_key=SecretStr(KEY))
    good = PLAIN.replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
    bad = good.replace(KEY.encode(), b"f" * len(KEY))
    assert await is_held_and_taken(deployment, ("GET", PATH, {"Authorization": f"Bearer {KEY}"}), keyed)
    async with serve(HttpSettings(port=0)) as binding:
        [(refused, _, _)] = await ask(binding, foreign)
    async with serve(keyed) as binding:
        statuses = [(await ask(binding, each))[0][0] for each in (PLAIN, bad, good, good, PLAIN, bad)]

    assert refused == 403
    assert statuses == [401, 401, 200, 200, 401, 401]


async def test_a_read_only_key_uses_the_fast_route_and_a_session_the_regular_one(serve: Serve, deployment: Deployment):
    del serve  # so that there is something to be held
    settings = HttpSettings(port=0, read_keys=(SecretStr(KEY),))
    keyring = Keyring(settings)
    token, _ = SessionManager(keyring, settings.session_lasts).open(keyring.keys[0])
    for shown, is_good in (
        ({"Authorization": f"Bearer {KEY}"}, True),
        ({"Cookie": f"tidegate_session={token}"}, False),  # the database knows whether it was revoked
        ({"Cookie": f"tidegate_session={token}x"}, False),
        ({"Cookie": f"tidegate_session={token}", "Sec-Fetch-Site": "same-site"}, False),
    ):
        assert await is_held_and_taken(deployment, ("GET", PATH, shown), settings) == is_good, shown


NOT_PLAIN: list[Asked] = [
    ("HEAD", PATH, {}),
    ("POST", PATH, {}),
    ("GET", f"{PATH}/events", {}),
    ("GET", "/v1/snapshots/dead/17-0", {}),
    ("GET", "/v1/snapshots/prefetch", {}),
    ("GET", "/v1/snapshots/planet/7", {}),
    ("GET", f"{PATH}?wait=0", {}),
    ("GET", f"{PATH}?wait=5&wait=6", {}),
    ("GET", PATH, {"Host": "evil.example"}),
    ("GET", PATH, {"Content-Length": "3"}),
    ("GET", PATH, {"Transfer-Encoding": "chunked"}),
    ("GET", PATH, {"X": "y" * 40_000}),
    ("GET", PATH, {f"X-{n}": "y" for n in range(120)}),
]


async def test_unusual_requests_use_the_regular_route(deployment: Deployment):
    async with deployment.working():
        await deployment.until_fresh(7)

    assert await is_held_and_taken(deployment, ("GET", PATH, {}))
    assert [each for each in NOT_PLAIN if await is_held_and_taken(deployment, each)] == []


def scope_of(request: Asked) -> Scope:
    headers = {"host": "127.0.0.1"} | {name.lower(): value for name, value in request[2].items()}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"method": "GET", "client": ("127.0.0.1", 4711), "headers": pairs}


async def test_only_repeated_plain_reads_are_answered_at_once(deployment: Deployment):
    """By address and headers that the handler has answered before; the others are left to the application."""
    async with deployment.working():
        await deployment.until_fresh(7)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 500, "headers": []})

    coalescer = ReadCoalescer(deployment.snapshots.reader.read, deployment.snapshots.feed)
    admission = Admission(Authenticator(Access(HttpSettings()), ()), Role.READ)
    handler = FastRead(application, deployment.snapshots.reader, admission, coalescer, longest_wait_s=25)
    plain, unusual = ("GET", PATH, {}), [each for each in NOT_PLAIN if each[0] == "GET"]
    await deployment.read(7)
    assert handler.answer_at_once(PATH.encode(), scope_of(plain)) is None
    for each in (plain, *unusual):
        await ask_in_process(handler, *each, client="127.0.0.1")

    await deployment.read(7)
    answer = handler.answer_at_once(PATH.encode(), scope_of(plain))
    assert answer is not None
    assert answer[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert [each for each in unusual if handler.answer_at_once(each[1].encode(), scope_of(each)) is not None] == []


async def test_the_answer_is_the_same_without_a_direct_connection(serve: Serve, deployment: Deployment):
    """Under another server, and where the connection ends after the answer, it is sent as messages."""
    closing = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serve(HttpSettings(port=0)) as binding:
        await deployment.read(7)
        [kept], [closed] = await ask(binding, PLAIN), await ask(binding, closing)

    assert closed[1].pop("connection") == "close"
    assert comparable(kept) == comparable(closed)


async def waiting_read(deployment: Deployment, key: int, connection: "Lost | None" = None) -> "asyncio.Task[bool]":
    """A request of the raw handler that waits for a refresh; tells whether the application was asked in the end."""
    coalescer = ReadCoalescer(deployment.snapshots.reader.read, deployment.snapshots.feed)
    passed_on: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        passed_on.append(scope)

    admission = Admission(Authenticator(Access(HttpSettings()), ()), Role.READ)
    handler = FastRead(application, deployment.snapshots.reader, admission, coalescer, longest_wait_s=25)
    scope: Scope = {
        "method": "GET",
        "http_version": "1.1",
        "path": f"/v1/snapshots/character/{key}",
        "query_string": b"wait=20",
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 4711),
        "state": {CONNECTION: connection},
    }

    async def unused(*_: object) -> None:
        raise AssertionError("nothing is received or sent")

    async def read() -> bool:
        await handler(scope, unused, unused)
        return bool(passed_on)

    task = asyncio.create_task(read())
    await until(lambda: deployment.snapshots.feed.watchers_of(f"character/{key}") and len(coalescer))
    return task


class Lost:
    """A connection that is lost while its request waits."""

    def __init__(self) -> None:
        self.waiting: asyncio.Future[object] | None = None

    def cancel_when_lost(self, task: asyncio.Future[object]) -> None:
        self.waiting = task


async def test_a_client_that_disconnects_while_waiting_costs_no_second_read(deployment: Deployment):
    connection = Lost()
    reading = await waiting_read(deployment, 8, connection)
    assert connection.waiting is not None
    connection.waiting.cancel()

    async with patience():
        assert not await reading


async def test_a_waiting_request_can_be_cancelled(deployment: Deployment):
    reading = await waiting_read(deployment, 8)
    reading.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_long_paths_are_not_cached(deployment: Deployment):
    coalescer = ReadCoalescer(deployment.snapshots.reader.read, deployment.snapshots.feed)
    admission = Admission(Authenticator(Access(HttpSettings(api_key=SecretStr(KEY))), ()), Role.READ)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 414, "headers": []})

    handler = FastRead(application, deployment.snapshots.reader, admission, coalescer, longest_wait_s=25)
    tracemalloc.start()
    try:
        for n in range(50):
            await ask_in_process(handler, "GET", f"/v1/snapshots/character/{n:050000}")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1_000_000, "50 addresses of 50 kB each were sent without a key"
