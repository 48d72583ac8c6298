"""Nothing that is stored, logged, counted or printed contains a secret."""

import base64
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest

from tests.cli.test_commands import Ended, environment
from tests.engine.credentials.command_process import Command
from tests.engine.credentials.harness import APP, INSTALLATION, app_key
from tests.processes import start_warm
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.embedded import EmbeddedServer
from tidegate_simulators.github import Behaviour, GithubSimulator, LimitSettings, SimulatorConfig, WorldShape

GIVEN_KEY = base64.b64encode(b"k" * 32).decode()


async def run(folder: Path, *command: str, given: str = "", **variables: str) -> Ended:
    process = await start_warm(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=Path(__file__).parents[2],
        env=environment(folder, TIDEGATE_LOG__LEVEL="debug", **variables),
    )
    out, err = await process.communicate(given.encode())
    return Ended(process.returncode or 0, out.decode(), err.decode())


async def command(folder: Path, sim: GithubSimulator, commands: list[Command]) -> tuple[bytes, list[int]]:
    """Run commands; all that they said, and their exit codes."""
    given = msgspec.json.encode(commands).decode()
    ended = await run(
        folder,
        sys.executable,
        "-m",
        "tests.engine.credentials.command_process",
        given=given,
        TIDEGATE_GITHUB__API_URL=sim.url,
    )
    assert ended.code == 0, ended.err
    results = msgspec.json.decode(ended.out, type=list[tuple[int, str]])
    return "".join([ended.err, *(said for _, said in results)]).encode(), [code for code, _ in results]


def forms(secret: str) -> list[bytes]:
    """A secret as it might turn up: as it is, in hex, and in base64 wherever it begins."""
    plain = secret.encode()
    shifted = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, plain.hex().encode(), *shifted]


async def everything_on_the_server(data: Path) -> bytes:
    """Every key with all that is in it."""
    found = b""
    async with await EmbeddedServer.start(data) as server:
        valkey = await Valkey.connect(server.url)
        for key in await valkey.execute("KEYS", "*"):
            found += key + (await valkey.execute("DUMP", key))
        await valkey.close()
    return found


@pytest.mark.full
async def test_no_stored_or_logged_data_contains_a_secret(tmp_path: Path):
    private, public = app_key()
    config = SimulatorConfig(
        world=WorldShape(users=2, operators=3, repositories=2, quirks=False),
        limits=LimitSettings(installation_token_s=2),
        behaviour=Behaviour(latency_ms=40),
    )
    async with GithubSimulator(config) as sim:
        sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})
        (first, second, _), (ada, bob) = sim.world.operators(), sim.world.logins()
        tokens = [sim.token_of(first), sim.token_of(second), sim.token_of(first, 1), "ghp_refused0123456789"]
        key_file = tmp_path / "app.pem"
        key_file.write_text(private)
        app = ["--app-id", str(APP), "--installation-id", str(INSTALLATION), "--owner", "Platform team"]
        collect = (sys.executable, "-m", "tests.engine.credentials.collecting_process", str(tmp_path / "data"), sim.url)

        adding = [
            Command(["credentials", "add"], given=tokens[0]),
            Command(["credentials", "add", "--from-env", "MINE", "--json"], variables={"MINE": tokens[1]}),
            Command(["credentials", "add", "app", "--from-file", str(key_file), *app]),
            Command(["credentials", "add"], given=tokens[3]),
            Command(["credentials", "rotate-key"]),
        ]
        said, added = await command(tmp_path, sim, adding)
        collected = [await run(tmp_path, *collect, ada, GITHUB_TOKEN=tokens[2])]
        sim.credentials.revoke(tokens[0])
        collected.append(await run(tmp_path, *collect, bob))
        looking = [
            Command(["credentials", "test", "--json"]),
            Command(["credentials", "list", "--json"]),
            Command(["credentials", "list"]),
            Command(["credentials", "remove", first]),
            Command(["settings"], variables={"TIDEGATE_CREDENTIALS_KEY": GIVEN_KEY}),
        ]
        more, looked = await command(tmp_path, sim, looking)
        issued = [token for token in sim.credentials._tokens if token.startswith("ghs_")]  # pyright: ignore[reportPrivateUsage]

    assert (added, looked) == ([0, 0, 0, 1, 0], [1, 0, 0, 0, 0]), said + more
    assert [each.code for each in collected] == [0, 0], collected
    assert len(issued) >= 3
    said = b"".join([said, more, *(f"{each.out}{each.err}".encode() for each in collected)])
    assert b"credentials.refused" in said, "the log was on"
    data = tmp_path / "data"
    keys = (data / "credentials.key").read_text().split()
    files = [path for path in data.rglob("*") if path.is_file() and path.name != "credentials.key"]
    kept = b"".join(path.read_bytes() for path in files) + await everything_on_the_server(data)
    assert f"user-{sim.world.require_account(second).id}@".encode() in kept, "this is where it would be found"
    lines = [line for line in private.splitlines() if "-----" not in line]
    for secret in [*tokens, *issued, *lines, *keys, GIVEN_KEY]:
        for form in forms(secret):
            assert form not in kept, "stored"
            assert form not in said, "printed or logged"
    assert b"eyJ" not in said, "what an app signs"
    assert b"PRIVATE KEY" not in kept + said
