"""4, 5, 10: processes and servers are lost, and nothing else is."""

import asyncio

from scenarios.deployment import Shape, Site, open_site, path_of
from scenarios.load import WARM, WITHOUT_MEMORY, Load
from scenarios.scenario import Check, Scenario
from scenarios.servers import Wire
from scenarios.stage import Stage
from tidegate.core.priority import Priority

_EACH = 400
_SLOW_S = 10
_OPEN = 2.0
"""What the gauge of a breaker shows."""
_BRIEF = {
    "breaker": {"open_for": "3s"},
    "snapshots": {"write_within": "1s"},
}
"""Shorter than by default (30 s, 5 s), so that all of it is seen in a scenario's time."""


async def worker_killed(stage: Stage) -> list[Check]:
    """4: a worker is killed while it holds events; another one processes them."""
    async with open_site(stage, Shape(workers=2, latency_ms=150)) as site:
        low, high = range(1_000, 1_000 + _EACH), range(5_000, 5_000 + _EACH)
        stage.tell(f"{2 * _EACH} events, two workers")
        await site.ask(low, Priority.LOW)
        await site.ask(high, Priority.HIGH)
        await _until_calls(site, _EACH // 4)
        site.workers[0].kill()
        await site.workers[0].gone()
        left = await site.unsettled()
        stage.tell(f"one was killed; {left} events are not done")
        took_s = await site.until_settled(within_s=90)
        report = await site.game.report()
        return [
            Check("events not done when it died", left, "≥", 1),
            Check(f"of {2 * _EACH} subjects lost or wrong", await site.wrong([*low, *high]), "=", 0),
            Check("events that became dead letters", await site.snapshots.transport.dead_count(), "=", 0),
            Check("all done after", took_s, "≤", 30, "s"),
            Check("calls beyond a limit", report.broken, "=", 0),
        ]


async def slow_database(stage: Stage) -> list[Check]:
    """5: the database takes 10 s for every answer; nothing is acknowledged until it is itself again."""
    shape = Shape(on_postgres=True, wired=frozenset({Wire.DATABASE}), choices=_BRIEF)
    async with open_site(stage, shape) as site:
        load = Load(site)
        await load.warm_up()
        site.wire(Wire.DATABASE).delay(_SLOW_S)
        low, high = range(1_000, 1_100), range(5_000, 5_100)
        await site.ask(low, Priority.LOW)
        await site.ask(high, Priority.HIGH)
        events = len(low) + len(high)
        stage.tell(f"the database takes {_SLOW_S} s for each answer; until the breaker opens")
        opened_s = await _until_open(site)
        await load.read_warm(100, 3)
        left = await site.unsettled()
        dead = await site.snapshots.transport.dead_count()
        site.wire(Wire.DATABASE).delay(0)
        stage.tell(f"the database is quick again; {left} events wait")
        took_s = await site.until_settled(within_s=60)
        return [
            Check("the breaker was open after", opened_s, "≤", 30, "s"),
            Check(f"of {events} events acknowledged meanwhile", events - left, "=", 0),
            Check("events that became dead letters", dead, "=", 0),
            load.reads.below("reads of what is known, meanwhile", 100),
            load.reads.all_good("reads"),
            Check("all done, after it was quick again", took_s, "≤", 30, "s"),
            Check("subjects lost or wrong", await site.wrong([*low, *high]), "=", 0),
            Check(f"calls for {events} events", await site.game.calls(), "=", events),
        ]


async def redis_down(stage: Stage) -> list[Check]:
    """10: the Valkey server is killed; nothing is updated, and everything is read."""
    async with open_site(stage, Shape(keeps=True, choices=WITHOUT_MEMORY)) as site:
        load = Load(site)
        await load.warm_up()
        await asyncio.to_thread(site.losable.kill)
        stage.tell("Valkey was killed: 5 s of 100 reads/s, and of attempts to update")
        refused, updates = await _asked_in_vain(site, load)
        unknown = await site.client.get(path_of(9_999))
        calls = await site.game.calls()
        await asyncio.to_thread(site.losable.start)
        stage.tell("Valkey is back")
        began = asyncio.get_running_loop().time()
        again = Load(site)
        await again.until_all_fresh([9_999])
        took_s = asyncio.get_running_loop().time() - began
        return [
            Check(f"updates, of {updates}, refused", refused, "=", updates),
            load.reads.below("reads", 100),
            load.reads.all_good("reads"),
            Check("reads of unknown subjects answered 200", unknown.status == 200, "=", 1),
            Check("with an estimated wait", b'"estimatedWaitMs":null' not in unknown.body, "=", 0),
            Check("upstream calls meanwhile", calls, "=", 0),
            Check("updates go on, after it was back", took_s, "≤", 60, "s"),
        ]


async def _asked_in_vain(site: Site, load: Load) -> tuple[int, int]:
    statuses: list[int] = []

    async def update() -> None:
        for subject in WARM[:10]:
            statuses.append((await site.client.send("POST", f"{path_of(subject)}/refresh")).status)
            await asyncio.sleep(0.4)

    await asyncio.gather(load.read_warm(100, 5), update())
    return sum(status == 503 for status in statuses), len(statuses)


async def _until_calls(site: Site, calls: int) -> None:
    async with asyncio.timeout(60):
        while True:
            if await site.game.calls() >= calls:
                return
            await asyncio.sleep(0.02)


async def _until_open(site: Site) -> float:
    """Until the worker's breaker of the database is open; after how many seconds."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        while True:
            if await site.metric(site.workers, "db_circuit_breaker_state") == _OPEN:
                return asyncio.get_running_loop().time() - began
            await asyncio.sleep(0.2)


SCENARIOS = (
    Scenario(4, "a worker is killed", worker_killed),
    Scenario(5, "database answers take 10 s", slow_database),
    Scenario(10, "Redis is down", redis_down),
)
