"""What goes wrong on demand."""

import asyncio
import json
from collections.abc import Callable

import aiohttp
import pytest

from tests.simulators.github.client import Client, simulated
from tests.waiting import lasting_at_least
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.github import Behaviour, FaultKind, FaultRule, LimitSettings, Sizes, parse_faults


def issues(client: Client) -> str:
    return f"/repos/{client.repo()}/issues?state=all&per_page=100"


@pytest.mark.parametrize("kind", [FaultKind.SERVER_ERROR, FaultKind.BAD_GATEWAY, FaultKind.GATEWAY_TIMEOUT])
async def test_a_server_error_counts_and_has_no_rate_limit_headers(kind: FaultKind):
    async with simulated() as client:
        client.sim.faults.inject(kind)
        failed = await client.get(issues(client))
        again = await client.get(issues(client))

        assert failed.status == int(kind)
        assert "x-ratelimit-remaining" not in failed.headers
        assert (again.status, again.remaining) == (200, 4_998)
        report = client.sim.report()
        assert (report.faults, report.retries_after_faults) == ({kind.value: 1}, 1)


@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.TIMEOUT])
async def test_a_closed_connection_counts_as_a_call(kind: FaultKind):
    async with simulated() as client:
        client.sim.faults.inject(kind)
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(issues(client))

        assert (await client.get(issues(client))).remaining == 4_998
        assert client.sim.report().by_status == {kind.value: 1, "200": 1}


async def test_a_hanging_call_exceeds_the_timeout_of_the_client():
    async with simulated(behaviour=Behaviour(hang_s=30)) as client:
        client.sim.faults.inject(FaultKind.TIMEOUT)

        with pytest.raises(TimeoutError):
            await client.ask("GET", issues(client), timeout=aiohttp.ClientTimeout(total=0.2))


@pytest.mark.parametrize("packing", ["gzip", "identity"])
async def test_a_body_is_truncated(packing: str):
    async with simulated(sizes=Sizes(issues=100)) as client:
        client.sim.faults.inject(FaultKind.TRUNCATED, route="repo.issues")
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.get(issues(client), Accept_Encoding=packing)

        assert (await client.get(issues(client), Accept_Encoding=packing)).status == 200


async def test_a_slow_body_is_complete():
    async with simulated(sizes=Sizes(issues=100), behaviour=Behaviour(drip_s=0.2)) as client:
        whole = await client.get(issues(client))
        client.sim.faults.inject(FaultKind.SLOW)
        with lasting_at_least(0.15):
            slow = await client.get(issues(client))

        assert slow.body == whole.body


async def test_a_body_with_status_200_is_no_json():
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.INVALID)
        got = await client.get(issues(client))

        assert got.status == 200
        with pytest.raises(json.JSONDecodeError):
            _ = got.json


async def test_an_answer_is_not_ready_at_first():
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.PENDING)

        assert [(await client.get(issues(client))).status for _ in range(2)] == [202, 200]


async def test_an_unprovoked_secondary_limit_enforces_its_pause():
    async with simulated(limits=LimitSettings(grace_s=0, share_without_retry_after=0)) as client:
        client.sim.faults.inject(FaultKind.SECONDARY)
        got = await client.get(issues(client))

        assert got.status in (403, 429)
        assert (got.headers["retry-after"], got.remaining) == ("60", 5_000)
        assert client.sim.report().broken == 0, "nobody is to blame for an injected one"


async def test_a_fault_can_be_limited_to_matching_calls_and_a_number():
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.SERVER_ERROR, times=2, route="repo.issues", contains="page=2")
        assert (await client.get(f"/users/{client.login}")).status == 200
        assert (await client.get(issues(client))).status == 200

        statuses = [(await client.get(issues(client) + "&page=2")).status for _ in range(3)]
        assert statuses == [500, 500, 200]


async def test_a_fixed_share_of_calls_fails_reproducibly():
    async def statuses() -> list[int]:
        rules = parse_faults("500=0.2,502@user=0.3")
        async with simulated(behaviour=Behaviour(faults=rules, error_pause_s=0)) as client:
            return [(await client.get(f"/users/{client.login}")).status for _ in range(100)]

    first = await statuses()
    assert first == await statuses()
    assert 10 < first.count(500) < 35
    assert 10 < first.count(502) < 45


async def test_latency_varies_so_that_answers_overtake_each_other():
    async with simulated(behaviour=Behaviour(latency_ms=40, jitter=0.9)) as client:
        order: list[int] = []

        async def ask() -> None:
            order.append((await client.get(f"/users/{client.login}")).remaining)

        await asyncio.gather(*(ask() for _ in range(20)))
        assert sorted(order, reverse=True) == list(range(4_999, 4_979, -1))
        assert order != sorted(order, reverse=True)


async def test_large_bodies_are_compressed_for_clients_that_accept_it():
    async with simulated(sizes=Sizes(issues=100)) as client:
        packed = await client.get(issues(client), Accept_Encoding="gzip")
        plain = await client.get(issues(client), Accept_Encoding="identity")

        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
        assert packed.body == plain.body
        assert packed.headers["etag"] == plain.headers["etag"]


def test_rules_are_parsed():
    assert parse_faults("502=0.01, reset@repo.issues=1,") == (
        FaultRule(kind=FaultKind.BAD_GATEWAY, rate=0.01),
        FaultRule(kind=FaultKind.RESET, rate=1, route="repo.issues"),
    )
    assert parse_faults("") == ()


@pytest.mark.parametrize(
    "wrong", [lambda: parse_faults("503=1"), lambda: parse_faults("502"), lambda: parse_faults("502=2")]
)
def test_invalid_rules_are_refused(wrong: Callable[[], object]):
    with pytest.raises(InvalidArgument):
        wrong()


async def test_unknown_routes_are_refused():
    async with simulated() as client:
        with pytest.raises(InvalidArgument, match=r"must be one of app"):
            client.sim.faults.inject(FaultKind.RESET, route="issues")
