"""`tidegate ranking`, and what the guide shows of it: its commands and requests are run, and their answers compared."""

import asyncio
import json
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from tests.cli.batch import tidegate_each
from tests.docs.pages import ROOT
from tests.http.serving import Client
from tests.http.test_guide import assert_fits, request_of, shown_in
from tests.servers.migrated import migrated_folder
from tidegate.connections import open_database, open_valkey
from tidegate.http import Binding
from tidegate.http.application import build_application
from tidegate.http.server import HttpService
from tidegate.http.settings import HttpSettings
from tidegate.settings import Settings
from tidegate.storage.sql.outbox import Event
from tidegate.systems.ranking.api import RankingRoutes
from tidegate.systems.ranking.service import Ranking
from tidegate.systems.ranking.settings import RankingSettings
from tidegate.systems.ranking.system import NO_BOARDS, open_ranking

GUIDE = ROOT / "docs" / "guides" / "ranking.md"
VARIABLE = "TIDEGATE_RANKING__BOARDS"


def boards() -> str:
    """What the guide tells to set."""
    [export] = shown_in(GUIDE, "export")
    name, _, value = export.words[1].partition("=")
    assert name == VARIABLE
    return value


async def prepared(folder: Path) -> Path:
    """The data folder of commands that are run in `folder`, with all tables."""
    (folder / "data").mkdir()
    return await migrated_folder(folder / "data")


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Ranking]:
    """The ranking of the guide, with its two concerts."""
    settings = Settings(
        data_dir=await prepared(folder),
        ranking=RankingSettings.model_validate({"boards": json.loads(boards())}),
    )
    async with open_valkey(settings) as valkey, open_database(settings) as database:
        ranking = open_ranking(settings, database, valkey)
        assert ranking is not None
        await ranking.rebuild("concerts")
        [handler] = ranking.handlers
        for payment, concert in ((1, "jazz"), (2, "rock"), (2, "rock"), (3, "rock")):
            paid_at = database.clock.now().isoformat()
            payload = {"payment": payment, "concert": concert, "paid_at": paid_at}
            await handler.handle(Event("PaymentCompleted", concert, payload))
        yield ranking


def plain(line: str) -> str:
    """A line without the name of its window, which is another one every month."""
    return re.sub(r"\d{4}-\d\d", "MONTH", " ".join(line.split()))


async def test_the_commands_of_the_guide_print_its_output(tmp_path: Path):
    async with opened(tmp_path):
        commands = shown_in(GUIDE, "tidegate")
        asked = [shlex.join(each.words[1:]) for each in commands]
        more = ["ranking top concerts --period monthly --json", "ranking top concerts --date 2020-01-01 --json"]
        ran = await tidegate_each(tmp_path, *asked, *more, "ranking top other", **{VARIABLE: boards()})

    assert len(commands) >= 2
    for each, ended in zip(commands, ran, strict=False):
        assert ended.code == 0, ended.err
        assert [plain(line) for line in ended.out.splitlines()] == [plain(line) for line in each.output]
    top, long_ago, other = ran[len(asked) :]
    assert [member["member"] for member in json.loads(top.out)["members"]] == ["rock", "jazz"]
    assert json.loads(long_ago.out)["members"] == []
    assert (other.code, other.err) == (1, "there is no board 'other'; there is concerts")


async def test_the_requests_of_the_guide_have_its_responses(tmp_path: Path):
    http, stopping = HttpSettings(port=0), asyncio.Event()
    requests = shown_in(GUIDE, "curl")
    assert len(requests) >= 2
    async with opened(tmp_path) as ranking, aiohttp.ClientSession() as session:
        with Binding(http) as binding:
            application = build_application(RankingRoutes(ranking).routes(), http)
            service = HttpService(application, binding, on_stop=lambda: None)
            serving = asyncio.create_task(service.run(stopping))
            for each in requests:
                method, path, _, _ = request_of(each.words)
                answer = await Client(session, binding.url).ask(method, path)
                told = msgspec.json.decode(each.output[0])
                assert_fits(told, answer.json)
                unchanging = {"board", "period", "total", "members", "member", "rank", "score", "around"}
                assert {name: answer.json[name] for name in told if name in unchanging} == {
                    name: value for name, value in told.items() if name in unchanging
                }
            stopping.set()
            await serving


async def test_an_installation_without_boards_explains_how_to_add_them(tmp_path: Path):
    await prepared(tmp_path)
    for ended in await tidegate_each(tmp_path, "ranking top concerts", "ranking rebuild"):
        assert (ended.code, ended.err) == (1, NO_BOARDS)


async def test_before_the_first_rebuild_the_ranking_is_unknown(tmp_path: Path):
    await prepared(tmp_path)
    fresh, rebuilt, then = await tidegate_each(
        tmp_path,
        *("ranking top concerts", "ranking rebuild concerts --json", "ranking top concerts"),
        **{VARIABLE: boards()},
    )

    assert fresh.code == 1
    assert "tidegate ranking rebuild" in fresh.out
    assert json.loads(rebuilt.out) == {"boards": [{"board": "concerts", "windows": 0, "members": 0}]}
    assert (then.code, then.out.strip().endswith("0 members")) == (0, True)
