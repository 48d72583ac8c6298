"""Requests made up from the OpenAPI document, good ones and bad ones, against a server that somebody started."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.engine.credentials.harness import app_key
from tests.http.processes import started
from tests.systems.snapshots.deployment import game
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

KEY = "a-key-for-the-fuzzer-0123456789"
APP, INSTALLATION = 71, 5
VALUES, CONFIG = (Path(__file__).with_name(name) for name in ("fuzz_values.py", "fuzzing.toml"))


async def make_room(url: str, name: str) -> None:
    """One that is open, so that there is something to join."""
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {KEY}"}) as session:
        async with session.post("/v1/rooms", json={"name": name, "plan": {"capacity": 1}}) as made:
            assert made.status == 201, await made.text()
        async with session.post(f"/v1/rooms/{name}/open") as opened:
            assert opened.status == 200, await opened.text()


async def make_campaign(url: str, name: str) -> None:
    """One that is open, so that there is something to enter."""
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {KEY}"}) as session:
        plan = {"id": name, "kind": "POINTS", "points": 1, "total_count": 1}
        async with session.post("/v1/campaigns", json=plan) as made:
            assert made.status == 201, await made.text()
        async with session.post(f"/v1/campaigns/{name}/start") as opened:
            assert opened.status == 200, await opened.text()


async def log_in(url: str) -> dict[str, str]:
    """What our page sends from then on."""
    async with aiohttp.ClientSession(url) as session, session.post("/v1/session", json={"key": KEY}) as opened:
        assert opened.status == 200, await opened.text()
        cookie = opened.headers["Set-Cookie"].partition(";")[0]
        return {"Cookie": cookie, "X-Tidegate-CSRF": (await opened.json())["csrf"]}


async def fuzz(url: str, folder: Path, good: Mapping[str, object], *, examples: int) -> None:
    """Ask everything that the document of a server describes, but what lasts as long as somebody listens."""
    fuzzer = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        *("--config-file", str(CONFIG), "run", f"{url}/openapi.json", "--header", f"Authorization: Bearer {KEY}"),
        *("--phases", "coverage,fuzzing", "--max-examples", str(examples), "--workers", "1"),
        *("--exclude-path-regex", "/(events|live)$"),
        # What needs a key is asked without one, everywhere, in test_roles.
        *("--exclude-checks", "ignored_auth"),
        *("--seed", "20260131", "--generation-deterministic", "--request-timeout", "10", "--no-color"),
        cwd=folder,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": str(VALUES),
            "TIDEGATE_FUZZ_GOOD": msgspec.json.encode(good).decode(),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        told, _ = await fuzzer.communicate()
    finally:
        if fuzzer.returncode is None:
            fuzzer.kill()
            await fuzzer.wait()
    assert fuzzer.returncode == 0, told.decode()


async def fuzz_everything(folder: Path, *, examples: int) -> None:
    """A server with every part that there is, and what it needs around it."""
    world = WorldShape(users=1, repositories=1, quirks=False)
    async with GithubSimulator(SimulatorConfig(world=world)) as sim, game() as players:
        key, public = app_key()
        sim.credentials.register_app(APP, public, {INSTALLATION: (10, 10)})
        app = {"app_id": APP, "installation_id": INSTALLATION, "private_key": key}
        variables = {
            "GITHUB_TOKEN": sim.token_of(sim.world.operators()[0]),
            "TIDEGATE_GITHUB__API_URL": sim.url,
            "TIDEGATE_HTTP__API_KEY": KEY,
            "TIDEGATE_RANKING__BOARDS": '[{"name": "a"}]',
            "TIDEGATE_SNAPSHOTS__GAME__URL": players.url,
            "TIDEGATE_SNAPSHOTS__GAME__API_KEY": players.api_key,
            "TIDEGATE_SNAPSHOTS__LONGEST_WAIT": "20ms",
        }
        async with started(folder, "serve", "--port", "0", **variables) as server:
            await make_room(server.url, "fuzzed")
            await make_campaign(server.url, "fuzzed")
            page = await log_in(server.url)
            good = {"token": sim.token_of(sim.world.logins()[0]), "app": app, "key": KEY, "page": page}
            await fuzz(server.url, folder, good, examples=examples)
            assert (await server.stop())["is_clean"]


@pytest.mark.timeout(1200)  # three minutes on a machine with a load of 15
async def test_the_server_behaves_as_its_openapi_document_states(tmp_path: Path):
    """Statuses, content types and schemas of all answers; bad data refused, good data taken; the key needed."""
    await fuzz_everything(tmp_path, examples=3)
