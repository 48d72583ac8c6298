"""3, 7, 12, 13, 15: concurrent requests for one subject cause one refresh."""

import asyncio
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from tests.processes import start_warm

from scenarios.crowd import AT_ONCE, TURNS, meeting
from scenarios.deployment import Shape, Site, open_site, path_of
from scenarios.load import Load
from scenarios.processes import ROOT, environment
from scenarios.scenario import Check, Scenario
from scenarios.stage import On, Stage
from tidegate.core.priority import Priority
from tidegate.primitives.coalescer import Coalescer

_READERS = 1_000
_CROWD = 10
_SKEWS_MS = (0, -2000, 2000, -1000, 1000, 0, -500, 500, -5, 5)
_OVERTAKEN = 20


async def one_call(stage: Stage) -> list[Check]:
    """3: a thousand readers at once, in two processes; the upstream is called once."""
    subject = 77
    async with open_site(stage, Shape(servers=2)) as site:
        stage.tell(f"opening {_READERS:,} connections")
        for client in site.clients:
            await client.open(_READERS // 2)
        stage.tell(f"{_READERS:,} requests at once")
        path = f"{path_of(subject)}?wait=20"
        answers = await asyncio.gather(*(site.clients[n % 2].get(path) for n in range(_READERS)))
        await site.until_settled(within_s=20)
        calls = await site.game.calls_of(subject)
        told = Counter((answer.status, msgspec.json.decode(answer.body)["freshness"]) for answer in answers)
        truth = await site.game.truth(subject)
        right = sum(msgspec.json.decode(answer.body)["snapshot"] == truth for answer in answers)
        return [
            Check(f"upstream calls for {_READERS:,} requests at once", calls, "=", 1),
            Check("duplicates removed", 100 * (_READERS - calls) / (_READERS - 1), "≥", 99.9, "%"),
            Check("answers FRESH", told[200, "FRESH"], "=", _READERS),
            Check("answers true", right, "=", _READERS),
        ]


async def overtaken(stage: Stage) -> list[Check]:
    """7: subjects that wait at the end of a long line of LOW are wanted by users."""
    async with open_site(stage) as site:
        load = Load(site)
        await load.warm_up()
        stage.tell(f"a long line of LOW, the last {_OVERTAKEN} of which users want")
        subjects = (await load.flood(1_500))[-_OVERTAKEN:]
        now = asyncio.get_running_loop().time()
        await asyncio.gather(*(load.until_fresh(each, now) for each in subjects))
        waiting = await site.unsettled(Priority.LOW)
        stage.tell("the rest of the line")
        await site.until_settled(within_s=60)
        calls = [await site.game.calls_of(each) for each in subjects]
        skipped = await site.metric(site.workers, "obsolete_event_skipped_total")
        return [
            load.high.below("served", 3000),
            load.high.all_good("users' requests"),
            Check("LOW events that waited when all were served", waiting, "≥", 1),
            Check("LOW events skipped", skipped, "=", _OVERTAKEN),
            Check("calls for each of them, at most", max(calls), "=", 1),
        ]


async def one_publish(stage: Stage) -> list[Check]:
    """12: ten processes ask for one subject at the same moment; one event is published."""
    async with open_site(stage, Shape(servers=0, workers=0)) as site:
        stage.tell(f"{_CROWD} processes, {AT_ONCE} requests in each")
        outcomes = Counter(each for some in await _crowd(stage, site, "ask") for each in some)
        return [
            Check(f"requests, of {_CROWD * AT_ONCE}, that published", outcomes["Published"], "=", 1),
            Check("told that it is under way", outcomes["AlreadyProcessing"], "=", _CROWD * AT_ONCE - 1),
            Check("events in the topic", await site.unsettled(), "=", 1),
        ]


async def versions(stage: Stage) -> list[Check]:
    """13: processes with wrong clocks take versions of one subject in turn."""
    async with open_site(stage, Shape(servers=0, workers=0)) as site:
        stage.tell(f"{_CROWD} processes with clocks up to 4 s apart")
        await _crowd(stage, site, "take_turns", _SKEWS_MS)
        found = await site.parts.valkey.execute("LRANGE", meeting(site.parts.valkey).key("versions"), 0, -1)
        taken = [int(version) for version in found]
        repeated = len(taken) - len(set(taken))
        decreased = sum(later <= earlier for earlier, later in pairwise(taken))
        return [
            Check("versions taken", len(taken), "=", _CROWD * TURNS),
            Check("that repeat one", repeated, "=", 0),
            Check("that decrease", decreased, "=", 0),
        ]


async def one_release(stage: Stage) -> list[Check]:
    """15: all processes release one lock; it is released once."""
    async with open_site(stage, Shape(servers=0, workers=0)) as site:
        coalescer = Coalescer(site.parts.valkey)
        await coalescer.request("released by all", Priority.LOW)
        stage.tell(f"{_CROWD} processes, {AT_ONCE} releases in each")
        told = [each for some in await _crowd(stage, site, "release") for each in some]
        again = await coalescer.request("released by all", Priority.LOW)
        return [
            Check(f"releases, of {len(told)} at once, that deleted the lock", sum(told), "=", 1),
            Check("it can be taken again", type(again).__name__ == "Published", "=", 1),
        ]


async def _crowd(stage: Stage, site: Site, part: str, skews_ms: Sequence[int] = (0,) * _CROWD) -> list[Any]:
    """What each of many processes got, all of which began at the same moment."""
    valkey = site.parts.valkey
    with (stage.folder / "crowd.log").open("ab") as log:
        crowd = [
            await start_warm(
                *("python", "-m", "scenarios.crowd", part, str(skew)),
                cwd=ROOT,
                env=environment(site.choices),
                stdout=PIPE,
                stderr=log,
            )
            for skew in skews_ms
        ]
    for _ in crowd:
        assert await valkey.execute_blocking("BLPOP", meeting(valkey).key("ready"), 60, within_s=60)
    await valkey.execute("RPUSH", meeting(valkey).key("go"), *range(len(crowd)))
    return [msgspec.json.decode((await each.communicate())[0].splitlines()[-1]) for each in crowd]


SCENARIOS = (
    Scenario(3, "1,000 requests for one subject at once", one_call),
    Scenario(7, "HIGH arrives while LOW has the lock", overtaken),
    Scenario(12, "ten processes ask for one subject at once", one_publish),
    Scenario(13, "versions across processes", versions, on=(On.SERVER,)),
    Scenario(15, "a lock is released by many at once", one_release, on=(On.SERVER,)),
)
