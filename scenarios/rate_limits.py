"""2, 8, 11, 16: the limit is never broken, and LOW takes nothing from HIGH."""

import asyncio

from scenarios.deployment import Shape, Site, open_site
from scenarios.load import Load
from scenarios.scenario import Check, Scenario
from scenarios.stage import On, Stage
from tidegate.core.priority import Priority
from tidegate.primitives.limiter import LimiterSettings
from tidegate.systems.snapshots.transports.protocol import GROUPS, RefreshTopic

_LOW_CAP, _SUSTAINED, _MOST = 350, 450, 500
_BURST = LimiterSettings().rates[0].burst
_UNCHANGED_MS = 200
"""HIGH counts as undisturbed when a flood costs it no more than this."""


async def overload(stage: Stage) -> list[Check]:
    """2: more is offered than is allowed; as much is done as is allowed, and never more."""
    async with open_site(stage) as site:
        load = Load(site)
        await load.warm_up()
        stage.tell(f"{stage.seconds:.0f} s of 200 HIGH/s and 300 LOW/s, which is 50/s too many")
        await asyncio.gather(load.users(200, stage.seconds), load.prefetch(300, stage.seconds))
        report = await site.game.report()
        # The first and the last second of the clock are not whole, and the limiter starts with its burst.
        whole = report.per_second[2 : int(stage.seconds)]
        sustained = sum(whole) / len(whole)
        return [
            Check("calls per second, sustained", sustained, "≥", 0.98 * _SUSTAINED),
            Check("calls per second, sustained", sustained, "≤", _SUSTAINED + _BURST / len(whole)),
            Check("most calls in any second", report.most_in_a_second, "≤", _MOST),
            Check("calls beyond a limit", report.broken, "=", 0),
            load.high.below("HIGH done", 3000),
            load.high.all_good("HIGH refreshes"),
            load.reads.below("reads", 100),
        ]


async def only_low(stage: Stage) -> list[Check]:
    """11: without HIGH events, LOW still keeps its own limit."""
    async with open_site(stage) as site:
        load = Load(site)
        await site.game.clear()
        stage.tell(f"{stage.seconds:.0f} s of 450 LOW/s")
        await load.prefetch(450, stage.seconds)
        waiting = await _low_lag(site)
        report = await site.game.report()
        whole = report.per_second[2 : int(stage.seconds)]
        return [
            Check("most LOW calls in any second", report.most_in_a_second, "≤", _LOW_CAP),
            Check("calls per second, sustained", sum(whole) / len(whole), "≤", _LOW_CAP),
            Check("events that still wait: more was offered", waiting, "≥", 1),
            Check("calls beyond a limit", report.broken, "=", 0),
        ]


async def low_cap(stage: Stage) -> list[Check]:
    """8: LOW that is refused by its own cap costs the others nothing."""
    async with open_site(stage, Shape(servers=0)) as site:
        load = Load(site)
        stage.tell("a flood of LOW, and looks at the limiter while it is refused")
        await load.flood(2_500)
        await _refused(site)
        beyond, looks = 0, 0
        while await _low_lag(site) > 200:
            used = {each.name: each.used for each in (await site.snapshots.limiter.status()).usage}
            beyond, looks = max(beyond, used["second"] - used["low"]), looks + 1
            await asyncio.sleep(0.05)
        await load.flood(1_000)
        await _refused(site)
        granted = await _high_in_a_second(site)
        refused = await site.metric(site.workers, "rate_limiter_rejected_total", {"priority": Priority.LOW})
        report = await site.game.report()
        return [
            Check("LOW permits refused", refused, "≥", 1),
            Check(f"of the shared limit used beyond LOW's calls, in {looks} looks", beyond, "=", 0),
            Check("HIGH permits given in a second meanwhile", granted, "≥", _SUSTAINED - _LOW_CAP),
            Check("most LOW calls in any second", report.most_in_a_second, "≤", _LOW_CAP),
        ]


async def _high_in_a_second(site: Site) -> int:
    """How many permits there are for HIGH while LOW wants all it can have."""
    loop, granted = asyncio.get_running_loop(), 0
    until = loop.time() + 1
    while loop.time() < until:
        batch = await site.snapshots.limiter.take(_BURST, priority=Priority.HIGH)
        granted += len(batch.grants)
        await asyncio.sleep(max(0.02, batch.wait.total_seconds()))
    return granted


async def _refused(site: Site) -> None:
    """Until LOW has used up its cap, and waits."""
    async with asyncio.timeout(20):
        while True:
            status = await site.snapshots.limiter.status()
            if status.waiting[Priority.LOW] and next(x for x in status.usage if x.name == "low").used >= _LOW_CAP:
                return
            await asyncio.sleep(0.01)


async def low_flood(stage: Stage) -> list[Check]:
    """16: a flood of LOW, and HIGH is as quick as without."""
    async with open_site(stage) as site:
        quiet, flooded = Load(site), Load(site, first=2_000_000)
        await quiet.warm_up()
        stage.tell(f"{stage.seconds / 2:.0f} s of 20 HIGH/s alone")
        await quiet.users(20, stage.seconds / 2)
        stage.tell(f"{stage.seconds / 2:.0f} s of 20 HIGH/s beside a flood of LOW")
        await flooded.flood(round(_LOW_CAP * (stage.seconds / 2 + 3)))
        await _refused(site)
        await flooded.users(20, stage.seconds / 2)
        waiting = await _low_lag(site)
        report = await site.game.report()
        return [
            quiet.high.below("HIGH alone", 3000),
            flooded.high.below("HIGH beside the flood", min(3000, quiet.high.p95 + _UNCHANGED_MS)),
            flooded.high.all_good("HIGH refreshes"),
            flooded.reads.below("reads", 100),
            Check("LOW events that still wait at the end", waiting, "≥", 1),
            Check("most calls in any second", report.most_in_a_second, "≤", _MOST),
        ]


async def _low_lag(site: Site) -> int:
    return await site.snapshots.transport.lag(RefreshTopic.LOW, GROUPS[RefreshTopic.LOW])


SCENARIOS = (
    Scenario(2, "HIGH 200/s and LOW 300/s offered", overload),
    Scenario(8, "LOW's cap is exhausted", low_cap, on=(On.SERVER,)),
    Scenario(11, "only LOW is offered", only_low),
    Scenario(16, "a flood of LOW", low_flood),
)
