"""Nothing is called that robots.txt forbids, or before it was read; the simulator audits.

The clocks stand still here, so the simulator's rule about gaps is for `test_crawling.py`; all others are judged.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from tests.systems.crawl.politeness.conftest import Open
from tests.systems.crawl.politeness.harness import POLITE, PolitenessHarness
from tidegate.core.errors import DatabaseUnavailable
from tidegate.engine.calls import NotCalled
from tidegate.engine.source import Verdict
from tidegate.engine.upstream import Answer, Request, UpstreamClient, UpstreamFailed
from tidegate.systems.crawl.politeness import PoliteCaller
from tidegate.systems.crawl.settings import CrawlSettings
from tidegate_simulators.marketplace import FaultKind, LimitSettings, RobotsGroup, RobotsSettings, Route

DAY = timedelta(days=1)
STRICT = RobotsSettings(groups=(RobotsGroup(disallow=("/search",), crawl_delay_s=7),))
LENIENT = RobotsSettings(groups=(RobotsGroup(crawl_delay_s=2),))

SEVERE = LimitSettings(per_identity=1, strikes_until_ban=1, ban_is_announced=False)


async def omitted(
    harness: PolitenessHarness, path: str = "/search?q=none", *, ignores_robots: bool = False
) -> NotCalled:
    with pytest.raises(NotCalled) as raised:
        await harness.call(path, ignores_robots=ignores_robots)
    return raised.value


async def met(harness: PolitenessHarness) -> PolitenessHarness:
    await harness.book.hosts.register(harness.host)
    return harness


def says(told: NotCalled) -> tuple[Verdict, int, int | None, int | None]:
    return told.reading.verdict, told.calls, told.reading.delay_ms, told.reading.pause_ms


def routes(harness: PolitenessHarness) -> Mapping[str, int]:
    return harness.sim.report().by_route


async def test_the_first_call_reads_robots_txt_instead_and_the_next_one_is_made(harness: PolitenessHarness):
    await met(harness)

    told = await omitted(harness)

    assert says(told) == (Verdict.LATER, 1, 0, None)
    assert routes(harness) == {"robots": 1}
    assert (await harness.call()).status == 200
    assert routes(harness) == {"robots": 1, "search": 1}
    assert harness.sim.report().broken == 0


async def test_a_forbidden_path_is_never_called(harness: PolitenessHarness):
    await met(harness)
    await omitted(harness)
    for path in ("/cart/7", "/account", "/search?q=a&sort=price"):
        told = await omitted(harness, path)
        assert says(told) == (Verdict.UNAVAILABLE, 0, None, None)
        assert f"forbids {path}" in str(told)
    assert (await harness.call("/cart/help")).status == 200
    assert routes(harness) == {"robots": 1, "page": 1}
    assert harness.sim.report().broken == 0


async def test_the_rules_are_those_for_the_user_agent_of_the_call(opened: Open):
    groups = (RobotsGroup(), RobotsGroup(agent="Harbour", disallow=("/search",)))
    harness = await met(await opened(RobotsSettings(groups=groups)))
    await harness.book.add("one", harness.sim.identities[0].headers)
    await harness.book.add("other", {"User-Agent": "somebody/1"})
    with pytest.raises(NotCalled):
        await harness.call(identity="one")
    with pytest.raises(NotCalled, match="forbids /search"):
        await harness.call(identity="one")
    assert (await harness.call(identity="other")).status == 200
    assert harness.sim.report().broken == 0


async def test_a_missing_robots_txt_allows_everything(opened: Open):
    harness = await met(await opened(RobotsSettings(status=404)))
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.call("/cart/7")).status == 200
    assert (await harness.stored()).robots_state == "none"
    assert harness.sim.report().broken == 0


async def test_while_robots_txt_is_unavailable_nothing_is_called_and_pauses_grow(opened: Open):
    harness = await met(await opened(RobotsSettings(status=500)))
    pauses: list[int] = []
    for tries in range(1, 5):
        told = await omitted(harness)
        verdict, calls, delay_ms, pause_ms = says(told)
        assert (verdict, calls, delay_ms) == (Verdict.LATER, 1, 0)
        assert pause_ms is not None
        pauses.append(pause_ms)
        host = await harness.stored()
        assert host.failures == tries
        assert host.rests_until is not None
        assert abs(host.rests_until - harness.clock.now() - timedelta(milliseconds=pause_ms)) < timedelta(
            milliseconds=1
        )
        assert "cannot be read: answered 500" in str(told)
    for pause_ms, ceiling_ms in zip(pauses, (5_000, 10_000, 20_000, 40_000), strict=True):
        assert 0.8 * ceiling_ms <= pause_ms <= ceiling_ms
    assert routes(harness) == {"robots": 4}

    harness.sim.set_robots(RobotsSettings())
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.call()).status == 200
    assert (await harness.stored()).failures == 0
    assert harness.sim.report().broken == 0


@pytest.mark.parametrize("fault", [FaultKind.RESET, FaultKind.TRUNCATED])
async def test_an_interrupted_answer_is_not_used_as_robots_txt(harness: PolitenessHarness, fault: FaultKind):
    await met(harness)
    harness.sim.faults.inject_at(Route.ROBOTS, fault)
    told = await omitted(harness)
    assert (told.reading.verdict, told.calls) == (Verdict.LATER, 1)
    assert told.reading.pause_ms is not None
    assert (await harness.stored()).robots_state == "unknown"
    assert routes(harness) == {"robots": 1}


async def test_an_unreachable_host_is_paused_and_the_permit_is_returned_unused(harness: PolitenessHarness):
    await met(harness)
    await harness.sim.stop()
    told = await omitted(harness)
    assert (told.reading.verdict, told.calls) == (Verdict.LATER, 0)
    assert told.reading.pause_ms is not None


async def test_a_host_with_a_retry_after_is_not_asked_earlier(harness: PolitenessHarness):
    await met(harness)
    harness = harness.again(robots_first_pause=timedelta(milliseconds=1))
    harness.sim.faults.inject_at(Route.ROBOTS, FaultKind.UNAVAILABLE)
    assert (await omitted(harness)).reading.pause_ms == 1_000


@pytest.mark.full
async def test_a_large_robots_txt_is_read_up_to_its_limit(opened: Open):
    group = RobotsGroup(disallow=("/cart/", *(f"/{n}/{'forbidden' * 100}" for n in range(600)), "/search"))
    harness = await met(await opened(RobotsSettings(groups=(group,))))
    await omitted(harness)
    assert says(await omitted(harness, "/cart/7"))[0] is Verdict.UNAVAILABLE
    assert (await harness.call()).status == 200  # its line is beyond what anybody has to read


async def test_an_outdated_robots_txt_is_read_again_and_its_new_rules_apply(opened: Open):
    harness = await met(await opened(LENIENT))
    await omitted(harness)
    assert (await harness.call()).status == 200
    harness.sim.set_robots(STRICT)
    harness.advance(DAY - timedelta(seconds=1))
    assert (await harness.call()).status == 200

    harness.advance(timedelta(seconds=1))

    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert says(await omitted(harness))[0] is Verdict.UNAVAILABLE
    assert (await harness.stored()).crawl_delay_ms == 7_000
    assert routes(harness) == {"robots": 2, "search": 2}


async def test_an_expired_robots_txt_that_cannot_be_read_again_allows_nothing(opened: Open):
    harness = await met(await opened(LENIENT))
    await omitted(harness)
    harness.sim.set_robots(RobotsSettings(status=503))
    harness.advance(DAY)
    assert (await omitted(harness)).reading.pause_ms is not None
    assert (await omitted(harness)).reading.pause_ms is not None
    assert routes(harness) == {"robots": 3}


async def test_a_redirect_is_followed_with_another_permit(harness: PolitenessHarness):
    await met(harness)
    harness.sim.faults.inject_at(Route.ROBOTS, FaultKind.REDIRECT)
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.stored()).robots_state == "unknown"
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.stored()).robots_state == "read"
    assert (await harness.call()).status == 200
    assert routes(harness) == {"robots": 2, "search": 1}
    assert harness.sim.report().broken == 0


async def test_a_banned_identity_does_not_change_the_rules(opened: Open):
    """Its 403 is the answer to it alone, and goes to whoever reads answers; another one can still ask."""
    harness = await met(await opened(limits=SEVERE))
    for n in (0, 1):
        await harness.book.add(f"i{n}", harness.sim.identities[n].headers)
    banned = harness.sim.identities[0]
    for status in (200, 429, 403):
        assert (await _directly(harness, banned.headers)).status == status

    assert (await harness.call(identity="i0")).status == 403
    assert (await harness.stored()).robots_state == "unknown"
    with pytest.raises(NotCalled, match="was read first"):
        await harness.call(identity="i1")
    with pytest.raises(NotCalled, match="forbids"):
        await harness.call("/cart/7", identity="i1")


async def test_known_rules_apply_longer_when_robots_txt_becomes_forbidden_for_all(opened: Open):
    harness = await met(
        await opened(STRICT, limits=LimitSettings(per_identity=1, strikes_until_ban=1, ban_is_announced=False))
    )
    await omitted(harness)
    harness.advance(DAY)
    for _ in range(3):  # the first is answered, and so that one is read
        await _directly(harness, {"User-Agent": harness.crawl.honest_user_agent})
    for _ in range(2):
        assert (await harness.call()).status == 403
    await omitted(harness)
    assert says(await omitted(harness))[0] is Verdict.UNAVAILABLE
    assert (await harness.stored()).crawl_delay_ms == 7_000


async def test_robots_txt_is_ignored_only_with_the_explicit_option(opened: Open):
    harness = await met(await opened(STRICT))
    assert (await harness.call(ignores_robots=True)).status == 200
    assert routes(harness) == {"search": 1}
    await omitted(harness)
    assert says(await omitted(harness))[0] is Verdict.UNAVAILABLE
    assert (await harness.call(ignores_robots=True)).status == 200


async def test_a_plain_request_is_polite_and_follows_no_redirect(harness: PolitenessHarness):
    await met(harness)
    await omitted(harness)
    headers = {"User-Agent": harness.crawl.honest_user_agent}
    forbidden = Request(url=f"{harness.sim.url}/cart/7", purpose="crawl.test", headers=headers)
    with pytest.raises(NotCalled, match="forbids"):
        await harness.caller.fetch(forbidden)
    harness.sim.faults.inject_at(Route.SEARCH, FaultKind.REDIRECT)
    allowed = Request(url=f"{harness.sim.url}/search?q=none", purpose="crawl.test", headers=headers)
    assert (await harness.caller.fetch(allowed)).status == 302


async def test_a_process_uses_rules_read_by_another(harness: PolitenessHarness):
    await met(harness)
    await omitted(harness)
    assert (await harness.again().call()).status == 200
    assert routes(harness) == {"robots": 1, "search": 1}


async def test_concurrent_callers_read_robots_txt_once(harness: PolitenessHarness):
    await met(harness)
    outcomes = await asyncio.gather(*(harness.call() for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(one, NotCalled) for one in outcomes) == 1
    assert sum(isinstance(one, Answer) for one in outcomes) == 19
    assert routes(harness) == {"robots": 1, "search": 19}


@pytest.mark.parametrize("ignores", [False, True])
async def test_an_unknown_host_is_registered_first_and_not_called(harness: PolitenessHarness, ignores: bool):
    """Of the permits that are out nobody knows how many there are."""
    told = await omitted(harness.again(delay=timedelta(seconds=3)), ignores_robots=ignores)
    assert says(told) == (Verdict.LATER, 0, 3_000, None)
    assert (await harness.stored()).robots_state == "unknown"
    assert harness.sim.arrivals() == []


async def test_an_unavailable_database_counts_no_attempt(harness: PolitenessHarness, monkeypatch: pytest.MonkeyPatch):
    await met(harness)

    async def away(*_: object) -> None:
        raise DatabaseUnavailable("the database is away")

    monkeypatch.setattr(harness.book.hosts, "known", away)
    told = await omitted(harness)
    assert says(told) == (Verdict.LATER, 0, 5_000, None)
    assert harness.sim.arrivals() == []


async def test_the_crawl_delay_is_the_pace_unless_the_setting_is_longer(opened: Open):
    harness = await met(await opened(LENIENT))
    await harness.book.register()
    assert (await harness.pace()).one_at_a_time
    await omitted(harness)
    assert (await harness.pace()).gap_ms == 2_000

    slower = harness.again(delay=timedelta(seconds=9))
    await slower.book.register()
    assert (await harness.pace()).gap_ms == 9_000


async def test_without_a_delay_calls_start_as_soon_as_the_rules_are_known(harness: PolitenessHarness):
    await met(harness)
    await harness.book.register()
    assert (await harness.pace()).one_at_a_time
    await omitted(harness)
    pace = await harness.pace()
    assert (pace.gap_ms, pace.one_at_a_time) == (0, False)


async def test_a_longer_crawl_delay_for_one_identity_slows_all_down_before_its_call(opened: Open):
    groups = (RobotsGroup(crawl_delay_s=1), RobotsGroup(agent="harbour", crawl_delay_s=30))
    harness = await met(await opened(RobotsSettings(groups=groups), crawl=POLITE))
    await harness.book.add("first", {"User-Agent": "somebody/1"})
    with pytest.raises(NotCalled):
        await harness.call(identity="first")
    assert (await harness.pace()).gap_ms == 1_000
    await harness.book.add("second", harness.sim.identities[0].headers)
    assert (await harness.pace()).gap_ms == 30_000
    assert (await harness.stored()).crawl_delay_ms == 30_000


async def test_a_deleted_host_is_asked_again(opened: Open):
    harness = await met(await opened(STRICT, crawl=CrawlSettings(delay=timedelta(seconds=1))))
    await harness.book.register()
    await omitted(harness)
    harness.sim.set_robots(RobotsSettings())
    await harness.book.hosts.forget(harness.host)
    pace = await harness.pace()
    assert (pace.gap_ms, pace.one_at_a_time) == (7_000, True)  # what it last asked for counts until it says otherwise
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.call()).status == 200
    assert (await harness.pace()).gap_ms == 1_000


async def test_a_host_deleted_by_another_process_is_read_again_within_a_minute(opened: Open):
    harness = await met(await opened(STRICT))
    await omitted(harness)
    harness.sim.set_robots(RobotsSettings())
    await harness.again().book.hosts.forget(harness.host)
    harness.advance(timedelta(minutes=1))
    assert says(await omitted(harness)) == (Verdict.LATER, 1, 0, None)
    assert (await harness.call()).status == 200


async def test_a_failed_connection_counts_as_a_call(harness: PolitenessHarness):
    """Else its permit would go back unused, and everybody who waits would knock at once, one after the other."""
    await met(harness)
    await omitted(harness)
    await harness.sim.stop()
    with pytest.raises(UpstreamFailed):
        await harness.call()  # by the connection that was open
    with pytest.raises(UpstreamFailed, match="no connection") as raised:
        await harness.call()
    assert raised.value.was_sent is None


async def _directly(harness: PolitenessHarness, headers: Mapping[str, str]) -> Answer:
    return await harness.client.fetch(
        Request(url=f"{harness.sim.url}/search?q=none", purpose="crawl.test", headers=headers)
    )


async def test_a_local_host_is_not_called_unless_it_is_listed(opened: Open):
    harness = await met(await opened(RobotsSettings()))
    async with UpstreamClient() as client:
        harness.caller = PoliteCaller(client, harness.book.hosts)
        with pytest.raises(NotCalled, match=r"upstream\.private_hosts") as refused:
            await harness.call()

    assert (refused.value.reading.verdict, refused.value.calls) == (Verdict.GONE, 0)
    assert harness.sim.arrivals() == []
