"""The marketplace in a process of its own."""

import asyncio
import json
import signal

import aiohttp
import psutil
import pytest
from typer.testing import CliRunner

from tests.simulators.marketplace.running import COMMAND
from tests.simulators.running import running
from tidegate_simulators.command_line import app
from tidegate_simulators.marketplace import Documents, World, WorldShape

_CALLS = 100


@pytest.mark.full
async def test_it_runs_as_a_command_and_prints_its_report_when_stopped():
    arguments = ("--seed", "3", "--hosts", "2", "--products", "50", "--delay-s", "60", "--crawl-delay-s", "5")
    async with running(*COMMAND, *arguments) as (process, greeting):
        assert (len(greeting["urls"]), greeting["products"], len(greeting["identities"])) == (2, 50, 20)
        world = World(WorldShape(seed=3, hosts=2, products=50))
        product = next(one for one in world.products() if one.host == 1)
        async with aiohttp.ClientSession(headers=greeting["identities"][0]["headers"]) as session:
            async with session.get(greeting["urls"][1] + "/robots.txt") as answer:
                assert "Crawl-delay: 5" in await answer.text()
            async with session.get(f"{greeting['urls'][1]}/api/products/{product.id}") as answer:
                assert await answer.json() == Documents(world).detail(product), "who knows the seed knows all"
            async with session.get(greeting["report"]) as answer:
                assert (await answer.json())["violations"] == {"too_soon": 1}

        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    report = json.loads(out)
    assert (report["calls"], report["broken"], [host["calls"] for host in report["hosts"]]) == (2, 1, [0, 2])


def test_invalid_command_line_options_are_refused():
    for arguments in (
        ["--faults", "502=7"],
        ["--products", "0"],
        ["--hosts", "0"],
        ["--port", "-1"],
        ["--delay-s", "-1"],
    ):
        ended = CliRunner().invoke(app, ["marketplace", *arguments])
        assert (ended.exit_code, len(ended.stderr.splitlines())) == (1, 1), arguments


@pytest.mark.full
async def test_a_core_answers_thousands_of_pages_a_second():
    """Counted in computing time, since the machine may have other work. Every page is a new one, compressed."""
    async with running(*COMMAND, "--per-identity", "0") as (process, greeting):
        host, port = greeting["urls"][0].removeprefix("http://").split(":")
        headers = "".join(f"{name}: {value}\r\n" for name, value in greeting["identities"][0]["headers"].items())
        products = list(World(WorldShape()).products())

        async def call(targets: list[str]) -> None:
            reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
            for target in targets:
                writer.write(f"GET {target} HTTP/1.1\r\nHost: m\r\nAccept-Encoding: gzip\r\n{headers}\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 ")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.close()

        pages = [f"/search?q=lantern&page={page}" for page in range(1, 21)]
        documents = [f"/api/products/{product.id}" for product in products[: 8 * _CALLS]]
        server = psutil.Process(process.pid)
        await call(documents[:50])
        before = sum(server.cpu_times()[:2])
        await asyncio.gather(call(pages), *(call(documents[task::8]) for task in range(8)))
        spent_us = (sum(server.cpu_times()[:2]) - before) / (len(pages) + len(documents)) * 1e6

    assert spent_us < 333
