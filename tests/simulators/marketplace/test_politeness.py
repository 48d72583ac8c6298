"""The proof of politeness: each rule, broken and kept to, by the simulator's own clock."""

import asyncio
from contextlib import suppress

import pytest

from tests.simulators.marketplace.client import FREE, Client, simulated
from tidegate_simulators.marketplace import (
    Behaviour,
    FaultKind,
    LimitSettings,
    PauseScope,
    Politeness,
    RobotsGroup,
    RobotsSettings,
    WorldShape,
)
from tidegate_simulators.stalls import LoopMonitor

TWO = WorldShape(products=60, hosts=2)
SLOWLY = RobotsSettings(groups=(RobotsGroup(crawl_delay_s=3),))


async def call_after(client: Client, seconds: float, path: str = "/", *, host: int = 0, who: int | str = 0) -> int:
    client.ticks.advance(seconds)
    return (await client.get(path, host=host, who=who)).status


@pytest.mark.parametrize(("late_s", "broken"), [(0.4, 1), (0.6, 0)])
async def test_a_gap_that_may_have_been_longer_is_uncertain(
    late_s: float, broken: int, monkeypatch: pytest.MonkeyPatch
):
    """The first of two calls half a second apart was read late: it came up to `late_s` earlier."""
    delays_us = iter([round(late_s * 1e6), 0])
    monkeypatch.setattr(LoopMonitor, "delay_us", staticmethod(lambda: next(delays_us)))
    async with simulated(politeness=Politeness(delay_s=1, robots_required=False)) as client:
        await call_after(client, 5)
        await call_after(client, 0.5)
        report = client.sim.report()

    assert (report.broken, report.uncertain) == (broken, 1 - broken)
    if not broken:
        [window] = report.uncertain_samples
        assert (window.rule, window.caller, window.stall_ms) == ("too_soon", "identity-0", 600)
        assert (window.read, window.certain, window.limit) == (500, 1_100, 1_000)


async def test_a_call_earlier_than_the_configured_gap_is_found():
    async with simulated(politeness=Politeness(delay_s=1, robots_required=False), world=TWO) as client:
        for pause in (5, 1, 0.999, 1):
            await call_after(client, pause)
        report = client.sim.report()
        assert (report.broken, report.violations, report.smallest_gap_ms) == (1, {"too_soon": 1}, 999)
        [sample] = report.samples
        assert (sample.rule, sample.host, sample.identity, sample.target) == ("too_soon", 0, "identity-0", "/")
        assert (sample.at_s, sample.short_by_ms) == (6.999, 1)
        assert client.sim.arrivals(0) == [5_000_000, 6_000_000, 6_999_000, 7_999_000]


async def test_hosts_are_counted_separately_and_identities_together():
    async with simulated(politeness=Politeness(delay_s=1, robots_required=False), world=TWO) as client:
        for host in (0, 1, 0, 1):
            await call_after(client, 0.5, host=host)
        assert [host.violations for host in client.sim.report().hosts] == [{}, {}]
        assert [host.smallest_gap_ms for host in client.sim.report().hosts] == [1_000, 1_000]

        await call_after(client, 0.5, host=1, who=1)
        assert [client.violations(host) for host in (0, 1)] == [{}, {"too_soon": 1}]


async def test_the_longer_of_setting_and_crawl_delay_applies():
    async with simulated(politeness=Politeness(delay_s=1), robots=SLOWLY) as client:
        await client.get("/robots.txt")
        assert client.sim.report().hosts[0].least_gap_ms == 3_000
        await call_after(client, 3)
        await call_after(client, 2)
        assert client.violations() == {"too_soon": 1}

        client.sim.set_politeness(Politeness(delay_s=4))
        await call_after(client, 3)
        assert client.violations() == {"too_soon": 2}
        await call_after(client, 4)
        assert client.violations() == {"too_soon": 2}


