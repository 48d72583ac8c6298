"""Primary limits."""

from datetime import timedelta

import pytest

from tests.simulators.github.client import Client, simulated
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github import LimitSettings
from tidegate_simulators.github.windows import installation_quota

FEW = LimitSettings(quota=3)


async def exhaust(client: Client, calls: int = 3) -> None:
    for _ in range(calls):
        assert (await client.get(f"/users/{client.login}")).status == 200


async def test_every_answer_has_the_allowance():
    async with simulated(limits=FEW) as client:
        got = await client.get(f"/users/{client.login}")

        assert got.headers["x-ratelimit-limit"] == "3"
        assert got.headers["x-ratelimit-remaining"] == "2"
        assert got.headers["x-ratelimit-used"] == "1"
        assert int(got.headers["x-ratelimit-reset"]) == client.clock.now().timestamp() + 3_600
        assert got.headers["x-ratelimit-resource"] == "core"
        assert (await client.get("/users/nobody")).remaining == 1, "an error counts, and tells too"
        assert got.headers["vary"].startswith("Accept, Authorization")
        assert got.headers["date"] == "Thu, 01 Jan 2026 00:00:00 GMT"


async def test_a_call_beyond_the_allowance_is_refused_and_is_a_violation():
    async with simulated(limits=FEW) as client:
        await exhaust(client)
        refused = await client.get(f"/users/{client.login}")

        assert refused.status in (403, 429)
        owner_id = client.sim.world.require_account(client.login).id
        assert refused.json["message"] == f"API rate limit exceeded for user ID {owner_id}."
        assert refused.remaining == 0
        assert "retry-after" not in refused.headers
        report = client.sim.report()
        assert report.violations == {"primary_exhausted": 1}
        assert report.violation_samples[0].owner == f"user:{client.login}"
        assert report.refused == 1
        assert report.spent == {"core": 3}


async def test_refusals_use_both_statuses():
    async with simulated(limits=FEW) as client:
        await exhaust(client)

        assert {(await client.get(f"/users/{client.login}")).status for _ in range(30)} == {403, 429}


async def test_a_window_opens_with_its_first_call_and_lasts_its_length():
    async with simulated(limits=FEW) as client:
        client.clock.advance(timedelta(minutes=20))
        opened = client.clock.now().timestamp()
        await exhaust(client)

        client.clock.advance(timedelta(seconds=3_599))
        assert (await client.get(f"/users/{client.login}")).status in (403, 429)
        client.clock.advance(timedelta(seconds=1))
        got = await client.get(f"/users/{client.login}")
        assert (got.status, got.remaining) == (200, 2)

        first, second = client.sim.report().windows
        assert (first.used, first.limit, first.opened, first.ends, first.is_open) == (
            3,
            3,
            opened,
            opened + 3_600,
            False,
        )
        assert (second.used, second.is_open) == (1, True)


async def test_the_reset_is_a_whole_second_and_the_window_does_not_end_before_it():
    async with simulated(limits=LimitSettings(quota=1, window_s=5)) as client:
        client.clock.advance(timedelta(milliseconds=300))
        reset = int((await client.get(f"/users/{client.login}")).headers["x-ratelimit-reset"])
        assert reset == client.clock.now().timestamp() + 5.7

        client.clock.advance(timedelta(seconds=5.69))
        assert (await client.get(f"/users/{client.login}")).status != 200
        client.clock.advance(timedelta(milliseconds=10))
        assert (await client.get(f"/users/{client.login}")).status == 200


async def test_all_tokens_of_an_owner_share_one_allowance():
    async with simulated(users=2, limits=FEW) as client:
        await exhaust(client)
        second_token = client.sim.token_of(client.login, 1)
        somebody_else = client.sim.token_of(client.sim.world.logins()[1])

        assert (await client.get(f"/users/{client.login}", token=second_token)).status != 200
        assert (await client.get(f"/users/{client.login}", token=somebody_else)).status == 200
        assert client.sim.report().by_token[f"{client.login}#1"] == 1


async def test_buckets_are_separate():
    async with simulated(limits=FEW) as client:
        await exhaust(client)
        searched = await client.get(f"/search/issues?q=user:{client.login}")
        queried = await client.query("{ rateLimit { remaining } }")

        assert (searched.status, searched.headers["x-ratelimit-resource"], searched.remaining) == (200, "search", 29)
        assert (queried.status, queried.headers["x-ratelimit-resource"], queried.remaining) == (200, "graphql", 2)


async def test_search_has_a_window_of_a_minute():
    async with simulated(limits=LimitSettings(search_quota=2)) as client:
        url = f"/search/issues?q=user:{client.login}"
        assert [(await client.get(url)).status == 200 for _ in range(3)] == [True, True, False]

        client.clock.advance(timedelta(seconds=60))
        assert (await client.get(url)).status == 200
        assert (await client.get("/search/code?q=tide")).headers["x-ratelimit-limit"] == "10"


async def test_requesting_the_allowance_costs_nothing_and_opens_no_window():
    async with simulated(limits=FEW) as client:
        before = (await client.get("/rate_limit")).json["resources"]["core"]
        client.clock.advance(timedelta(seconds=100))
        later = (await client.get("/rate_limit")).json["resources"]["core"]
        assert (before["remaining"], later["remaining"]) == (3, 3)
        assert later["reset"] == before["reset"] + 100, "a window that has not opened ends one length from now"

        await exhaust(client)
        got = await client.get("/rate_limit")
        assert (got.status, got.json["rate"]["remaining"]) == (200, 0)
        assert client.sim.report().broken == 0


async def test_without_a_token_an_address_has_sixty_calls():
    async with simulated() as client:
        got = await client.get(f"/users/{client.login}", token="")
        assert (got.headers["x-ratelimit-limit"], got.remaining) == ("60", 59)
        for _ in range(59):
            await client.get(f"/users/{client.login}", token="")
        refused = await client.get(f"/users/{client.login}", token="")

        assert refused.status in (403, 429)
        assert refused.json["message"].startswith("API rate limit exceeded for 127.0.0.1.")


def test_the_limit_of_an_installation_grows_with_its_repositories():
    assert installation_quota(5_000, 20, 20) == 5_000
    assert installation_quota(5_000, 30, 25) == 5_750
    assert installation_quota(5_000, 1_000, 1_000) == 12_500


def test_limits_of_zero_are_refused():
    with pytest.raises(InvalidArgument, match="quota is 0"):
        LimitSettings(quota=0)
    with pytest.raises(InvalidArgument, match="share_of_429 is 2"):
        LimitSettings(share_of_429=2)
