"""`tidegate crawl`, as people meet it; and what its guide shows: commands are run, and what they print is compared."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import update

from tests.cli.batch import tidegate_each
from tests.cli.terminal import CTRL_C, in_terminal
from tests.cli.test_runs import installation
from tests.docs.pages import ROOT
from tests.http.test_guide import shown_in
from tests.waiting import patience
from tidegate.connections import open_valkey
from tidegate.settings import Settings
from tidegate.storage.sql import Database, Transaction
from tidegate.systems.crawl.raws import RawState
from tidegate.systems.crawl.tables import crawl_raws
from tidegate_simulators.marketplace import (
    MarketplaceConfig,
    MarketplaceSimulator,
    RobotsGroup,
    RobotsSettings,
    WorldShape,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

GUIDE = ROOT / "docs" / "guides" / "crawl.md"
SHOWN_AT = "127.0.0.1:9001"
AT_ONCE = {"TIDEGATE_CRAWL__DELAY": "0"}
SECRET = "sid=do-not-tell-anybody"
NOWHERE = "http://127.0.0.1:1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sim() -> AsyncGenerator[MarketplaceSimulator]:
    """The marketplace of the guide."""
    world = WorldShape(products=4, keywords=2)
    async with MarketplaceSimulator(MarketplaceConfig(world=world)) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forbidding() -> AsyncGenerator[str]:
    """The address of a host whose robots.txt forbids everything."""
    nothing = RobotsSettings(groups=(RobotsGroup(allow=(), disallow=("/",)),))
    config = MarketplaceConfig(world=WorldShape(products=1, keywords=1))
    async with MarketplaceSimulator(config) as started:
        started.set_robots(nothing)
        yield started.url


@asynccontextmanager
async def at_home(folder: Path) -> AsyncGenerator[Database]:
    """The database of an installation whose embedded server runs on between two commands, which saves its starts."""
    async with installation(folder) as database, open_valkey(Settings(data_dir=folder / "data")):
        yield database


def plain(line: str) -> str:
    """A line without what is another time each time."""
    line = re.sub(r"\b\d\d:\d\d:\d\d\b|\d{4}-\d\d-\d\d \d\d:\d\d CES?T", "TIME", line)
    return re.sub(r"in \d+ s\b", "in N s", " ".join(line.split()))


def bury(tx: Transaction, number: int) -> None:
    """As if an answer could not have been applied."""
    dead = {"state": RawState.FAILED, "attempts": 5, "reason": "ValueError: no such price"}
    tx.execute(update(crawl_raws).where(crawl_raws.c.id == number).values(dead))


@pytest.mark.full
async def test_the_commands_of_the_guide_print_what_it_says(tmp_path: Path, sim: MarketplaceSimulator):
    host = sim.url.removeprefix("http://")
    shown = [each for each in shown_in(GUIDE, "tidegate") if each.words[1] == "crawl"]
    assert len(shown) >= 15, "the search finds too little"
    asked = [shlex.join(each.words[1:]).replace(SHOWN_AT, host) for each in shown]

    async with at_home(tmp_path) as database:
        ran = await tidegate_each(tmp_path, *asked, **AT_ONCE)
        for number in (3, 4):
            await database.transaction(bury, number)
        dead, others, programs, replayed, again, _, resumed, runs, shown_run, body, forgotten = await tidegate_each(
            tmp_path,
            "crawl dead --run 1",
            "crawl dead --run 2",
            "crawl dead --limit 1 --json",
            "crawl replay 3 --json",
            "crawl replay 3",
            "crawl schedules trigger 1 --key another",
            f"crawl run daily --url {sim.url} -k lantern",
            "runs list --limit 1",
            "runs show 1",
            "crawl raw 4",
            "crawl forget daily --json",
            **AT_ONCE,
        )

    for each, ended in zip(shown, ran, strict=True):
        assert ended.code == 0, (each.words, ended)
        if each.output:
            told = [plain(line.replace(SHOWN_AT, host)) for line in each.output]
            assert [plain(line) for line in ended.out.splitlines()] == told, each.words
    assert sim.report().broken == 0
    assert "ValueError: no such price" in dead.out
    assert others.out == "no dead letters\n"
    assert json.loads(programs.out)["id"] == 3
    assert json.loads(replayed.out) == {"replayed": 1, "refused": []}
    assert (again.code, again.err) == (1, "there is no dead letter '3'")
    assert "resuming run 4, which started with another keywords" in resumed.err
    assert "dead" not in resumed.out, "the letter that is left is of another run"
    assert (resumed.code, "run 4 completed\ntasks      14 of 14" in resumed.out) == (0, True), resumed
    assert f"daily ({host})" in runs.out
    assert f"run        1 of daily ({host}): completed" in shown_run.out
    assert json.loads(body.out).keys() & {"id", "product_id"}, "the answer as it came"
    assert json.loads(forgotten.out) == {"forgotten": 4}


@pytest.mark.full
async def test_an_impossible_crawl_is_refused_with_advice(tmp_path: Path, forbidding: str):
    run = f"crawl run x --url {forbidding}"
    wrong = {
        f"{run} -k a --site nosuch": (1, "there is no site 'nosuch'; there is marketplace"),
        run: (2, "give at least one --keyword"),
        f"{run} -k ''": (1, "keyword is ''"),
        f"{run}/page -k a": (1, "must name a host, without a path"),
        "crawl run x --url shop.example -k a": (1, "must begin with http:// or https://"),
        f"crawl run 'x|y' --url {forbidding} -k a": (1, "name is 'x|y': must be 1 to 100 of"),
        f"crawl schedules add x --url {forbidding} -k a --cron '61 3 * * *'": (1, "bad minute"),
        "crawl tasks 99": (1, "there is no run 99"),
        "crawl tasks 1 --state asleep": (1, "must be one of"),
        "crawl product shop.example": (1, "must be host/product"),
        "crawl replay": (1, "give numbers of dead letters or --all, not both"),
        "crawl hosts --forget nosuch.example": (1, "there is no host 'nosuch.example'"),
        "crawl identities remove nosuch": (1, "there is no identity 'nosuch'"),
        "crawl identities add x": (2, "give at least one --header"),
        f"crawl identities add x -H 'Cookie: {SECRET}'": (1, "a User-Agent is missing"),
    }
    async with at_home(tmp_path):
        told = await tidegate_each(
            tmp_path,
            *wrong,
            f"{run} -k a",
            f"crawl identities add me -H 'User-Agent: Me/1' -H 'Cookie: {SECRET}'",
            "crawl identities disable me",
            f"{run} -k a",
            "runs list --json",
            **AT_ONCE,
        )

    for (command, (code, words)), ended in zip(wrong.items(), told, strict=False):
        assert ended.code == code, (command, ended)
        assert words in ended.out + ended.err.replace("\n", " "), command
    forbidden, added, disabled, nobody, runs = told[len(wrong) :]
    assert forbidden.code == 1
    assert "withheld   1 x robots.txt of" in forbidden.out
    assert "Nothing was read: robots.txt forbids every search of this crawl. Ask the owner" in forbidden.out
    assert (added.code, disabled.code, nobody.code) == (0, 0, 1)
    assert "all identities are disabled. Enable or add one: tidegate crawl identities enable NAME" in nobody.err
    assert len(json.loads(runs.out)["runs"]) == 1, "nothing was begun that nobody can do"
    assert not any(SECRET in ended.out + ended.err for ended in told)


@pytest.mark.full
async def test_an_unresponsive_host_is_reported_and_ctrl_c_keeps_the_run(tmp_path: Path):
    run = ("crawl", "run", "lost", "--url", NOWHERE, "-k", "a")
    async with in_terminal(tmp_path, *run, columns=300) as terminal:
        await terminal.until(r"robots.txt cannot be read: no connection.* Check --url\. The next attempt is at")
        terminal.press(CTRL_C)
        code = await terminal.ended()

    assert code == 130
    assert "crawl.robots_unreadable" not in terminal.text, "it was told in other words"
    assert "waits      127.0.0.1:1: robots.txt cannot be read" in terminal.text
    assert "Interrupted; the same command continues. tidegate runs cancel 1 cancels the run." in terminal.text
    [listed] = await tidegate_each(tmp_path, "runs list")
    assert "or the same command, tidegate crawl run lost …" in listed.out


async def test_ctrl_c_twice_does_not_wait_for_running_calls(tmp_path: Path):
    called, over = asyncio.Event(), asyncio.Event()

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with in_terminal(tmp_path, "crawl", "run", "slow", "--url", url, "-k", "a", columns=300) as terminal:
            async with patience():
                await called.wait()
            terminal.press(CTRL_C)
            await terminal.until("Press Ctrl-C again to stop at once")
            terminal.press(CTRL_C)
            async with patience():  # in good order it would take twice as long
                code = await terminal.ended()
        over.set()

    assert code == 130
    assert "Stopping at once." in terminal.text
    assert "the same command continues" in terminal.text