async def test_every_call_counts_for_the_gap_whatever_its_outcome():
    """robots.txt, what a redirect leads to, what failed or was refused: all are calls to the host."""
    limits = LimitSettings(per_identity=4, strikes_until_ban=None)
    async with simulated(politeness=Politeness(delay_s=1, robots_required=False), limits=limits) as client:
        await client.get("/robots.txt")
        await call_after(client, 0.5)
        client.sim.faults.inject_at(None, FaultKind.REDIRECT)
        client.sim.faults.inject_at(None, FaultKind.BAD_GATEWAY)
        assert await call_after(client, 0.5) == 302
        assert await call_after(client, 0.5, "/?hop=1") == 502
        assert await call_after(client, 0.5) == 429
        assert client.violations() == {"too_soon": 4}


async def test_a_tolerance_covers_network_delays_of_a_gap():
    polite = Politeness(delay_s=1, leeway_ms=5, robots_required=False)
    async with simulated(politeness=polite) as client:
        for pause in (0, 0.996, 0.995):
            await call_after(client, pause)
        assert client.violations() == {}
        await call_after(client, 0.994)
        assert client.violations() == {"too_soon": 1}
        assert client.sim.report().smallest_gap_ms == 994, "the gap is told as it was"


@pytest.mark.parametrize("kind", [FaultKind.REFUSED, FaultKind.UNAVAILABLE])
async def test_a_call_before_the_end_of_a_retry_after_is_found_for_every_identity(kind: FaultKind):
    async with simulated(behaviour=Behaviour(retry_after_s=10), world=TWO) as client:
        client.sim.faults.inject_at(None, kind)
        await client.get("/")
        await call_after(client, 9.999, who=1)
        assert client.violations() == {"pause_ignored": 1}
        await call_after(client, 0, host=1)
        await call_after(client, 0.001, who=1)
        assert [client.violations(host) for host in (0, 1)] == [{"pause_ignored": 1}, {}]
        assert client.sim.report().hosts[0].pauses_announced == 1


async def test_a_setting_decides_to_which_identities_a_pause_applies():
    limits = LimitSettings(per_identity=1, identity_window_s=10, strikes_until_ban=None)
    for scope, found in ((PauseScope.HOST, {"pause_ignored": 1}), (PauseScope.IDENTITY, {})):
        polite = Politeness(pauses_bind=scope, robots_required=False)
        async with simulated(limits=limits, politeness=polite) as client:
            assert await client.statuses(2) == [200, 429]
            assert await call_after(client, 1, who=1) == 200
            assert client.violations() == found
            assert await call_after(client, 1) == 429
            assert client.violations()["pause_ignored"] == len(found) + 1


async def test_a_pause_of_a_whole_host_applies_to_all_identities_under_either_setting():
    limits = LimitSettings(per_identity=None, per_host=1, host_window_s=10)
    polite = Politeness(pauses_bind=PauseScope.IDENTITY, robots_required=False)
    async with simulated(limits=limits, politeness=polite) as client:
        assert await client.statuses(2) == [200, 429]
        await call_after(client, 1, who=1)
        assert client.violations() == {"pause_ignored": 1}


async def test_a_shorter_pause_does_not_end_a_longer_one():
    async with simulated(behaviour=Behaviour(retry_after_s=2), limits=LimitSettings(per_identity=1)) as client:
        assert await client.statuses(2) == [200, 429], "a minute is asked for"
        client.sim.faults.inject_at(None, FaultKind.UNAVAILABLE)
        assert await call_after(client, 1, who=1) == 503
        await call_after(client, 30, who=2)
        assert client.violations() == {"pause_ignored": 2}


@pytest.mark.parametrize("is_limit", [False, True])
async def test_a_pause_starts_when_its_answer_is_sent(is_limit: bool):
    """Whoever called before could not know."""
    behaviour, limits = Behaviour(latency_ms=50, jitter=0, retry_after_s=10), LimitSettings(per_identity=1)
    async with simulated(behaviour=behaviour, limits=limits if is_limit else FREE) as client:
        if is_limit:
            assert await client.statuses(1) == [200]
        else:
            client.sim.faults.inject_at(None, FaultKind.UNAVAILABLE)
        assert (await client.get("/")).headers["retry-after"] == ("60" if is_limit else "10")
        await call_after(client, 0.050, who=1)
        assert client.violations() == {}
        await call_after(client, 59.999 if is_limit else 9.999, who=2)
        assert client.violations() == {"pause_ignored": 1}, "it lasts as long as was asked for, from then on"


