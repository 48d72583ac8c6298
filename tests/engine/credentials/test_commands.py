"""`tidegate credentials` as a user sees it."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.test_commands import environment
from tests.engine.credentials.command_process import Command
from tests.engine.credentials.harness import APP, INSTALLATION, app_key
from tests.processes import start_warm
from tidegate.engine.credentials.keys import EncryptionKey
from tidegate_simulators.github import GithubSimulator, SimulatorConfig, WorldShape

ON_A_SCREEN = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
"""Runs a command in a terminal of its own; what it shows is passed on, and so is what is typed."""


class Terminal:
    """A user in an installation of his own, whose GitHub is simulated."""

    def __init__(self, folder: Path, sim: GithubSimulator) -> None:
        self.folder, self.sim = folder, sim
        self.environment = environment(folder, TIDEGATE_GITHUB__API_URL=sim.url)
        self.operators = sim.world.operators()

    async def types(self, *commands: Command) -> list[tuple[int, str]]:
        """What came of commands."""
        process = await start_warm(
            *(sys.executable, "-m", "tests.engine.credentials.command_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=self.environment,
        )
        out, _ = await process.communicate(msgspec.json.encode(commands))
        assert process.returncode == 0
        return msgspec.json.decode(out, type=list[tuple[int, str]])


def a(line: str, given: str = "", **variables: str) -> Command:
    """A line of `tidegate credentials`, with what is given on standard input, and variables from then on."""
    return Command(["credentials", *line.split()], given, variables)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncGenerator[Terminal]:
    world = WorldShape(users=1, operators=3, repositories=1, quirks=False)
    async with GithubSimulator(SimulatorConfig(world=world)) as sim:
        yield Terminal(tmp_path, sim)


def only(result: tuple[int, str]) -> Any:
    code, said = result
    assert code == 0, said
    return json.loads(said)


async def test_credentials_are_added_listed_tested_and_removed(terminal: Terminal):
    sim, (first, second, _) = terminal.sim, terminal.operators
    private, public = app_key()
    sim.credentials.register_app(APP, public, {INSTALLATION: (1, 1)})
    key = terminal.folder / "app.pem"
    key.write_text(private)

    empty, added, own, app, listed, tested, as_json, removed, again = await terminal.types(
        a("list"),
        a("add", sim.token_of(first) + "\n"),
        a("add --user https://github.com/Ada --owner Ada", sim.token_of(second)),
        a(f"add tide --app-id {APP} --installation-id {INSTALLATION} --owner Platform --from-file {key}"),
        a("list"),
        a(f"test {first}"),
        a("list --json"),
        a(f"remove {first}"),
        a(f"remove {first}"),
    )

    assert empty == (0, "There are no credentials. Add one: tidegate credentials add\n")
    assert added == (0, f"Stored {first}: token of {first}, owned by {first}, serves all users.\n")
    assert own == (0, f"Stored {second}: token of {second}, owned by Ada, serves the user ada.\n")
    assert app == (
        0,
        f"Stored tide: installation {INSTALLATION} of app {APP}, owned by Platform, serves all users.\n",
    )
    assert all(word in listed[1] for word in ("name", "valid", "the user ada", "Platform", terminal.sim.url))
    assert f"{first}: valid, {first}\n  scopes: read:org, read:user, repo\n  core: 4,999 of 5,000 left" in tested[1]
    assert {one["name"] for one in only(as_json)["credentials"]} == {first, second, "tide"}
    assert removed == (0, f"Removed {first}: token of {first}, served all users.\n")
    assert again == (1, f"tidegate: there is no credential '{first}'")


async def test_errors_name_the_remedy_and_hide_the_secret(terminal: Terminal):
    token = terminal.sim.token_of(terminal.operators[0])
    results = await terminal.types(
        a("add ghp_0123456789abcdef"),
        a("add --from-env NOT_THERE"),
        a("add --from-file /not/there"),
        a("add --app-id 7"),
        a("add", "ghp_refused0123456789"),
        a("add"),
        a("add --no-check", token),
        a("add --no-check --owner Ada mine", token),
        a("test mine --json"),
    )

    wanted = [
        "looks like a token. Other users can read command lines",
        "'NOT_THERE': is not set or empty",
        "'/not/there': No such file or directory",
        "an app needs both --app-id and --installation-id",
        "the upstream refused it: 401: Bad credentials",
        "must not be empty",
        "is required with --no-check: --owner NAME",
    ]
    for (code, said), words in zip(results, wanted, strict=False):
        assert code == 1
        assert words in said
        assert "0123456789" not in said
    assert "It was not verified. Test it before you rely on it: tidegate credentials test mine" in results[7][1]
    assert only(results[8])["checks"][0]["account"] == terminal.operators[0]


@pytest.mark.full
async def test_a_credential_that_cannot_be_tested_does_not_delay_the_others(terminal: Terminal):
    *_, (code, said), (later, reasons) = await terminal.types(
        a("add good", terminal.sim.token_of(terminal.operators[0])),
        a("add bad --no-check --owner Ada", "ghp_refused"),
        a("test --json"),
        a("test", TIDEGATE_CREDENTIALS_KEY=EncryptionKey.new().text),
    )

    assert code == 1
    checks = json.loads(said[said.index('{"checks"') :])["checks"]
    assert [(check["name"], check["is_valid"]) for check in checks] == [("good", True), ("bad", False)]
    assert later == 1
    assert reasons.count("not tested: the secret of the credential") == 2
    assert "TIDEGATE_CREDENTIALS_KEY holds" in reasons


async def test_a_key_file_readable_by_others_is_refused_with_the_remedy(terminal: Terminal):
    key = terminal.folder / "data" / "credentials.key"
    key.parent.mkdir(mode=0o700)
    key.write_text(EncryptionKey.new().text)
    key.chmod(0o640)

    ((code, said),) = await terminal.types(a("add", terminal.sim.token_of(terminal.operators[0])))

    assert code == 1
    assert f"chmod 600 {key}" in said


@pytest.mark.full
async def test_a_typed_token_is_not_echoed(terminal: Terminal):
    token, program = terminal.sim.token_of(terminal.operators[0]), str(Path(sys.executable).with_name("tidegate"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ON_A_SCREEN, program, "credentials", "add"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=terminal.folder,
        env=terminal.environment,
    )
    assert process.stdin
    assert process.stdout
    seen = await process.stdout.readuntil(b"Token")
    process.stdin.write(token.encode() + b"\n")
    seen += await process.stdout.readuntil(b"serves all users")

    assert await process.wait() == 0
    assert token.encode() not in seen
