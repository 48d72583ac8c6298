"""1, 6, 9: reads under load and faults."""

import asyncio

from sqlalchemy import func, select

from scenarios.deployment import KIND, Shape, open_site, path_of
from scenarios.load import WITHOUT_MEMORY, Load, paced
from scenarios.scenario import Check, Scenario
from scenarios.servers import Wire
from scenarios.stage import On, Stage
from tidegate.storage.sql import Transaction
from tidegate.systems.snapshots.tables import snapshot_history
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic

_TTL_S = 1.0
_BRIEF = {"snapshots": {"game": {"ttl": f"{_TTL_S}s"}, "archive": {"keep_history": "true"}}}
_LOW_PER_SECOND = 200
_HALF_AN_HOUR_S = 1800


async def ordinary_load(stage: Stage) -> list[Check]:
    """1: an ordinary day, and readers are answered at once."""
    async with open_site(stage) as site:
        load = Load(site)
        await load.warm_up()
        stage.tell(f"{stage.seconds:.0f} s of 50 HIGH/s, {_LOW_PER_SECOND} LOW/s and 200 more reads/s")
        await asyncio.gather(
            load.users(50, stage.seconds),
            load.prefetch(_LOW_PER_SECOND, stage.seconds),
            load.read_warm(200, stage.seconds),
        )
        waiting = await site.snapshots.transport.lag(RefreshTopic.LOW, GROUPS[RefreshTopic.LOW])
        report = await site.game.report()
        return [
            load.reads.below("reads", 50),
            load.reads.all_good("reads"),
            load.high.below("HIGH done", 3000),
            load.high.all_good("HIGH refreshes"),
            Check("LOW lag", waiting / _LOW_PER_SECOND, "<", _HALF_AN_HOUR_S, "s"),
            Check("most calls in any second", report.most_in_a_second, "≤", 500),
        ]


async def unchanged(stage: Stage) -> list[Check]:
    """6: what does not change is checked once in its time to live, however often it is read."""
    subject, seconds = 7, 4 * _TTL_S
    async with open_site(stage, Shape(choices=_BRIEF)) as site:
        load = Load(site)
        await site.client.get(f"{path_of(subject)}?wait=20")
        first = await site.row(subject)
        before = await site.game.calls_of(subject)
        stage.tell(f"{seconds:.0f} s of 200 reads/s of one subject with a time to live of {_TTL_S:.0f} s")
        await paced(200, seconds, lambda due: load.read(subject, due))
        await site.until_settled(within_s=20)
        last = await site.row(subject)
        calls = await site.game.calls_of(subject) - before
        states = await site.parts.database.read(_states_of, subject)
        assert first is not None
        assert last is not None
        assert first.last_checked_at is not None
        assert last.last_checked_at is not None
        checked_s = (last.last_checked_at - first.last_checked_at).total_seconds()
        return [
            Check(f"calls for {len(load.reads.taken_ms):,} reads in {seconds:.0f} lives", calls, "≤", seconds / _TTL_S),
            Check("last_checked_at moved on by", checked_s, "≥", seconds - 2 * _TTL_S, "s"),
            Check("last_updated_at moved", last.last_updated_at != first.last_updated_at, "=", 0),
            Check("states in its history", states, "=", 1),
            load.reads.all_good("reads"),
        ]


def _states_of(tx: Transaction, subject: int) -> int:
    history = snapshot_history.c
    counted = select(func.count()).where(history.kind == KIND, history.key == str(subject))
    return tx.execute(counted).scalar_one()


async def slow_broker(stage: Stage) -> list[Check]:
    """9: publishing takes a second, and reads are not delayed.

    On Streams the broker is the server that also holds copies of snapshots: both are slow.
    """
    wire = Wire.KAFKA if stage.on is On.KAFKA else Wire.VALKEY
    async with open_site(stage, Shape(wired=frozenset({wire}), choices=WITHOUT_MEMORY)) as site:
        load = Load(site)
        await load.warm_up()
        site.wire(wire).delay(1.0)
        stage.tell(f"{stage.seconds:.0f} s of 200 reads/s, 5 of them of new subjects, behind a broker late by 1 s")
        await asyncio.gather(load.read_warm(195, stage.seconds), load.users(5, stage.seconds, wait=False))
        site.wire(wire).delay(0)
        stage.tell("the broker is quick again")
        report = await site.game.report()
        await load.until_all_fresh(load.asked_high)
        return [
            load.reads.below("reads", 100),
            load.reads.all_good("reads"),
            Check("subjects not refreshed when it is quick again", await site.wrong(load.asked_high), "=", 0),
            Check("most calls in any second", report.most_in_a_second, "≤", 500),
        ]


SCENARIOS = (
    Scenario(1, "HIGH 50/s and LOW 200/s", ordinary_load),
    Scenario(6, "an unchanged subject is read again and again", unchanged),
    Scenario(9, "the broker is late by 1 s", slow_broker),
)
