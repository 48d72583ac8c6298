"""The tutorial from top to bottom, as a newcomer types it: only ports and waits are others."""

import json
import re
import shlex
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import aiohttp
import pytest

from tests.cli.batch import tidegate_each
from tests.cli.test_commands import environment
from tests.docs.pages import ROOT, blocks_of
from tests.http.serving import Client, read_events
from tests.http.test_guide import Shown, assert_fits, request_of
from tests.processes import WarmProcess, start_warm
from tests.systems.snapshots.deployment import until
from tests.waiting import patience

PAGE = ROOT / "docs" / "tutorial.md"
SIMULATOR, SERVICE = "http://127.0.0.1:8700", "http://127.0.0.1:8321"
WINDOW = ("--window-s 60", "--window-s 4")
HURRIED = {
    # The dead are found out sooner than by default.
    "TIDEGATE_MEMBERSHIP__LEASE": "1s",
    "TIDEGATE_MEMBERSHIP__RENEW_EVERY": "600ms",
}


def steps() -> list[Shown]:
    """The commands of the page in their order, each with what it says that one sees."""
    texts = [block.text for block in blocks_of(PAGE) if block.language == "console"]
    parts = [part for text in texts for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [Shown(shlex.split(part.splitlines()[0]), part.splitlines()[1:]) for part in parts]


def is_brief_command(shown: Shown) -> bool:
    """One of ours that ends by itself."""
    return shown.words[0] == "tidegate" and shown.words[1] not in ("simulate", "up")


def alike(line: str) -> str:
    """Without what differs from one time to the next: figures, times, folders, widths of columns."""
    return " ".join(re.sub(r"\d[\d,.:-]*", "N", re.sub(r"(?<=//)/\S+", "PATH", line)).split())


def assert_told(shown: Shown, told: Sequence[str]) -> None:
    """What the page shows stands in the output, in this order; `…` stands for what it leaves out."""
    real = iter([alike(line) for line in told])
    for line in shown.output:
        assert line == "…" or alike(line) in real, f"{shlex.join(shown.words)}: {line!r} is not in {list(told)}"


@dataclass
class Newcomer:
    """Somebody with three terminals."""

    folder: Path
    session: aiohttp.ClientSession
    variables: dict[str, str] = field(default_factory=lambda: dict(HURRIED))
    urls: dict[str, str] = field(default_factory=dict[str, str])
    """By the address on the page."""
    staying: dict[str, WarmProcess] = field(default_factory=dict[str, WarmProcess])

    async def do(self, shown: Shown) -> None:
        match shown.words:
            case [".", ".venv/bin/activate"]:
                pass
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                self.variables[name] = self.urls.get(value, value)
            case ["tidegate", "simulate", *_]:
                await self.stay(shown, SIMULATOR, ends_with="Ctrl-C stops it")
            case ["tidegate", "up"]:
                await self.stay(shown, SERVICE, ends_with="  stop  ")
                assert b"<title>Tidegate</title>" in (await self.client.get("/")).body, "the dashboard"
            case ["kill", "-9", _]:
                self.staying[SERVICE].kill()
                await self.staying.pop(SERVICE).communicate()
            case ["curl", *_]:
                await self.ask(shown)
            case words:
                pytest.fail(f"nobody knows how to do this: {shlex.join(words)}")

    @property
    def client(self) -> Client:
        return Client(self.session, self.urls[SERVICE])

    async def stay(self, shown: Shown, address: str, *, ends_with: str) -> None:
        """Start what stays, on a free port, and read what it says of itself."""
        words = shlex.split(shlex.join(shown.words[1:]).replace(*WINDOW))
        words = words[: words.index("--port")] + words[words.index("--port") + 2 :] if "--port" in words else words
        process = await start_warm(
            *(str(Path(sys.executable).with_name("tidegate")), *words, "--port", "0"),
            stdout=PIPE,
            cwd=self.folder,
            env=environment(self.folder, TIDEGATE_LOG__LEVEL="error", **self.variables),
        )
        self.staying[address] = process
        assert process.stdout is not None
        told = list[str]()
        while not told or ends_with not in told[-1]:
            async with patience():
                line = await process.stdout.readline()
            assert line, f"it ended: {told}"
            told.append(line.decode().rstrip("\n"))
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(told))
        assert found
        self.urls[address] = found[0]
        assert_told(shown, told)

    async def command(self, shown: Sequence[Shown]) -> None:
        """One after the other, in one process: most of the time of each would be spent on its start."""
        if any(each.words[1:3] in (["runs", "show"], ["schedules", "trigger"]) for each in shown):
            await until(self.nothing_runs)
        lines = [shlex.join(each.words[1:]) for each in shown]
        for each, ended in zip(shown, await tidegate_each(self.folder, *lines, **self.variables), strict=True):
            assert ended.code == 0, (each.words, ended)
            assert_told(each, (ended.err + ended.out).splitlines())

    async def nothing_runs(self) -> bool:
        """The reader looks until all is over; before there is a service, it is."""
        if SERVICE not in self.urls:
            return True
        active = await self.client.get("/v1/runs?state=planning&state=running&state=finalizing")
        return not active.json["runs"]

    async def ask(self, shown: Shown) -> None:
        method, path, body, headers = request_of(shown.words)
        async with self.session.request(method, self.urls[SERVICE] + path, data=body, headers=headers) as answer:
            assert answer.status in (200, 201, 207), (path, await answer.text())
            if path.endswith("/events"):
                kinds = [event.kind async for event in read_events(answer)]
                assert {f"event: {kind}" for kind in kinds} <= set(shown.output)
                assert kinds[-1] == "ended"
            else:
                assert_fits(json.loads(shown.output[0]), json.loads(await answer.read()))
        if '"waits": [{' in shown.output[0]:
            [wait] = json.loads(shown.output[0])["waits"]
            await until(lambda: self.waits(path, wait["reason"]))

    async def waits(self, path: str, reason: str) -> bool:
        return any(wait["reason"] == reason for wait in (await self.client.get(path)).json["waits"] or [])


@asynccontextmanager
async def newcomer(folder: Path) -> AsyncGenerator[Newcomer]:
    async with aiohttp.ClientSession() as session:
        came = Newcomer(folder, session)
        try:
            yield came
        finally:
            for process in came.staying.values():
                if process.returncode is None:
                    process.kill()
                    await process.communicate()


async def shutdown_message(process: WarmProcess) -> str:
    process.send_signal(signal.SIGINT)
    async with patience():
        out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.full
async def test_the_tutorial_can_be_followed_from_start_to_end(tmp_path: Path):
    async with newcomer(tmp_path) as reader:
        for is_brief, some in groupby(steps(), key=is_brief_command):
            if is_brief:
                await reader.command(list(some))
            else:
                for shown in some:
                    await reader.do(shown)
        service, simulator = reader.staying[SERVICE], reader.staying[SIMULATOR]
        report = (await Client(reader.session, reader.urls[SIMULATOR]).get("/_sim/report")).json

        assert (report["violations"], report["violation_samples"]) == ({}, [])
        assert "stopped gracefully" in await shutdown_message(service)
        assert "limits broken: 0" in await shutdown_message(simulator)
        assert (tmp_path / "exported" / "manifest.json").exists()
