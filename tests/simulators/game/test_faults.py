"""What goes wrong on demand: in the config, from behind the stage, for a share, for one character."""

import asyncio
import json
from collections.abc import Callable

import aiohttp
import pytest

from tests.simulators.game.client import simulated
from tests.waiting import lasting_at_least
from tidegate_simulators.errors import InvalidArgument
from tidegate_simulators.game import Behaviour, FaultKind, FaultRule, Tempo, parse_faults, parse_tempi

QUICK = Behaviour(hang_s=0, drip_s=0)


@pytest.mark.parametrize("status", [400, 429, 500, 502, 503, 504])
async def test_a_call_fails_with_a_status(status: int):
    async with simulated() as client:
        client.sim.faults.inject(FaultKind(str(status)))

        assert await client.statuses(2) == [status, 200]
        report = client.sim.report()
        assert (report.faults, report.by_outcome) == ({str(status): 1}, {str(status): 1, "200": 1})
        assert (report.broken, report.refused) == (0, 0), "nobody is to blame for an injected one"


async def test_an_arbitrary_refusal_has_a_retry_after():
    async with simulated(behaviour=Behaviour(retry_after_s=7)) as client:
        client.sim.faults.inject(FaultKind.REFUSED)

        assert (await client.character()).headers["retry-after"] == "7"


@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.TIMEOUT])
async def test_a_connection_is_closed_instead_of_an_answer(kind: FaultKind):
    async with simulated(behaviour=QUICK) as client:
        client.sim.faults.inject(kind)
        with pytest.raises(aiohttp.ClientOSError):
            await client.character()

        assert (await client.character()).status == 200
        assert client.sim.report().by_outcome == {kind.value: 1, "200": 1}
        assert client.sim.calls_of(1) == 2


async def test_an_unanswered_call_hangs():
    async with simulated(behaviour=Behaviour(hang_s=60)) as client:
        client.sim.faults.inject(FaultKind.TIMEOUT)

        with pytest.raises(TimeoutError):
            await client.ask("GET", "/v1/characters/1", timeout=aiohttp.ClientTimeout(total=0.2))


@pytest.mark.parametrize("packing", ["gzip", "identity"])
async def test_a_body_is_truncated(packing: str):
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.TRUNCATED)
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.character(Accept_Encoding=packing)

        assert (await client.character(Accept_Encoding=packing)).status == 200


async def test_a_slow_body_is_complete():
    async with simulated(behaviour=Behaviour(drip_s=0.2)) as client:
        whole = await client.character()
        client.sim.faults.inject(FaultKind.SLOW)
        with lasting_at_least(0.15):
            slow = await client.character()

        assert slow.body == whole.body
        assert (await client.character()).body == whole.body, "the connection goes on"


@pytest.mark.parametrize("packing", ["gzip", "identity"])
@pytest.mark.parametrize("path", ["/v1/characters/1", "/v1/ids"])
async def test_a_body_is_complete_but_no_json(packing: str, path: str):
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.INVALID)
        got = await client.get(path, Accept_Encoding=packing)

        assert got.headers["content-length"] == str(len(got.raw))
        with pytest.raises(json.JSONDecodeError):
            _ = got.json


async def test_a_body_is_that_of_another_character():
    async with simulated() as client:
        honest = (await client.character()).json
        client.sim.faults.inject(FaultKind.WRONG)
        got = (await client.character()).json

        assert got["id"] != honest["id"]
        assert got.keys() == honest.keys()


async def test_head_responses_have_no_body_faults():
    async with simulated() as client:
        for kind in (FaultKind.TRUNCATED, FaultKind.SLOW, FaultKind.INVALID):
            client.sim.faults.inject(kind)
            assert (await client.ask("HEAD", "/v1/characters/1")).status == 200


async def test_a_fault_can_be_limited_to_one_character_and_a_number_of_calls():
    async with simulated() as client:
        client.sim.faults.inject(FaultKind.BAD_GATEWAY, times=2, subject=5)

        assert await client.statuses(1, subject=4) == [200]
        assert await client.statuses(3, subject=5) == [502, 502, 200]


async def test_a_fixed_share_of_calls_fails_reproducibly():
    async def statuses() -> list[int]:
        async with simulated(behaviour=Behaviour(faults=parse_faults("500=0.2,502@7=0.5"))) as client:
            return [*await client.statuses(60), *await client.statuses(40, subject=7)]

    first = await statuses()
    assert first == await statuses()
    assert 4 < first[:60].count(500) < 24
    assert first[:60].count(502) == 0
    assert 5 < first[60:].count(502) < 30


async def test_faults_are_added_and_removed_through_the_control_api():
    async with simulated() as client:
        assert (await client.ask("POST", "/admin/faults", json={"kind": "503", "times": 1, "subject": 2})).status == 200
        assert await client.statuses(2, subject=2) == [503, 200]

        await client.ask("POST", "/admin/faults", json={"rules": "500=1"})
        assert await client.statuses(2) == [500, 500]
        await client.ask("DELETE", "/admin/faults")
        assert await client.statuses(2) == [200, 200]


@pytest.mark.parametrize(
    "nonsense",
    [{}, {"kind": "418"}, {"kind": "500", "times": 0}, {"kind": "500", "subject": 0}, {"rules": "500"}, {"x": 1}],
)
async def test_invalid_faults_are_refused(nonsense: dict[str, object]):
    async with simulated() as client:
        got = await client.ask("POST", "/admin/faults", json=nonsense)

        assert got.status == 400
        assert got.json["error"]["message"]


async def test_latency_varies_so_that_answers_overtake_each_other():
    async with simulated(behaviour=Behaviour(latency_ms=40, jitter=0.9)) as client:
        order: list[int] = []

        async def ask(subject: int) -> None:
            order.append((await client.character(subject)).json["id"])

        await asyncio.gather(*(ask(subject) for subject in range(1, 21)))
        assert sorted(order) == list(range(1, 21))
        assert order != sorted(order)


async def test_waiting_clients_are_disconnected_when_the_simulator_stops():
    async with simulated(behaviour=Behaviour(latency_ms=60_000)) as client:
        waiting = asyncio.create_task(client.character())
        while not client.sim.report().calls:
            await asyncio.sleep(0)
        await client.sim.stop()

        with pytest.raises(aiohttp.ClientConnectionError):
            await waiting


def test_rules_are_parsed():
    assert parse_faults("502=0.01, reset@17=1,") == (
        FaultRule(kind=FaultKind.BAD_GATEWAY, rate=0.01),
        FaultRule(kind=FaultKind.RESET, rate=1, subject=17),
    )
    assert parse_faults("") == ()
    assert parse_tempi("0.1=60, 0.9=never") == (Tempo(share=0.1, every_s=60), Tempo(share=0.9, every_s=None))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: parse_faults("418=1"),
        lambda: parse_faults("502"),
        lambda: parse_faults("502=2"),
        lambda: parse_faults("502@x=1"),
        lambda: parse_faults("502@0=1"),
        lambda: parse_tempi("60"),
        lambda: parse_tempi("1=often"),
        lambda: parse_tempi("1=0"),
        lambda: Behaviour(jitter=2),
        lambda: Behaviour(idle_s=0),
        lambda: Behaviour(latency_ms=-1),
    ],
)
def test_invalid_rules_are_refused(wrong: Callable[[], object]):
    with pytest.raises(InvalidArgument):
        wrong()
