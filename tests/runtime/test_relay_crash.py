"""Processes that relay are killed without warning; every committed event still has its effect, once, in order."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE

import pytest
from sqlalchemy import text

from tests.processes import start_warm
from tests.runtime import relaying_process
from tests.waiting import look_again, patience
from tidegate.runtime.relay import Relay
from tidegate.storage.sql import Database, Transaction, outbox

KEYS = 4


def make_tables(tx: Transaction) -> None:
    tx.execute(text("CREATE TABLE facts (n INTEGER)"))
    tx.execute(text("CREATE TABLE effects (k VARCHAR(20), position INTEGER, n INTEGER)"))


def facts(tx: Transaction) -> list[int]:
    return list(tx.execute(text("SELECT n FROM facts ORDER BY n")).scalars())


def effects(tx: Transaction) -> dict[str, list[int]]:
    rows = tx.execute(text("SELECT k, n FROM effects ORDER BY k, position")).all()
    return {key: [row.n for row in rows if row.k == key] for key in {row.k for row in rows}}


@pytest.mark.smoke
@pytest.mark.every_server
@pytest.mark.crash
async def test_killed_relays_lose_and_repeat_nothing(database: Database, migrated_url: str) -> None:
    await database.transaction(make_tables)
    told: list[int] = []
    for life in range(3):
        told += await _live_and_be_killed(migrated_url, life * 100_000, random.randint(20, 60))

    committed: list[int] = []
    while committed != (now := await database.read(facts)):  # a server may still commit for one who is dead
        committed = now
        await _relay_the_rest(database)

    assert set(told) <= set(committed)  # what a process told, it had committed
    expected = {f"key {k}": [n for n in committed if n % KEYS == k] for k in range(KEYS)}
    assert await database.read(effects) == expected


async def _live_and_be_killed(url: str, first: int, lines: int) -> list[int]:
    program = relaying_process.__file__
    process = await start_warm(sys.executable, program, url, str(first), str(KEYS), stdout=PIPE)
    assert process.stdout
    told = [int(await process.stdout.readline()) for _ in range(lines)]
    process.kill()
    rest, _ = await process.communicate()
    return told + [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]


async def _relay_the_rest(database: Database) -> None:
    stopping = asyncio.Event()
    relay = asyncio.create_task(Relay(database, [relaying_process.handler(database)]).run(stopping))
    async with patience():
        while (await database.read(outbox.depth)).pending:
            await look_again()
        stopping.set()
        await relay