async def test_a_path_forbidden_by_robots_is_found():
    async with simulated() as client:
        await client.get("/robots.txt")
        for path in ("/cart/add?product=1", "/c%61rt/add", "/account", "/search?q=rope&sort=price"):
            await client.get(path)
        assert client.violations() == {"disallowed": 4}
        for path in ("/cart/help", "/search?q=rope", "/products/1"):
            await client.get(path)
        assert client.violations() == {"disallowed": 4}


async def test_a_crawler_is_judged_by_the_robots_txt_that_it_has_read():
    async with simulated(robots=SLOWLY, world=TWO) as client:
        await client.get("/robots.txt")
        await client.get("/robots.txt", host=1)
        closed = RobotsSettings(groups=(RobotsGroup(disallow=("/search",), crawl_delay_s=60),))
        client.sim.set_robots(closed, host=0)
        await call_after(client, 3, "/search?q=rope")
        assert client.violations() == {}, "it has not seen the new one"

        assert "Crawl-delay: 60" in (await client.get("/robots.txt")).text
        await call_after(client, 59, "/search?q=rope")
        assert client.violations() == {"too_soon": 2, "disallowed": 1}
        await call_after(client, 0, "/search?q=rope", host=1)
        assert client.violations(1) == {}

        content = {"host": 0, "robots": {"status": 404, "groups": []}}
        assert (await client.post("/admin/robots", **content)).status == 200
        await call_after(client, 60, "/robots.txt")
        await call_after(client, 0, "/search?q=rope")
        assert client.violations() == {"too_soon": 2, "disallowed": 1}, "where there is none, all is allowed"


async def test_an_unavailable_robots_txt_forbids_everything_to_crawlers_without_an_older_one():
    away = RobotsSettings(status=503)
    async with simulated(robots=away, world=TWO) as client:
        assert (await client.get("/robots.txt")).status == 503
        await client.get("/search?q=rope")
        assert client.violations() == {"disallowed": 1}
        client.sim.set_robots(RobotsSettings(), host=0)
        await client.get("/search?q=rope")
        assert client.violations() == {"disallowed": 2}, "it is back, but that has to be seen first"

        client.sim.set_robots(RobotsSettings(), host=1)
        await client.get("/robots.txt", host=1)
        client.sim.set_robots(away, host=1)
        await client.get("/robots.txt", host=1)
        await client.get("/search?q=rope", host=1)
        assert client.violations(1) == {}, "the copy it has is still good"


async def test_a_call_before_robots_was_read_or_long_after_is_found():
    async with simulated(politeness=Politeness(robots_max_age_s=100), world=TWO) as client:
        await client.get("/robots.txt", host=1)
        await client.get("/")
        assert client.violations() == {"robots_unread": 1}
        client.sim.faults.inject_at(None, FaultKind.RESET)
        with suppress(Exception):
            await client.get("/robots.txt")
        await client.get("/")
        assert client.violations() == {"robots_unread": 2}, "it was asked for, but never came"

        await client.get("/robots.txt")
        await call_after(client, 100)
        assert client.violations() == {"robots_unread": 2}
        await call_after(client, 0.001)
        assert client.violations() == {"robots_unread": 3}


async def test_a_call_of_an_identity_that_knows_of_its_ban_is_found():
    async with simulated(world=TWO) as client:
        client.sim.ban("identity-0", host=0, for_s=60)
        assert await call_after(client, 1) == 403
        assert client.violations() == {}, "it did not know"
        assert await call_after(client, 58.999) == 403
        assert client.violations() == {"banned": 1}
        await call_after(client, 0, host=1)
        await call_after(client, 0, who=1)
        await call_after(client, 0.001)
        host = client.sim.report().hosts[0]
        assert (host.violations, host.by_banned) == ({"banned": 1}, 2)


