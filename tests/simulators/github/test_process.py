"""The simulator in a process of its own, and its door behind the stage."""

import asyncio
import json
import signal
from pathlib import Path

import aiohttp
import psutil
from typer.testing import CliRunner

from tests.simulators.github.client import simulated
from tests.simulators.running import running
from tidegate_simulators.command_line import app

COMMAND = ("-c", "from tidegate_simulators.command_line import main; main()", "github", "--json")


async def test_it_runs_as_a_command_and_prints_its_report_when_stopped():
    async with running(*COMMAND, "--users", "2", "--quota", "7") as (process, greeting):
        login = greeting["logins"][0]
        headers = {"Authorization": f"Bearer {greeting['tokens'][login]}"}
        async with aiohttp.ClientSession(greeting["url"], headers=headers) as session:
            async with session.get(f"/users/{login}") as answer:
                assert answer.status == 200
                assert answer.headers["x-ratelimit-limit"] == "7"
            async with session.get("/_sim/report") as answer:
                assert (await answer.json())["needed"]["by_login"][login] > 3

        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        report = json.loads(out)
        assert (report["calls"], report["violations"]) == (1, {})


def test_invalid_command_line_options_are_refused():
    for arguments in (["--faults", "502=7"], ["--users", "0"], ["--epoch", "tomorrow"], ["--port", "-1"]):
        ended = CliRunner().invoke(app, ["github", *arguments])
        assert (ended.exit_code, len(ended.stderr.splitlines())) == (1, 1), arguments


async def test_a_core_answers_more_than_two_thousand_calls_a_second():
    """Counted in computing time, since the machine may have other work."""
    async with running(str(Path(__file__).with_name("serving_process.py"))) as (process, greeting):
        login = greeting["logins"][0]
        host, port = greeting["url"].removeprefix("http://").split(":")
        request = (
            f"GET /users/{login} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tests\r\n"
            f"Authorization: Bearer {greeting['tokens'][login]}\r\n\r\n"
        ).encode()

        async def call(times: int) -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            for _ in range(times):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
            writer.close()

        watched = psutil.Process(process.pid)
        await call(50)
        before = sum(watched.cpu_times()[:2])
        await asyncio.gather(*(call(200) for _ in range(5)))
        spent = sum(watched.cpu_times()[:2]) - before

        assert 1_000 / spent > 2_000


async def test_the_control_api_reads_and_changes_the_world():
    async with simulated(users=2) as client:
        world = (await client.get("/_sim/world")).json
        assert world["logins"] == client.sim.world.logins()
        tokens = (await client.get(f"/_sim/tokens?login={client.login}&count=2")).json[client.login]
        assert tokens == [client.sim.token_of(client.login, i) for i in range(2)]
        truth = (await client.get(f"/_sim/truth/{client.login}")).json
        assert truth["profile"]["login"] == client.login
        assert len(truth["repositories"][0]["issues"]) == 12
        needed = (await client.get(f"/_sim/perfect?logins={client.login}&include=profile,issues")).json
        assert needed["by_kind"] == {"profile": 1, "issues": 1}
        assert client.sim.report().calls == 0, "nothing of this is counted"


async def test_faults_and_tokens_are_managed_through_the_control_api():
    async with simulated() as client:
        url = f"/users/{client.login}"
        await client.ask("POST", "/_sim/faults", json={"kind": "500", "times": 1})
        assert [(await client.get(url)).status for _ in range(2)] == [500, 200]
        await client.ask("POST", "/_sim/faults", json={"rules": "500=1"})
        assert (await client.get(url)).status == 500
        await client.ask("DELETE", "/_sim/faults")
        assert (await client.get(url)).status == 200

        await client.ask("POST", "/_sim/clear")
        assert client.sim.report().calls == 0
        assert (await client.ask("POST", "/_sim/revoke", json={"token": client.token})).status == 200
        assert (await client.get(url)).status == 401


async def test_invalid_control_requests_are_refused_with_a_reason():
    async with simulated() as client:
        for method, path, body, status in (
            ("GET", "/_sim/nonsense", None, 404),
            ("GET", "/_sim/truth/nobody", None, 404),
            ("GET", "/_sim/tokens?count=0", None, 400),
            ("GET", "/_sim/report?include=stars", None, 400),
            ("POST", "/_sim/faults", {}, 400),
            ("POST", "/_sim/faults", {"kind": "banana"}, 400),
            ("POST", "/_sim/revoke", {"token": "x"}, 404),
            ("POST", "/_sim/apps", {"id": 1, "public_key": "x", "installations": {"1": [1, 1]}}, 400),
        ):
            got = await client.ask(method, path, json=body)
            assert (got.status, bool(got.json["message"])) == (status, True), path
