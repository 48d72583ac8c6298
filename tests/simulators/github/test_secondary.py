"""Secondary limits."""

import asyncio
from datetime import timedelta

import pytest

from tests.simulators.github.client import Got, simulated
from tests.waiting import lasting_at_least
from tidegate_simulators.github import Behaviour, LimitSettings
from tidegate_simulators.github.secondary import SECONDARY, Sliding
from tidegate_simulators.stalls import LoopMonitor


def is_secondary(got: Got) -> bool:
    return got.status in (403, 429) and got.json["message"] == SECONDARY


async def test_a_hundred_concurrent_calls_pass_and_one_more_is_refused():
    limits = LimitSettings(at_once=10)
    async with simulated(limits=limits, behaviour=Behaviour(latency_ms=150, jitter=0)) as client:
        url = f"/users/{client.login}"
        assert [got.status for got in await asyncio.gather(*(client.get(url) for _ in range(10)))] == [200] * 10
        assert client.sim.report().broken == 0

        answers = await asyncio.gather(*(client.get(url) for _ in range(11)))
        assert sum(is_secondary(got) for got in answers) == 1
        report = client.sim.report()
        assert report.violations == {"too_many_at_once": 1}
        assert report.peak_at_once[f"user:{client.login}"] == 11


async def test_an_endpoint_has_nine_hundred_points_in_any_minute():
    async with simulated(limits=LimitSettings(points_per_minute=5)) as client:
        url, other = f"/users/{client.login}", f"/repos/{client.repo()}"
        for _ in range(3):
            assert (await client.get(url)).status == 200
        client.clock.advance(timedelta(seconds=59))
        for _ in range(2):
            assert (await client.get(url)).status == 200
        client.clock.advance(timedelta(milliseconds=500))
        assert (await client.get(other)).status == 200, "another endpoint has points of its own"

        got = await client.get(url)
        assert is_secondary(got)
        assert got.remaining > 0, "the primary limit has nothing to do with it"
        assert client.sim.report().violations == {"points_per_minute": 1}


@pytest.mark.parametrize(("late_s", "broken"), [(0.4, 1), (0.6, 0)])
async def test_points_that_may_belong_to_the_previous_minute_are_uncertain(
    late_s: float, broken: int, monkeypatch: pytest.MonkeyPatch
):
    """The first of six calls within 59.5 s was read late: it came up to `late_s` earlier."""
    delays_us = iter([round(late_s * 1e6), 0, 0, 0, 0, 0])
    monkeypatch.setattr(LoopMonitor, "delay_us", staticmethod(lambda: next(delays_us)))
    async with simulated(limits=LimitSettings(points_per_minute=5)) as client:
        statuses = [(await client.get(f"/users/{client.login}")).status]
        client.clock.advance(timedelta(seconds=59.5))
        statuses += [(await client.get(f"/users/{client.login}")).status for _ in range(5)]
        report = client.sim.report()

    assert (report.broken, report.uncertain, statuses[5] == 200) == (broken, 1 - broken, not broken)
    if not broken:
        [window] = report.uncertain_samples
        assert (window.rule, window.read, window.certain, window.limit) == ("points_per_minute", 6, 5, 5)


async def test_points_are_released_as_calls_age():
    async with simulated(limits=LimitSettings(points_per_minute=5)) as client:
        for _ in range(12):
            assert (await client.get(f"/users/{client.login}")).status == 200
            client.clock.advance(timedelta(seconds=13))

        assert client.sim.report().broken == 0


async def test_writing_costs_five_points():
    async with simulated(limits=LimitSettings(points_per_minute=9)) as client:
        first = await client.ask("POST", f"/repos/{client.repo()}/issues", json={"title": "x"})
        second = await client.ask("POST", f"/repos/{client.repo()}/issues", json={"title": "x"})

        assert not is_secondary(first)
        assert is_secondary(second)


async def test_graphql_has_its_own_points():
    limits = LimitSettings(points_per_minute=1, graphql_points_per_minute=3)
    async with simulated(limits=limits) as client:
        statuses = [(await client.query("{ viewer { login } }")).status for _ in range(4)]

        assert statuses[:3] == [200, 200, 200]
        assert statuses[3] in (403, 429)


async def test_computing_time_is_limited():
    async with simulated(limits=LimitSettings(cpu_s_per_minute=0.1, cpu_ms_per_call=20)) as client:
        answers = [await client.get(f"/users/{client.login}") for _ in range(6)]

        assert [is_secondary(got) for got in answers] == [False] * 5 + [True]
        assert client.sim.report().violations == {"cpu_per_minute": 1}


async def test_a_query_computes_in_proportion_to_its_nodes_and_takes_at_least_as_long():
    """So that whoever asks one thing after the other cannot use more computing time than passes."""
    query = f"query($id: ID!) {{ nodes(ids: [{', '.join(['$id'] * 100)}]) {{ id }} }}"
    async with simulated(limits=LimitSettings(cpu_s_per_minute=0.045, cpu_ms_per_call=0.001)) as client:
        node = (await client.get(f"/repos/{client.repo()}")).json["node_id"]
        with lasting_at_least(5 * 0.01):
            answers = [await client.query(query, id=node) for _ in range(6)]

        assert [is_secondary(got) for got in answers] == [False] * 5 + [True], "10 ms each; the fifth exceeds it"


async def test_a_pause_is_requested_with_and_without_retry_after():
    limits = LimitSettings(points_per_minute=1)
    async with simulated(limits=limits) as client:
        asked: set[str | None] = set()
        for _ in range(30):
            await client.get(f"/users/{client.login}")
            got = await client.get(f"/users/{client.login}")
            assert is_secondary(got)
            asked.add(got.headers.get("retry-after"))
            client.clock.advance(timedelta(seconds=61))

        assert asked == {None, "60"}


async def test_a_client_that_ignores_a_pause_waits_longer_each_time():
    limits = LimitSettings(points_per_minute=1, share_without_retry_after=0, grace_s=1)
    async with simulated(limits=limits) as client:
        url = f"/repos/{client.repo()}"
        await client.get(url)
        await client.get(url)
        assert is_secondary(await client.get(f"/users/{client.login}")), "a pause is for all endpoints"
        assert client.sim.report().violations == {"points_per_minute": 1}, "that one may have been on its way"

        client.clock.advance(timedelta(seconds=30))
        waits = [int((await client.get(f"/users/{client.login}")).headers["retry-after"]) for _ in range(3)]
        assert waits == [120, 240, 480]
        assert client.sim.report().violations["pause_ignored"] == 3

        client.clock.advance(timedelta(seconds=481))
        assert (await client.get(f"/users/{client.login}")).status == 200


async def test_many_calls_for_missing_resources_start_a_pause():
    async with simulated(limits=LimitSettings(not_found_per_minute=3)) as client:
        statuses = [(await client.get(f"/users/nobody-{i}")).status for i in range(4)]

        assert statuses == [404] * 4
        assert is_secondary(await client.get(f"/users/{client.login}"))
        assert client.sim.report().violations["too_many_not_found"] == 1


def test_a_sliding_sum_drops_values_older_than_a_minute():
    sums = Sliding(60)

    assert [sums.add(at, 1) for at in (0, 30, 59.9, 60, 90, 500)] == [1, 2, 3, 3, 3, 1]
