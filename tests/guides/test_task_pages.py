"""The task pages: their commands and queries are run, and their middleware is put in front of an application."""

import json
import shlex
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import aiohttp
import duckdb
import pytest
from examples.waiting_room_middleware import Receive, Scope, Send, WaitingRoom
from pydantic import SecretStr
from sqlalchemy import text
from starlette.applications import Starlette

from tests.cli.batch import tidegate_each
from tests.cli.test_collect import simulator, token_of
from tests.docs.pages import ROOT, blocks_of
from tests.guides.test_snapshots import at_work, make_requests
from tests.http.processes import started
from tests.http.test_guide import shown_in
from tests.servers.sql import empty_database
from tests.systems.snapshots.deployment import game
from tests.systems.waiting_room.harness import ROOM, add_visitors
from tests.systems.waiting_room.room_site import room_site_at
from tidegate.http.settings import HttpSettings
from tidegate.storage.sql import Database, Transaction
from tidegate.storage.valkey import Valkey
from tidegate_simulators.github import GithubSimulator, WorldShape

GUIDES = ROOT / "docs" / "guides"
MIDDLEWARE_PAGE = "waiting-room-for-django-and-fastapi.md"
STAYING = ("tidegate up", "tidegate simulate")


def commands_of(page: str) -> list[str]:
    """Commands of a page that end, without the program's name."""
    shown = [shlex.join(each.words) for each in shown_in(GUIDES / page, "tidegate")]
    found = [line.removeprefix("tidegate ") for line in shown if not line.startswith(STAYING)]
    assert found, "the search finds nothing"
    return found


def queries_of(page: str) -> list[str]:
    return [block.text for block in blocks_of(GUIDES / page) if block.language == "sql"]


def surroundings(sim: GithubSimulator, **more: str) -> dict[str, str]:
    return {"TIDEGATE_GITHUB__API_URL": sim.url, "GITHUB_TOKEN": token_of(sim), **more}


async def run_all(folder: Path, page: str, words: Mapping[str, str] | None = None, /, **variables: str) -> None:
    """Run the commands of a page one after the other, with `words` replaced; all of them must succeed."""
    commands = commands_of(page)
    for placeholder, word in (words or {}).items():
        commands = [command.replace(placeholder, word) for command in commands]
    for command, ended in zip(commands, await tidegate_each(folder, *commands, **variables), strict=True):
        assert ended.code == 0, (command, ended)


@pytest.mark.full
async def test_users_of_a_file_are_scheduled_collected_and_queried_in_postgresql(tmp_path: Path):
    async with simulator() as sim, empty_database("postgres", tmp_path) as url:
        (tmp_path / "users.txt").write_text("\n".join(sim.world.logins()))
        await run_all(tmp_path, "nightly-to-postgresql.md", None, **surroundings(sim, TIDEGATE_DATABASE_URL=url))
        [query] = queries_of("nightly-to-postgresql.md")

        async with await Database.open(url) as database:
            found = await database.read(_rows, query.strip().removesuffix(";"))

        opened = {login: sum(each["state"] == "open" for each in issues_of(sim, login)) for login in sim.world.logins()}
        assert {owner.lower(): count for owner, count in found} == {k.lower(): v for k, v in opened.items() if v}


def issues_of(sim: GithubSimulator, login: str) -> list[Any]:
    return [issue for repository in sim.truth(login).repositories for issue in repository.issues]


def _rows(tx: Transaction, query: str) -> list[Any]:
    return [tuple(row) for row in tx.execute(text(query))]


@pytest.mark.full
async def test_an_organisation_is_collected_and_queried_in_duckdb(tmp_path: Path):
    page = "organisation-and-duckdb.md"
    async with simulator(WorldShape(organizations=1, users=2, repositories=6, quirks=False)) as sim:
        name = sim.world.logins()[0]
        await run_all(tmp_path, page, {"ORGANISATION": name}, **surroundings(sim))
        with duckdb.connect(tmp_path / "warehouse.duckdb", read_only=True) as file:
            issues, popular, idle = [file.sql(each).fetchall() for each in queries_of(page)]

        listed = sim.truth(name).repositories
        collected = [one for one in listed if not one.repository["archived"]]
        assert sum(count for _, count, _ in issues) == sum(len(one.issues) for one in collected) > 0
        assert len(popular) == min(10, len(listed))
        assert {row[0] for row in idle} == {one.repository["full_name"] for one in listed if one not in collected}


