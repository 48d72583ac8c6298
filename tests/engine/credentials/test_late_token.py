"""A process whose only token could not be asked about at its start."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.ports import free_port
from tests.systems.github.deployment import SMALL
from tests.waiting import patience
from tidegate.app.cli.up import UP, Banner, greeting
from tidegate.core.backoff import Backoff
from tidegate.engine.credentials.memory_tokens import EnvironmentToken
from tidegate.engine.upstream import UpstreamFailed
from tidegate.settings import Settings
from tidegate.systems.github import GithubSettings
from tidegate.systems.github.opening import open_github
from tidegate.systems.github.settings import VARIABLE
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

SOON = Backoff(first=timedelta(milliseconds=20), most=timedelta(milliseconds=50))


@pytest.mark.full
async def test_a_token_is_usable_as_soon_as_github_answers(tmp_path: Path):
    world = WorldShape(users=1, repositories=1, sizes=SMALL, quirks=False)
    sim = GithubSimulator(SimulatorConfig(world=world, port=free_port()))
    token = sim.token_of(sim.world.operators()[0])
    url = f"http://127.0.0.1:{sim.config.port}"
    settings = Settings(data_dir=tmp_path, github=GithubSettings(api_url=url))
    async with open_github(settings, token=token, needs_credential=False) as collection:
        late = collection.token
        assert late is not None
        assert "no connection" in late.reason
        assert token not in late.reason
        used, stopping = asyncio.Event(), asyncio.Event()
        again = EnvironmentToken(collection.credential_manager, token, on_used=used.set, pauses=SOON)
        running = asyncio.create_task(again.run(stopping))
        async with sim, patience():
            await used.wait()
        stopping.set()
        await running

        assert not again.is_awaited
        assert [each.name for each in await collection.credential_manager.list()] == [VARIABLE]

    with pytest.raises(UpstreamFailed):  # whoever collects at once has to know at once
        async with open_github(settings.model_copy(update={"data_dir": tmp_path / "other"}), token=token):
            pass


def test_the_startup_message_says_what_is_waited_for():
    banner = Banner(
        role="up", version="1", pid=7, url=None, needs_key=False, database="d", server="s", credentials=[],
        waits_for=["GITHUB_TOKEN is retried until the upstream answers: no connection"],
    )  # fmt: skip

    assert "GITHUB_TOKEN is retried until the upstream answers: no connection" in greeting(UP, banner)
