"""What keeps a crawl is told from SQL alone, with the moment at which it goes on."""

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from tests.cli.test_runs import installation
from tidegate.engine.credentials.vault import Sealed
from tidegate.storage.sql import Transaction
from tidegate.systems.crawl import hosts, identity_records
from tidegate.systems.crawl.commands.crawling import wait_of
from tidegate.systems.crawl.hosts import crawl_identity_health

HOST = "shop.example"


def rests(tx: Transaction, identity: str, seconds: int) -> None:
    health = {
        **{"identity": identity, "host": HOST, "score": 0.5, "refusals": 1, "rests": 1},
        **{"resting_until": tx.now + timedelta(seconds=seconds), "last_reason": "429: called too often"},
    }
    tx.execute(insert(crawl_identity_health).values(health | {"updated_at": tx.now}))


def is_left_alone(tx: Transaction, for_s: int) -> None:
    hosts.rest(tx, HOST, tx.now + timedelta(seconds=for_s), "503: the host asks to wait, for 300 s")


def does_not_answer(tx: Transaction) -> None:
    until = tx.now + timedelta(minutes=5)
    hosts.write(tx, HOST, {"failures": 2, "rests_until": until, "reason": "no connection: refused"})


async def test_a_paused_host_and_an_unresponsive_host_are_reported_differently(tmp_path: Path):
    async with installation(tmp_path) as database:
        assert await database.read(wait_of, HOST) is None, "nobody has met it"
        await database.transaction(hosts.register, HOST)
        assert await database.read(wait_of, HOST) is None

        await database.transaction(is_left_alone, -1)
        assert await database.read(wait_of, HOST) is None, "it is over"
        await database.transaction(is_left_alone, 300)
        told = await database.read(wait_of, HOST)
        assert told is not None
        assert told.startswith(f"{HOST} is paused until ")
        assert told.endswith(": 503: the host asks to wait, for 300 s")

        await database.transaction(does_not_answer)
        told = await database.read(wait_of, HOST)
        assert told is not None
        assert told.startswith(
            f"{HOST}: robots.txt cannot be read: no connection: refused. Check --url. The next attempt is"
        )


@pytest.mark.parametrize(
    ("resting", "told"), [((), None), (("a",), None), (("a", "b"), "all 2 identities are paused until")]
)
async def test_paused_identities_are_reported_when_no_other_identity_can_call(
    tmp_path: Path, resting: tuple[str, ...], told: str | None
):
    async with installation(tmp_path) as database:
        for name in ("a", "b"):
            await database.transaction(identity_records.put, name, Sealed("x", "k"))
        for name in resting:
            await database.transaction(rests, name, 60)
        await database.transaction(rests, "long-gone", 60)

        wait = await database.read(wait_of, HOST)

        assert (wait is None) == (told is None), wait
        assert told is None or (wait is not None and told in wait and "429: called too often" in wait)


async def test_an_expired_pause_is_not_reported_and_that_of_the_built_in_identity_is(tmp_path: Path):
    async with installation(tmp_path) as database:
        await database.transaction(rests, "tidegate", -1)
        assert await database.read(wait_of, HOST) is None
    (tmp_path / "other").mkdir()
    async with installation(tmp_path / "other") as database:
        await database.transaction(rests, "tidegate", 60)
        wait = await database.read(wait_of, HOST)
        assert wait is not None
        assert "the only identity is paused until" in wait
