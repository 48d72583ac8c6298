"""The raw handler of joins and places answers as the application does, and passes on everything unusual."""

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from tests.http.asgi import ask
from tests.http.serving import Reply
from tests.systems.waiting_room.harness import ROOM, RoomHarness
from tidegate.http.access import Access
from tidegate.http.application import build_application
from tidegate.http.asgi import Application, Receive, Scope, Send
from tidegate.http.settings import HttpSettings
from tidegate.systems.waiting_room.api.fast_place import FastPlace
from tidegate.systems.waiting_room.api.places import AdmissionRates
from tidegate.systems.waiting_room.api.routes import room_api

KEY = "0123456789abcdef0123"
PLACE, ENTRIES, HERE = f"/v1/rooms/{ROOM}/place", f"/v1/rooms/{ROOM}/entries", "127.0.0.1"


def comparable(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")}
    return reply.status, headers, reply.body


class Both:
    """One installation, asked through the raw handler and without it."""

    def __init__(self, harness: RoomHarness, settings: HttpSettings | None = None) -> None:
        self._settings = settings or HttpSettings()
        self._venue, self._passed_on = harness, 0
        self.application = build_application(room_api(harness.rooms, self._settings).routes, self._settings)
        self._fast = self.handler(self._count)

    def handler(self, application: Application) -> FastPlace:
        access = Access(self._settings)
        return FastPlace(application, self._venue.rooms, AdmissionRates(), access, largest_body=1024)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._passed_on += 1
        await self.application(scope, receive, send)

    async def is_taken(self, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None) -> bool:
        """Whether the raw handler answers a request itself."""
        before = self._passed_on
        await ask(self._fast, method, path, headers, body, client=HERE)
        return self._passed_on == before

    async def equal(self, method: str, path: str, headers: dict[str, str] | None = None, body: Any = None) -> Reply:
        """The answer of a request, which is the same both ways, and whose raw answer comes from the raw handler."""
        headers = {**({} if body is None else {"Content-Length": "30"}), **(headers or {})}
        assert await self.is_taken(method, path, headers, body)
        fast = await ask(self._fast, method, path, headers, body, client=HERE)
        slow = await ask(self.application, method, path, headers, body, client=HERE)
        assert comparable(fast) == comparable(slow)
        return fast


async def test_the_raw_handler_answers_as_the_application_does(harness: RoomHarness):
    await harness.open(capacity=1)
    both = Both(harness)

    first = await both.equal("POST", ENTRIES, body={"user": "ada"})
    await both.equal("POST", ENTRIES, body={"user": "zoë"})
    waiting = await both.equal("POST", ENTRIES, body={"user": "bob", "pass": None})
    await harness.run_worker()
    token, other = first.json["pass"], waiting.json["pass"]
    inside = await both.equal("GET", PLACE, {"Tidegate-Pass": token})
    by_cookie = await both.equal("GET", PLACE, {"Cookie": f"theme=dark; tidegate_pass_{ROOM}={other}"})
    by_tls = await both.equal("GET", PLACE, {"Tidegate-Pass": other, "X-Forwarded-Proto": "https"})

    assert (first.status, first.json["state"], first.json["position"]) == (200, "waiting", 1)
    assert (inside.json["state"], inside.json["user"]) == ("inside", "ada")
    assert (by_cookie.json["user"], by_cookie.json["position"], by_cookie.json["waiting"]) == ("bob", 2, 2)
    assert by_tls.headers["strict-transport-security"] == "max-age=31536000"


async def test_problems_are_reported_by_the_application(harness: RoomHarness):
    await harness.open(capacity=1)
    both = Both(harness)
    token = (await ask(both.handler(both.application), "POST", ENTRIES, body={"user": "ada"}, client=HERE)).json["pass"]
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    await harness.rooms.close(ROOM)

    application = both.handler(both.application)
    refused = await ask(application, "GET", PLACE, {"Tidegate-Pass": changed}, client=HERE)
    unknown = await ask(application, "GET", "/v1/rooms/nowhere/place", {"Tidegate-Pass": token}, client=HERE)
    closed = await ask(application, "POST", ENTRIES, body={"user": "eve"}, client=HERE)
    nameless = await ask(application, "POST", ENTRIES, body={"user": "\0"}, client=HERE)

    statuses = [reply.status for reply in (refused, unknown, closed, nameless)]
    assert statuses == [403, 404, 409, 422], statuses
    kinds = {reply.headers["content-type"] for reply in (refused, unknown, closed, nameless)}
    assert kinds == {"application/problem+json"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("GET", PLACE, {}, None),
        ("HEAD", PLACE, {"Tidegate-Pass": "TOKEN"}, None),
        ("DELETE", PLACE, {"Tidegate-Pass": "TOKEN"}, None),
        ("GET", f"{PLACE}?x=1", {"Tidegate-Pass": "TOKEN"}, None),
        ("GET", f"{PLACE}/", {"Tidegate-Pass": "TOKEN"}, None),
        ("GET", "/v1/rooms/a/b/place", {"Tidegate-Pass": "TOKEN"}, None),
        ("GET", PLACE, {"Tidegate-Pass": "TOKEN", "Host": "evil.example"}, None),
        ("GET", PLACE, {"Tidegate-Pass": "TOKEN", "Cookie": "tidegate_session=abc"}, None),
        ("GET", PLACE, {"Cookie": f'tidegate_pass_{ROOM}="TOKEN"'}, None),
        ("GET", PLACE, {"Cookie": f"tidegate_pass_{ROOM}=TOKEN; tidegate_pass_{ROOM}=TOKEN"}, None),
        ("GET", PLACE, {"Tidegate-Pass": "TOKEN", "Content-Length": "2"}, b"{}"),
        ("POST", ENTRIES, {"Content-Length": "14", "Origin": "http://evil.example"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Content-Length": "14", "Content-Type": "text/plain"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Content-Length": "14", "Content-Encoding": "gzip"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Content-Length": "14", "Expect": "100-continue"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Content-Length": "5000"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Transfer-Encoding": "chunked"}, {"user": "eve"}),
        ("POST", ENTRIES, {"Content-Length": "14"}, {"user": ""}),
        ("POST", ENTRIES, {"Content-Length": "14"}, {"user": "eve", "colour": 1}),
        ("POST", ENTRIES, {"Content-Length": "14"}, b'{"user": "eve"'),
    ],
)
async def test_unusual_requests_are_passed_on(
    harness: RoomHarness, method: str, path: str, headers: dict[str, str], body: Any
):
    room = await harness.open(capacity=1)
    token = (await room.join("ada")).token or ""
    both = Both(harness)

    given = {name: value.replace("TOKEN", token) for name, value in headers.items()}

    assert not await both.is_taken(method, path, given, body)


async def test_joins_need_a_key_and_places_need_a_pass(harness: RoomHarness):
    room = await harness.open(capacity=1)
    token = (await room.join("ada")).token or ""
    both = Both(harness, HttpSettings(api_key=SecretStr(KEY)))
    length, body = {"Content-Length": "14"}, {"user": "bob"}

    assert await both.is_taken("GET", PLACE, {"Tidegate-Pass": token}), "a pass needs no key"
    assert not await both.is_taken("POST", ENTRIES, length, body)
    assert not await both.is_taken("POST", ENTRIES, {**length, "Authorization": "Bearer wrong"}, body)
    assert await both.is_taken("POST", ENTRIES, {**length, "Authorization": f"Bearer {KEY}"}, body)


async def test_concurrent_visitors_share_calls_of_the_scripts(harness: RoomHarness):
    await harness.open(capacity=0)
    both, users = Both(harness), [f"user-{n:03}" for n in range(250)]
    application = both.handler(both.application)
    before = await _script_calls(harness)
    joined = await asyncio.gather(
        *(ask(application, "POST", ENTRIES, {"Content-Length": "20"}, {"user": user}, client=HERE) for user in users)
    )
    between = await _script_calls(harness)
    tokens = [reply.json["pass"] for reply in joined]
    seen = await asyncio.gather(
        *(ask(application, "GET", PLACE, {"Tidegate-Pass": token}, client=HERE) for token in tokens)
    )

    assert [reply.json["position"] for reply in joined] == list(range(1, 251)), "in the order of arrival"
    assert [(reply.json["user"], reply.json["position"]) for reply in seen] == list(
        zip(users, range(1, 251), strict=True)
    )
    assert between - before <= 10
    assert await _script_calls(harness) - between <= 10


async def test_one_bad_user_does_not_affect_the_others(harness: RoomHarness):
    room = await harness.open(capacity=0)
    answers = await asyncio.gather(*(room.join(user) for user in ("ada", "", "bob", "x" * 300)), return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == [
        "VisitorStatus",
        "InvalidArgument",
        "VisitorStatus",
        "InvalidArgument",
    ]


async def _script_calls(harness: RoomHarness) -> int:
    told = await harness.valkey.execute("INFO", "commandstats")
    return sum(told[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall") if name in told)
