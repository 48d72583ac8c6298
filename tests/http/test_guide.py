"""What the guide shows is what the server does: its requests are sent, and its answers compared."""

import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from tests.docs.pages import ROOT, blocks_of
from tests.http.serving import Served, read_events, served
from tidegate.app.cli import all_commands

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE = ROOT / "docs" / "guides" / "http.md"
SHOWN_AT = "http://127.0.0.1:8321"


@dataclass(frozen=True)
class Shown:
    """A command of the guide, and the lines below it."""

    words: list[str]
    output: list[str]


def shown(program: str) -> list[Shown]:
    """The commands of one program, in their order."""
    return shown_in(GUIDE, program)


def shown_in(page: Path, program: str) -> list[Shown]:
    """The same of any page."""
    found: list[Shown] = []
    for block in blocks_of(page):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *output = part.strip().splitlines()
                found.append(Shown(shlex.split(command), output))
    return [each for each in found if each.words[0] == program]


def request_of(words: list[str]) -> tuple[str, str, bytes | None, dict[str, str]]:
    """What curl would send: method, address, body, headers."""
    method, body, headers, rest = "GET", None, dict[str, str](), list[str]()
    arguments = iter(words[1:])
    for word in arguments:
        if word == "-X":
            method = next(arguments)
        elif word == "-d":
            method, body = "POST" if method == "GET" else method, next(arguments).encode()
        elif word == "-H":
            name, _, value = next(arguments).partition(": ")
            headers[name] = value
        elif not word.startswith("-"):
            rest.append(word)
    [url] = rest
    assert url.startswith(SHOWN_AT), url
    return method, url.removeprefix(SHOWN_AT), body, headers


def assert_fits(told: Any, real: Any) -> None:
    """Every key that the guide shows is there, with the kind of value that it shows."""
    assert type(real) is type(told), (told, real)
    if isinstance(told, dict):
        for name, value in told.items():  # pyright: ignore[reportUnknownVariableType]
            assert_fits(value, real[name])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    """With a dashboard, of which the guide speaks."""
    async with served(tmp_path_factory.mktemp("guide"), users=1, dashboard=True) as started:
        yield started


async def read_kinds(answer: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for event in read_events(answer):
        if event.kind:
            yield event.kind


@pytest.mark.full
async def test_the_requests_of_the_guide_have_its_responses(deployment: Served):
    login = deployment.logins[0]
    # Those of snapshots are sent where snapshots are: see tests/guides.
    requests = [each for each in shown("curl") if not any("/v1/snapshots/" in word for word in each.words)]
    assert len(requests) >= 8, "the search finds too little"
    for each in requests:
        method, path, body, headers = request_of([word.replace("octocat", login) for word in each.words])
        async with deployment.client.session.request(
            method, deployment.client.url + path, data=body, headers=headers
        ) as answer:
            assert answer.status in (200, 201), (path, await answer.text())
            told = [line.removeprefix("event: ") for line in each.output if line.startswith("event: ")]
            if path.startswith("/v1/live"):
                assert {await anext(read_kinds(answer)) for _ in told} == set(told)
            elif path.endswith("/events"):
                kinds = [event.kind async for event in read_events(answer)]
                assert kinds[-1] == told[-1] == "ended"
                assert set(kinds) <= set(told)
            else:
                assert_fits(msgspec.json.decode(each.output[0]), msgspec.json.decode(await answer.read()))


async def test_the_commands_of_the_guide_exist():
    named = {each.words[1] for each in shown("tidegate")}

    assert {"up", "serve"} <= named <= set(all_commands())
