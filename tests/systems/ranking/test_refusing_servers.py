"""A ranking while Valkey or the database refuses writes."""

from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.processes.at_work import at_work
from tests.servers.migrated import migrated_folder, migrated_on
from tests.servers.refusing import (
    lease_ended_ms_ago,
    lines_of_outage,
    noise,
    refusing,
    set_read_only,
    short_pauses,
)
from tests.servers.valkey import ValkeyServer
from tests.systems.ranking.test_process import SHOP, pay
from tests.waiting import until
from tidegate.connections import build_context, open_context
from tidegate.primitives.membership import MembershipKeys, MembershipSettings
from tidegate.process import build_process
from tidegate.runtime.supervisor import Supervisor
from tidegate.settings import Settings
from tidegate.storage.sql import Database
from tidegate.storage.valkey import Valkey
from tidegate.system import Context
from tidegate.systems.ranking.model import RankingPeriod
from tidegate.systems.ranking.service import Ranking
from tidegate.systems.ranking.settings import RankingSettings
from tidegate.systems.ranking.system import open_ranking

LEASE = timedelta(seconds=1)
BRIEF = MembershipSettings(lease=LEASE, renew_every=LEASE / 4)
BOARDS = RankingSettings(boards=(SHOP,))

pytestmark = pytest.mark.usefixtures("logged")


def opened(parts: Context) -> tuple[Ranking, Supervisor]:
    """The ranking of an installation, and a process that keeps it."""
    ranking = open_ranking(parts.settings, parts.database, parts.valkey)
    assert ranking is not None
    return ranking, build_process(parts, handlers=ranking.handlers, leader_services={"ranking": ranking.leader_service})


async def shown(ranking: Ranking) -> dict[str, int]:
    top = await ranking.top("concerts", RankingPeriod.MONTHLY)
    return {entry.member: entry.score for entry in top.entries}


async def until_shown(ranking: Ranking, wanted: dict[str, int]) -> None:
    async def is_shown() -> bool:
        return await shown(ranking) == wanted

    await until(is_shown)


@pytest.mark.full  # tests/runtime/test_refusing_servers.py outlasts such a server too
async def test_payments_are_counted_once_when_valkey_refused_for_longer_than_the_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    short_pauses(monkeypatch)
    with ValkeyServer() as server:
        folder = await migrated_folder(tmp_path)
        settings = Settings(data_dir=folder, valkey_url=server.url, membership=BRIEF, ranking=BOARDS)
        async with open_context(settings) as parts:
            ranking, process = opened(parts)
            lease = str(MembershipKeys(parts.unit).membership)
            async with at_work(process):
                await parts.database.transaction(pay, "a", range(10))
                await until_shown(ranking, {"a": 10})
                with capture_logs() as lines:
                    with refusing(server):
                        await parts.database.transaction(pay, "a", range(10, 15))
                        await parts.database.transaction(pay, "b", range(15, 35))
                        await until(lambda: lease_ended_ms_ago(server, lease) > 2 * LEASE.total_seconds() * 1000)
                    await until_shown(ranking, {"a": 15, "b": 20})
                    await until(lambda: "server.back" in lines_of_outage(lines))

    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []


async def test_payments_are_counted_once_when_the_database_refused_writes(
    embedded: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waits = short_pauses(monkeypatch)
    async with migrated_on("postgres") as (server, name), await Database.open(server.url(name)) as database:
        settings = Settings(data_dir=tmp_path, ranking=BOARDS)
        ranking, process = opened(build_context(settings, embedded, database))
        await database.transaction(pay, "a", range(10))
        await set_read_only(server, name, "on")
        with capture_logs() as lines:
            async with at_work(process):
                await until(lambda: waits.longest >= 10)
                assert await shown(ranking) == {}
                await set_read_only(server, name, "off")
                await until_shown(ranking, {"a": 10})
                await until(lambda: "server.back" in lines_of_outage(lines))
                await database.transaction(pay, "a", range(5, 12))
                await until_shown(ranking, {"a": 12})

    assert len(lines_of_outage(lines)) <= 3
    assert noise(lines) == []
