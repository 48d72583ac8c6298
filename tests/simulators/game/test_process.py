"""The simulator in a process of its own."""

import asyncio
import gzip
import json
import signal

import aiohttp
import psutil
import pytest
from typer.testing import CliRunner

from tests.simulators.game.running import COMMAND, SERVING
from tests.simulators.running import running
from tidegate_simulators.command_line import app
from tidegate_simulators.game import World, WorldShape
from tidegate_simulators.game.documents import Documents, extract_kept


async def test_it_runs_as_a_command_and_prints_its_report_when_stopped():
    async with running(*COMMAND, "--seed", "3", "--per-second", "1", "--missing", "0", "--tempi", "1=never") as (
        process,
        greeting,
    ):
        assert greeting["subjects"] == 18_000_000
        headers = {"X-Api-Key": greeting["api_key"], "Accept-Encoding": "gzip"}
        async with aiohttp.ClientSession(headers=headers, auto_decompress=False) as session:
            url = f"{greeting['url']}/v1/characters/17999999"
            async with session.get(url) as answer:
                body = gzip.decompress(await answer.read())
            async with session.get(url) as answer:
                assert answer.status == 429
            async with session.get(greeting["report"]) as answer:
                assert (await answer.json())["broken"] == 1

        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    report = json.loads(out)
    assert (report["calls"], report["broken"], report["most_in_a_second"]) == (2, 1, 2)
    world = World(WorldShape(seed=3))
    assert extract_kept(body) == Documents(world).kept(world.at_version(17_999_999, 0)), "who knows the seed knows all"


def test_invalid_command_line_options_are_refused():
    for arguments in (["--faults", "502=7"], ["--subjects", "0"], ["--tempi", "1"], ["--port", "-1"], ["--keys", "0"]):
        ended = CliRunner().invoke(app, ["game", *arguments])
        assert (ended.exit_code, len(ended.stderr.splitlines())) == (1, 1), arguments


@pytest.mark.full
@pytest.mark.parametrize(("packing", "most_us"), [("identity", 500), ("gzip", 400)])
async def test_a_core_answers_thousands_of_calls_of_300_kb_a_second(packing: str, most_us: int):
    """Counted in computing time, since the machine may have other work."""
    async with running(SERVING, "300000", "75") as (process, greeting):
        host, port = greeting["url"].removeprefix("http://").split(":")

        async def call(first: int) -> None:
            reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
            for subject in range(first, first + 100):
                writer.write(
                    f"GET /v1/characters/{subject} HTTP/1.1\r\nHost: game\r\nAccept-Encoding: {packing}\r\n"
                    f"X-Api-Key: {greeting['api_key']}\r\n\r\n".encode()
                )
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            writer.close()

        await call(1)
        server = psutil.Process(process.pid)
        before = sum(server.cpu_times()[:2])
        await asyncio.gather(*(call(1_000 * task) for task in range(1, 9)))
        spent_us = (sum(server.cpu_times()[:2]) - before) / 800 * 1e6

    assert spent_us < most_us
