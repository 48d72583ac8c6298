"""`tidegate campaign`, and what the guide shows of it: commands and requests are run, and their answers compared."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.cli.batch import tidegate_each
from tests.docs.pages import ROOT
from tests.http.serving import read_events
from tests.http.test_guide import assert_fits, request_of, shown_in
from tests.servers.migrated import migrated_folder
from tests.systems.campaigns.serving import served
from tests.waiting import look_again, patience
from tidegate.connections import open_context, open_valkey
from tidegate.settings import Settings
from tidegate.systems.campaigns.service import Campaigns
from tidegate.systems.campaigns.system import OpenCampaigns, open_campaigns

GUIDE = ROOT / "docs" / "guides" / "campaigns.md"
UNCHANGING = {"answer", "number", "campaign", "user", "state", "depth", "dead", "entered", "is_installed", "points"}


@asynccontextmanager
async def working(folder: Path) -> AsyncGenerator[Campaigns]:
    """A process that works on the entries of the folder's campaigns."""
    (folder / "data").mkdir()
    settings = Settings(data_dir=await migrated_folder(folder / "data"))
    async with (
        open_context(settings) as parts,
        open_campaigns(settings, parts.database, parts.valkey) as campaigns,
    ):
        stopping = asyncio.Event()
        [manager] = OpenCampaigns(parts, campaigns).workers().values()
        running = asyncio.create_task(manager.run(stopping))
        try:
            yield campaigns
        finally:
            stopping.set()
            await running


def plain(line: str) -> str:
    """A line without its coupon, which is another one every time."""
    return re.sub(r"\b[A-Z2-9]{16}\b", "COUPON", " ".join(line.split()))


async def until_issued(campaigns: Campaigns, user: str) -> None:
    async with patience(), campaigns.watch("autumn", user) as watch:
        while not (await campaigns.result("autumn", user)).is_final:
            await watch.wait(10)


async def until_acknowledged(campaigns: Campaigns) -> None:
    """A result is known before its entry leaves the line."""
    async with patience():
        while (await campaigns.status("autumn")).depth:
            await look_again()


async def test_the_commands_and_requests_of_the_guide_have_its_results(tmp_path: Path):
    commands, requests = shown_in(GUIDE, "tidegate"), shown_in(GUIDE, "curl")
    assert len(commands) >= 8
    assert len(requests) >= 5
    is_entered = next(n for n, each in enumerate(commands) if each.words[2] == "result")
    async with working(tmp_path) as campaigns:
        for part in (commands[:is_entered], commands[is_entered:]):
            ran = await tidegate_each(tmp_path, *(shlex.join(each.words[1:]) for each in part))
            for each, ended in zip(part, ran, strict=True):
                assert ended.code == 0, ended.err
                assert [plain(line) for line in ended.out.splitlines()] == [plain(line) for line in each.output]
            await until_issued(campaigns, "ann")
        async with served(campaigns) as client:
            for each in requests:
                method, path, body, headers = request_of(each.words)
                if path == "/v1/campaigns/autumn":
                    await until_acknowledged(campaigns)
                async with client.session.request(method, client.url + path, data=body, headers=headers) as answer:
                    assert answer.status in (200, 202), await answer.text()
                    if path.endswith("/events"):
                        told, real = _data(each.output), [event async for event in read_events(answer)][-1].data
                    else:
                        told, real = msgspec.json.decode(each.output[0]), await answer.json()
                assert_fits(told, real)
                assert {name: real[name] for name in told if name in UNCHANGING} == {
                    name: value for name, value in told.items() if name in UNCHANGING
                }


def _data(lines: list[str]) -> dict[str, object]:
    [line] = [each for each in lines if each.startswith("data: ")]
    return msgspec.json.decode(line.removeprefix("data: "))


OTHERS = [
    "campaign list",
    "campaign create gift --kind POINTS --points 5 --total 10 --json",
    "campaign start gift --ends-at 2999-01-01T00:00:00Z --json",
    "campaign enter gift ann --key k1 --data 7 --json",
    "campaign enter gift ann --key k1 --json",
    "campaign result gift ann",
    "campaign alter gift --stock 1",
    "campaign enter gift bob",
    "campaign status gift",
    "campaign entries gift",
    "campaign dead gift --json",
    "campaign replay gift --all",
    "campaign stop gift --json",
    "campaign status gift --json",
    "campaign replay gift",
    "campaign discard gift 1-1",
    "campaign alter gift",
    "campaign enter gift ann --data {",
    "campaign start nothing",
    "campaign create gift --total 1",
]


@pytest.mark.full
async def test_the_other_commands_of_the_guide_work(tmp_path: Path):
    """In one process, and without anybody who works on entries."""
    (tmp_path / "data").mkdir()
    settings = Settings(data_dir=await migrated_folder(tmp_path / "data"))
    async with open_valkey(settings):  # one server for all of them
        ran = await tidegate_each(
            tmp_path,
            *OTHERS,
        )
    listed, made, started, entered, again, result, _, full, status, entries, dead, replayed, stopped, told, *wrong = ran

    assert "There are no campaigns" in listed.out
    assert (json.loads(made.out)["state"], json.loads(started.out)["state"]) == ("created", "open")
    assert json.loads(entered.out) == json.loads(again.out) == {"answer": "ACCEPTED", "number": 1}
    assert result.out == "ann: pending, number 1\n"
    assert (full.code, full.out) == (3, "bob: SOLD_OUT\n")
    assert "in line  1, of which 0 are being decided" in status.out
    assert "serving  none yet" in status.out
    assert (entries.out, dead.out, replayed.out) == ("no entries are decided\n", "", "0 letters replayed\n")
    assert (json.loads(stopped.out)["state"], json.loads(told.out)["depth"]) == ("stopped", 1)
    assert all(each.code == 1 and each.err for each in wrong)
    assert [each.err.split()[0] for each in wrong] == ["letters", "there", "options", "--data", "there", "there"]