async def test_a_host_that_has_banned_all_identities_must_not_be_called():
    limits = LimitSettings(per_identity=None, per_host=1, host_strikes_until_ban=1, host_ban_s=60)
    async with simulated(limits=limits) as client:
        assert await client.statuses(3) == [200, 429, 403]
        assert await call_after(client, 30, who=1) == 403
        assert client.violations() == {"banned": 1}


async def test_a_ban_without_an_end_causes_no_violation():
    async with simulated(limits=LimitSettings(ban_is_announced=False)) as client:
        client.sim.ban("identity-0", for_s=60)
        for _ in range(3):
            await call_after(client, 1)
        host = client.sim.report().hosts[0]
        assert (host.violations, host.by_banned) == ({}, 3)


async def test_two_concurrent_uses_of_an_identity_are_found_also_on_two_hosts():
    async with simulated(behaviour=Behaviour(latency_ms=50, jitter=0), world=TWO) as client:
        await asyncio.gather(client.get("/", who=0), client.get("/", who=1))
        assert client.sim.report().broken == 0
        await asyncio.gather(client.get("/", who=0), client.get("/", who=0, host=1))
        report = client.sim.report()
        assert report.violations == {"identity_at_once": 1}
        assert {one.name: one.most_at_once for one in report.identities} == {"identity-0": 2, "identity-1": 1}
        assert [host.most_at_once for host in report.hosts] == [2, 1]

        await client.get("/", who=0)
        assert client.sim.report().broken == 1, "one after the other is fine"
        client.sim.set_politeness(Politeness(at_once_per_identity=2, robots_required=False))
        await asyncio.gather(client.get("/", who=0), client.get("/", who=0, host=1))
        assert client.sim.report().broken == 1


async def test_a_call_whose_client_disconnected_is_no_longer_running():
    async with simulated(behaviour=Behaviour(latency_ms=60_000)) as client:
        waiting = asyncio.create_task(client.get("/"))
        while not client.sim.report().calls:
            await asyncio.sleep(0)
        assert client.sim.report().hosts[0].under_way == 1
        waiting.cancel()
        while client.sim.report().hosts[0].under_way:
            await asyncio.sleep(0)
        again = asyncio.create_task(client.get("/"))
        while client.sim.report().calls < 2:
            await asyncio.sleep(0)
        again.cancel()
        assert client.sim.report().broken == 0


async def test_headers_of_two_identities_in_one_call_are_found():
    async with simulated() as client:
        first, second = client.sim.identities[:2]
        await client.get("/", who=0, User_Agent=second.user_agent)
        await client.get("/", who=0, Accept_Language=second.headers["Accept-Language"])
        assert client.violations() == {"identity_mixed": 2}
        await client.get("/", who=0)
        await client.get("/", who=first.user_agent)
        assert client.violations() == {"identity_mixed": 2}
        assert first.headers["Cookie"][4:20] not in str(client.sim.report()), "cookies are nobody else's business"


async def test_the_proof_is_reported_over_http_and_can_be_restarted():
    async with simulated(politeness=Politeness(delay_s=1)) as client:
        await client.statuses(2)
        told = (await client.get("/admin/report")).json
        assert (told["broken"], told["violations"]) == (3, {"robots_unread": 2, "too_soon": 1})
        assert (await client.get("/admin/arrivals/0")).json == {"host": 0, "at_us": [0, 0]}
        assert (await client.get("/admin/arrivals/1")).status == 400

        assert (await client.post("/admin/clear")).status == 200
        report = client.sim.report()
        assert (report.broken, report.calls, report.samples, report.identities) == (0, 0, [], [])
        await call_after(client, 0.5, "/robots.txt")
        assert client.violations() == {"too_soon": 1}, "the call before still counts for the gap"

        assert (await client.post("/admin/politeness", delay_s=0)).status == 200
        assert (await client.post("/admin/politeness", delay_s=-1)).status == 400
        await call_after(client, 0)
        assert client.violations() == {"too_soon": 1}
