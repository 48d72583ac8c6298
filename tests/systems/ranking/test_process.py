"""A whole process: payments commit, the relay delivers, the ranking shows it, and heals by itself."""

import asyncio
from datetime import timedelta
from pathlib import Path

from tests.servers.migrated import migrated_folder
from tests.servers.ports import free_ports
from tests.servers.valkey import ValkeyServer
from tests.systems.snapshots.deployment import until
from tidegate.connections import build_context, open_database
from tidegate.primitives.membership import MembershipSettings
from tidegate.process import build_process
from tidegate.settings import Settings
from tidegate.storage.sql import Transaction, outbox
from tidegate.storage.sql.outbox import Event
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.systems.ranking.model import RankingPeriod
from tidegate.systems.ranking.settings import Board, RankingSettings
from tidegate.systems.ranking.system import open_ranking

SHOP = Board(
    name="concerts", timezone="Asia/Seoul", event="PaymentCompleted", member="concert", id="payment", time="at"
)


def pay(tx: Transaction, concert: str, payments: range) -> None:
    """What a shop does when it is paid: it knows nothing of rankings."""
    told = [{"payment": n, "concert": concert, "at": tx.now.isoformat()} for n in payments]
    outbox.add(tx, *(Event("PaymentCompleted", key=concert, payload=payload) for payload in told))


async def test_payments_are_ranked_and_a_server_that_lost_its_data_is_rebuilt(embedded: Valkey, tmp_path: Path):
    settings = Settings(data_dir=await migrated_folder(tmp_path), ranking=RankingSettings(boards=(SHOP,)))
    async with open_database(settings) as database:
        ranking = open_ranking(settings, database, embedded)
        assert ranking is not None
        parts = build_context(settings, embedded, database)
        process = build_process(parts, handlers=ranking.handlers, leader_services={"ranking": ranking.leader_service})
        running = asyncio.create_task(process.run())

        async def is_shown(wanted: list[tuple[str, int]]) -> bool:
            top = await ranking.top("concerts", RankingPeriod.MONTHLY)
            return [(entry.member, entry.score) for entry in top.entries] == wanted

        await database.transaction(pay, "a", range(10))
        await database.transaction(pay, "b", range(10, 25))
        await until(lambda: is_shown([("b", 15), ("a", 10)]))
        await database.transaction(pay, "a", range(10))  # the same payments once more
        await embedded.execute("UNLINK", *await embedded.execute("KEYS", "*{concerts}*"))
        await database.transaction(pay, "c", range(25, 45))
        await until(lambda: is_shown([("c", 20), ("b", 15), ("a", 10)]))
        process.stop()
        assert (await running).is_clean


async def test_payments_continue_without_the_server_and_the_ranking_catches_up(tmp_path: Path):
    """It comes back empty, as after a loss of everything."""
    [port] = free_ports(1)
    settings = Settings(
        data_dir=await migrated_folder(tmp_path),
        ranking=RankingSettings(boards=(SHOP,)),
        membership=MembershipSettings(lease=timedelta(milliseconds=800), renew_every=timedelta(milliseconds=250)),
    )
    server = ValkeyServer(port=port)
    async with open_database(settings) as database, connected(server.url) as valkey:
        ranking = open_ranking(settings, database, valkey)
        assert ranking is not None
        parts = build_context(settings, valkey, database)
        process = build_process(parts, handlers=ranking.handlers, leader_services={"ranking": ranking.leader_service})
        running = asyncio.create_task(process.run())

        async def shown() -> list[tuple[str, int]]:
            top = await ranking.top("concerts", RankingPeriod.MONTHLY)
            return [(entry.member, entry.score) for entry in top.entries]

        async def is_shown(wanted: list[tuple[str, int]]) -> bool:
            return await shown() == wanted

        await database.transaction(pay, "a", range(10))
        await until(lambda: is_shown([("a", 10)]))
        server.stop()
        await database.transaction(pay, "b", range(10, 25))
        assert await shown() == []
        with ValkeyServer(port=port):
            await until(lambda: is_shown([("b", 15), ("a", 10)]))
            process.stop()
            assert (await running).is_clean
