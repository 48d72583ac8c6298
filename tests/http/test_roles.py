"""Every address of the whole application, as somebody starts it: what it needs, and that it insists.

What is open, and what needs another role than its method says, is listed here: a new address is closed, or is added to
these lists by somebody who has thought about it.
"""

import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from litestar.datastructures import Headers
from pydantic import SecretStr

import tidegate
from tests.http.processes import started
from tests.http.serving import Client, Reply
from tests.http.test_openapi import operations
from tidegate.http.access import Access
from tidegate.http.authentication import Authenticator
from tidegate.http.callers import AuthenticationMethod, Role
from tidegate.http.settings import HttpSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPERATE, READ = "operate-0123456789abcdef", "read-0123456789abcdef"
OPEN = {
    "GET /healthz",
    "GET /readyz",
    "GET /v1/session",
    "POST /v1/session",
    "DELETE /v1/session",
    # Visitors of waiting rooms, who show their passes.
    "GET /v1/rooms/{room}/place",
    "GET /v1/rooms/{room}/place/events",
    "DELETE /v1/rooms/{room}/place",
    "POST /v1/rooms/{room}/renewals",
    "GET /v1/rooms/{room}/draw",
}
ONLY_ASKS = {"POST /v1/rooms/{room}/check"}
VALUES = {"room": "nowhere", "kind": "character", "board": "a", "letter_id": "17-0", "host": "shop.example"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Client]:
    """A whole process with every part that there is."""
    variables = {
        "TIDEGATE_HTTP__API_KEY": OPERATE,
        "TIDEGATE_HTTP__READ_KEYS": f'["{READ}"]',
        "TIDEGATE_RANKING__BOARDS": '[{"name": "a"}]',
        "TIDEGATE_SNAPSHOTS__GAME__URL": "http://127.0.0.1:9",
        "TIDEGATE_SNAPSHOTS__GAME__API_KEY": "x" * 16,
    }
    folder = tmp_path_factory.mktemp("roles")
    async with started(folder, "serve", "--port", "0", **variables) as server, aiohttp.ClientSession() as session:
        yield Client(session, server.url)
        assert (await server.stop())["is_clean"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def everything(client: Client) -> dict[str, dict[str, Any]]:
    return operations((await client.get("/openapi.json", headers=bearer(OPERATE))).json)


def addresses(everything: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Each operation, its method, and an address of its kind at which there is nothing."""
    for place in everything:
        method, _, path = place.partition(" ")
        yield place, method, re.sub(r"{(\w+)}", lambda found: VALUES.get(found[1], "4711"), path)


async def head(client: Client, method: str, path: str, headers: dict[str, str]) -> Reply:
    """An answer; of a stream, that it begins."""
    async with client.session.request(method, client.url + path, headers=headers, allow_redirects=False) as answer:
        is_stream = answer.content_type == "text/event-stream"
        return Reply(answer.status, answer.headers, b"" if is_stream else await answer.read())


async def test_public_and_read_only_routes_are_listed(everything: dict[str, dict[str, Any]]):
    assert len(everything) > 60, "these are not all"
    assert {place for place, each in everything.items() if not each["security"]} == OPEN
    for place, each in everything.items():
        expected = None if place in OPEN else "read" if place in ONLY_ASKS or place.startswith("GET ") else "operate"
        assert each.get("x-tidegate-role") == expected, place
        roles = [role for allowed in each["security"] for [role] in allowed.values()]
        assert roles == ([] if expected is None else [expected, expected])
        assert ("401" in each["responses"]) == (place not in OPEN or place in ("GET /v1/session", "POST /v1/session"))


async def test_without_a_key_all_other_routes_are_refused(client: Client, everything: dict[str, dict[str, Any]]):
    for place, method, path in addresses(everything):
        if place not in OPEN:
            for headers in ({}, bearer("wrong-0123456789abcdef"), {"cookie": "tidegate_session=x.y"}):
                answer = await client.ask(method, path, headers=headers)
                assert (answer.status, answer.problem) == (401, "key-needed"), place


async def test_a_read_only_key_can_read_everything_and_change_nothing(
    client: Client, everything: dict[str, dict[str, Any]]
):
    for place, method, path in addresses(everything):
        answer = await head(client, method, path, bearer(READ))
        if everything[place].get("x-tidegate-role") == "operate":
            assert (answer.status, answer.problem) == (403, "role-needed"), place
            assert "the role operate" in answer.json["detail"]
        elif place not in OPEN:
            refused = answer.status >= 400 and answer.problem in ("key-needed", "role-needed")
            assert not refused, place
            assert answer.status < 500, (place, answer)


async def test_a_session_changes_nothing_without_the_csrf_token(client: Client, everything: dict[str, dict[str, Any]]):
    opened = await client.post("/v1/session", {"key": OPERATE})
    cookie = {"cookie": opened.headers["set-cookie"].partition(";")[0]}
    client.session.cookie_jar.clear()
    for place, method, path in addresses(everything):
        if method != "GET" and place not in OPEN:
            answer = await client.ask(method, path, headers=cookie)
            assert (answer.status, answer.problem) == (403, "csrf-needed"), place
    right = cookie | {"x-tidegate-csrf": opened.json["csrf"]}
    assert (await client.post("/v1/runs/4711/cancel", headers=right)).status == 404
    assert (await client.get("/v1/runs", headers=cookie)).status == 200


async def test_a_session_of_another_process_is_valid_in_this_one(client: Client):
    opened = await client.post("/v1/session", {"key": READ})
    client.session.cookie_jar.clear()
    headers = Headers({"host": "127.0.0.1", "cookie": opened.headers["set-cookie"].partition(";")[0]})
    authenticator = Authenticator(Access(HttpSettings(api_key=SecretStr(OPERATE), read_keys=(SecretStr(READ),))), ())

    caller = await authenticator.admit("GET", "/v1/runs", headers)

    assert (caller.role, caller.how, caller.csrf) == (Role.READ, AuthenticationMethod.SESSION, opened.json["csrf"])


async def test_without_a_key_unknown_and_known_paths_get_the_same_refusal(client: Client):
    for method, path in (("GET", "/nothing"), ("PUT", "/v1/runs"), ("GET", "/v1/runs/"), ("OPTIONS", "/v1/runs")):
        answer = await client.ask(method, path)
        assert (answer.status, answer.problem) == (401, "key-needed")


async def test_routes_declared_public_are_the_known_ones():
    """Pages are in no document that could be walked over; so it is counted who says that something is open."""
    source = Path(tidegate.__file__).parent
    said = {
        str(path.relative_to(source)): len(re.findall(r"is_open=(?!False)", path.read_text()))
        for package in ("http", "dashboard", "systems")
        for path in sorted((source / package).rglob("*.py"))
        if "tidegate.http.routes" in path.read_text()
    }

    assert {name: times for name, times in said.items() if times} == {
        "dashboard/files.py": 2,  # the page of the dashboard, and its files
        "http/operations.py": 3,  # healthz and readyz, and metrics where the settings say so
        "http/session_routes.py": 3,  # where one comes in
        "systems/github/webhooks/receiver.py": 1,  # deliveries of GitHub, which are signed
        "systems/waiting_room/api/pages/routes.py": 3,  # the waiting page
        "systems/waiting_room/api/places.py": 5,  # visitors, who show their passes
    }
