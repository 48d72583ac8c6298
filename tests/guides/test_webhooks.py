"""The guide to webhooks, with processes that receive deliveries of a simulated GitHub."""

import re
from pathlib import Path

import aiohttp
import pytest

from tests.cli.batch import tidegate_each
from tests.cli.test_collect import simulator, token_of
from tests.docs.pages import ROOT
from tests.guides.test_task_pages import commands_of
from tests.http.processes import started
from tests.waiting import until
from tidegate.systems.github.webhooks.payloads import EVENTS
from tidegate_simulators.github import GithubSimulator

PAGE = ROOT / "docs" / "guides" / "webhooks.md"
SECRET = "3f0c-the-secret-of-the-guide"


def variables(sim: GithubSimulator) -> dict[str, str]:
    return {
        "TIDEGATE_GITHUB__API_URL": sim.url,
        "TIDEGATE_GITHUB_WEBHOOKS__SECRETS": f'["another-secret-of-it", "{SECRET}"]',
        "GITHUB_TOKEN": token_of(sim),
    }


def test_the_table_of_events_is_complete():
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ", PAGE.read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert named == set(EVENTS)


@pytest.mark.full
@pytest.mark.parametrize("command", [("up",), ("serve", "--only", "github_webhooks")])
async def test_the_commands_of_the_guide_show_changes_on_github(tmp_path: Path, command: tuple[str, ...]):
    async with simulator() as sim, started(tmp_path, *command, "--port", "0", **variables(sim)) as server:
        name = next(iter(sim.world.repositories_of(sim.world.require_account(sim.world.logins()[0])))).full_name
        sim.webhooks.register(f"{server.url}/v1/github/webhook", SECRET)
        sim.mutate.push(name)
        await sim.webhooks.settled()
        statuses = [attempt.status for each in sim.webhooks.deliveries for attempt in each.attempts]
        assert statuses == [202, 202], "the ping and the push"

        commands = [each for each in commands_of("webhooks.md") if "deliveries" in each]

        async def shown() -> bool:
            first, second = await tidegate_each(tmp_path, *commands, **variables(sim))
            assert (first.code, second.code) == (0, 0), (first, second)
            assert name in first.out
            return second.out.strip() == "[]" and "1 changed" in first.out

        await until(shown)
        if command == ("serve", "--only", "github_webhooks"):
            await _assert_nothing_else_is_answered(server.url)
        stopped = await server.stop()
        assert stopped["is_clean"]
        assert SECRET not in server.log.read_text()


async def _assert_nothing_else_is_answered(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        for path, status in (("/v1/runs", 404), ("/v1/github/deliveries", 404), ("/healthz", 200)):
            async with session.get(url + path) as answer:
                assert answer.status == status, path


@pytest.mark.full
async def test_without_a_secret_command_and_route_name_the_setting(tmp_path: Path):
    [refused] = await tidegate_each(tmp_path, "serve --only github_webhooks --port 0")
    assert refused.code == 1
    assert "TIDEGATE_GITHUB_WEBHOOKS__SECRETS" in refused.err
    async with (
        started(tmp_path, "serve", "--port", "0") as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/github/webhook", json={}) as answer,
    ):
        assert answer.status == 404
        assert "TIDEGATE_GITHUB_WEBHOOKS__SECRETS" in await answer.text()
