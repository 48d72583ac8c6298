"""Limits as a client meets them, and the account of who broke them."""

import asyncio
import tracemalloc

from tests.simulators.game.client import simulated
from tidegate_simulators.game import LimitSettings
from tidegate_simulators.game.ledger import Ledger
from tidegate_simulators.stalls import StallReport


async def test_a_call_beyond_the_second_is_refused_and_counts_as_a_strike():
    async with simulated(limits=LimitSettings(per_second=3)) as client:
        assert await client.statuses(3) == [200] * 3
        client.ticks.advance(0.25)
        refused = await client.character()

        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.json["error"]["code"] == "per_second"
        report = client.sim.report()
        key = report.keys[0]
        assert (report.broken, report.refused, report.most_in_a_second) == (1, 1, 4)
        assert (key.strikes, key.refused, key.seconds_over) == (1, {"per_second": 1}, 1)

        client.ticks.advance(0.75)
        assert (await client.character()).status == 200


async def test_a_call_beyond_the_daily_limit_is_refused_until_the_day_has_capacity():
    async with simulated(limits=LimitSettings(per_day=4, day_s=100)) as client:
        for _ in range(4):
            assert (await client.character()).status == 200
            client.ticks.advance(20)
        refused = await client.character()
        assert (refused.status, refused.headers["retry-after"]) == (429, "20")
        assert refused.json["error"]["code"] == "per_day"

        client.ticks.advance(20)
        assert await client.statuses(2) == [200, 429]
        key = client.sim.report().keys[0]
        assert (key.most_in_a_day, key.calls_of_the_day, key.days_over, key.strikes) == (4, 4, 2, 2)


async def test_too_many_strikes_ban_the_key_temporarily():
    async with simulated(limits=LimitSettings(per_second=1, strikes_until_ban=2, ban_s=30)) as client:
        assert await client.statuses(4) == [200, 429, 429, 403]
        client.ticks.advance(10)
        banned = await client.character()
        assert (banned.status, banned.headers["retry-after"]) == (403, "20")
        key = client.sim.report().keys[0]
        assert (key.banned, key.bans, key.strikes, key.broken) == (True, 1, 2, 4)

        client.ticks.advance(20)
        assert (await client.character()).status == 200
        assert (client.sim.report().keys[0].banned, client.sim.report().keys[0].strikes) == (False, 0)


async def test_a_ban_can_be_lifted_through_the_control_api():
    async with simulated(limits=LimitSettings(per_second=1, strikes_until_ban=1)) as client:
        assert await client.statuses(3) == [200, 429, 403]
        assert (await client.ask("POST", "/admin/pardon")).status == 200

        client.ticks.advance(1)
        assert (await client.character()).status == 200


async def test_without_a_strike_limit_no_key_is_banned():
    async with simulated(limits=LimitSettings(per_second=1, strikes_until_ban=None)) as client:
        assert await client.statuses(150) == [200] + [429] * 149


async def test_every_key_has_its_own_limits():
    async with simulated(limits=LimitSettings(per_second=2, keys=2)) as client:
        first, second = client.sim.api_keys
        assert client.sim.api_key == first != second
        assert await client.statuses(3) == [200, 200, 429]
        assert (await client.get("/v1/characters/1", key=second)).status == 200

        report = client.sim.report()
        assert [(key.key, key.calls, key.broken) for key in report.keys] == [("key-0", 3, 1), ("key-1", 1, 0)]
        assert first not in str(report)


async def test_of_concurrent_calls_exactly_as_many_as_allowed_are_admitted():
    async with simulated(limits=LimitSettings(per_second=50, strikes_until_ban=None)) as client:
        answers = await asyncio.gather(*(client.character(subject) for subject in range(1, 201)))

        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (50, 150)
        report = client.sim.report()
        assert (report.most_in_a_second, report.broken, report.keys[0].strikes) == (200, 150, 150)


async def test_a_client_within_the_limit_causes_no_breach():
    async with simulated(limits=LimitSettings(per_second=5)) as client:
        for _ in range(20):
            assert (await client.character()).status == 200
            client.ticks.advance(0.2)

        report = client.sim.report()
        assert (report.broken, report.refused, report.most_in_a_second) == (0, 0, 5)
        assert report.per_second == [5, 5, 5, 5]
        assert report.first_second == 0


async def test_every_call_is_counted_by_character_and_outcome():
    async with simulated() as client:
        await client.statuses(3, subject=5)
        await client.statuses(1, subject=6)
        await client.character(2_000)
        await client.get("/v1/ids?name=Nobody")

        report = client.sim.report()
        assert report.calls == 6
        assert report.by_route == {"characters": 5, "ids": 1}
        assert report.by_outcome == {"200": 4, "404": 2}
        assert report.most_called == [(5, 3), (6, 1), (2_000, 1)]
        assert (client.sim.calls_of(5), client.sim.calls_of(7)) == (3, 0)
        assert (await client.get("/admin/calls/5")).json == {"subject": 5, "calls": 3}


async def test_bytes_and_computing_time_are_reported():
    async with simulated() as client:
        got = await client.character()
        report = client.sim.report()

        assert report.bytes_sent == len(got.raw)
        assert report.connections == 1
        assert report.cost.cpu_us_per_call is not None
        assert report.cost.cpu_s == report.cost.cpu_user_s + report.cost.cpu_system_s > 0
        assert report.cost.largest_memory_mb > 10


async def test_the_proof_is_reported_over_http_and_can_be_restarted():
    async with simulated(limits=LimitSettings(per_second=1)) as client:
        await client.statuses(2)
        told = (await client.get("/admin/report")).json
        assert (told["calls"], told["broken"], told["keys"][0]["strikes"]) == (2, 1, 1)

        assert (await client.ask("POST", "/admin/clear")).status == 200
        report = client.sim.report()
        assert (report.calls, report.broken, report.bytes_sent < 300) == (0, 0, True)
        assert report.cost.cpu_us_per_call is None


async def test_calls_for_characters_beyond_the_bound_are_counted_together():
    async with simulated(subjects_counted=2) as client:
        for subject in (1, 2, 3, 3, 1):
            await client.character(subject)

        report = client.sim.report()
        assert (report.calls, report.subjects_called, report.calls_uncounted) == (5, 2, 2)
        assert report.most_called == [(1, 2), (2, 1)]


def test_the_size_of_the_counters_does_not_depend_on_the_number_of_calls():
    ledger = Ledger(subjects_counted=100)
    tracemalloc.start()
    try:
        for call in range(20_000):
            ledger.book("characters", 200, call * 1_000_000)
            ledger.book_subject(call)
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert ledger.report([], StallReport(0, 0, 0)).calls == 20_000


def test_idle_seconds_are_recorded():
    ledger = Ledger(subjects_counted=1)
    for second in (3, 3, 6):
        ledger.book("characters", 200, second * 1_000_000)

    report = ledger.report([], StallReport(0, 0, 0))
    assert (report.first_second, report.per_second) == (3, [2, 0, 0, 1])
    ledger.book("characters", 200, 10_000 * 1_000_000)
    assert len(ledger.report([], StallReport(0, 0, 0)).per_second) == 3_600