@pytest.mark.full
async def test_a_game_is_kept_fresh(tmp_path: Path):
    [limits] = [block.text for block in blocks_of(GUIDES / "keep-an-api-fresh.md") if block.language == "toml"]
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "tidegate.toml").write_text(limits)
    async with game() as sim, at_work(tmp_path, sim) as (client, variables):
        await make_requests(client, shown_in(GUIDES / "keep-an-api-fresh.md", "curl"))
        await run_all(tmp_path, "keep-an-api-fresh.md", None, **variables)

        assert sim.report().calls == 1


@pytest.mark.full
async def test_the_commands_and_requests_of_the_on_call_page_succeed(tmp_path: Path):
    async with started(tmp_path, "up", "--port", "0") as server:
        await run_all(tmp_path, "on-call.md")
        for each in shown_in(GUIDES / "on-call.md", "curl"):
            [path] = [word.removeprefix("http://127.0.0.1:8321") for word in each.words if word.startswith("http://")]
            answer = await _get(server.url + path)
            assert [key for line in each.output for key in json.loads(line) if key not in answer] == []


async def _get(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return json.loads(await answer.read())


KEY = "a-key-for-the-tests-0123456789"


async def seats(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for the Django or FastAPI application."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the seats"})


async def request(application: WaitingRoom, path: str, shown: str | None = None) -> tuple[int, dict[bytes, bytes]]:
    """Send one GET request, with the pass in the cookie; status and headers of the answer."""
    cookies = [(b"cookie", f"a=b; tidegate_pass_{ROOM}={shown}".encode())] if shown else []
    sent = list[MutableMapping[str, Any]]()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await application({"type": "http", "method": "GET", "path": path, "headers": cookies}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"])


async def test_the_middleware_redirects_visitors_until_they_are_admitted(tmp_path: Path, embedded: Valkey):
    async with room_site_at(tmp_path, embedded, HttpSettings(api_key=SecretStr(KEY))) as site:
        shop = WaitingRoom(seats, room=ROOM, protect="/seats", tidegate=site.url, key=KEY)
        room = await site.open(entrance="/seats", capacity=1)
        [waiting] = await add_visitors(room, "ada")

        assert (await request(shop, "/about"))[0] == 200
        for shown in (None, "nonsense", waiting):
            status, headers = await request(shop, "/seats/1", shown)
            assert (status, headers.get(b"location")) == (303, f"/rooms/{ROOM}".encode())
        await site.harness.run_worker()
        admitted = (await room.status(waiting)).token
        assert (await request(shop, "/seats/1", admitted))[0] == 200
        await shop.close()


@pytest.mark.full
async def test_the_commands_of_the_page_open_a_room(tmp_path: Path):
    await run_all(tmp_path, MIDDLEWARE_PAGE)


async def test_the_line_for_fastapi_adds_the_middleware_to_an_application():
    """FastAPI is an application of Starlette, and takes middleware in the same way."""
    line, _ = [block.text for block in blocks_of(GUIDES / MIDDLEWARE_PAGE) if block.language == "py"]
    app = Starlette()
    exec(line.replace("127.0.0.1:8321", "127.0.0.1:1"), {"app": app, "WaitingRoom": WaitingRoom, "KEY": KEY})
    added: object = getattr(app.build_middleware_stack(), "app", None)

    assert isinstance(added, WaitingRoom)
    assert (await request(added, "/seats/1"))[0] == 503, "it asks Tidegate, which is not there"
    await added.close()


async def test_the_middleware_admits_no_visitor_while_tidegate_does_not_answer():
    shop = WaitingRoom(seats, room=ROOM, protect="/seats", tidegate="http://127.0.0.1:1", key=KEY)

    status, headers = await request(shop, "/seats", "a pass")
    await shop.close()

    assert (status, headers[b"retry-after"]) == (503, b"5")
