"""What goes wrong on demand."""

import json

import aiohttp
import pytest

from tests.simulators.marketplace.client import simulated
from tests.waiting import lasting_at_least
from tidegate_simulators.marketplace import Behaviour, FaultKind, Route, parse_faults


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_call_fails_with_a_status(status: int):
    async with simulated(behaviour=Behaviour(retry_after_s=7)) as client:
        client.sim.faults.inject_at(None, FaultKind(str(status)))
        failed = await client.get("/search?q=lantern")
        assert failed.status == status
        assert failed.headers.get("retry-after") == ("7" if status in (429, 503) else None)
        assert client.sim.report().faults == {str(status): 1}
        assert client.sim.report().refused == {}, "nobody is to blame for it"
        client.ticks.advance(7)
        assert (await client.get("/search?q=lantern")).status == 200


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.RESET, aiohttp.ClientOSError),
        (FaultKind.TIMEOUT, aiohttp.ClientOSError),
        (FaultKind.TRUNCATED, aiohttp.ClientPayloadError),
    ],
)
async def test_an_answer_is_truncated_or_never_sent(kind: FaultKind, error: type[Exception]):
    async with simulated() as client:
        client.sim.faults.inject_at(None, kind)
        with pytest.raises(error):
            await client.get("/search?q=lantern")
        assert (await client.get("/search?q=lantern")).status == 200
        assert client.sim.report().identities[0].most_at_once == 1, "a call that broke is over"


async def test_a_slow_body_is_complete():
    async with simulated(behaviour=Behaviour(drip_s=0.1)) as client:
        whole = await client.get("/search?q=lantern")
        client.sim.faults.inject_at(None, FaultKind.SLOW)
        with lasting_at_least(0.08):
            assert (await client.get("/search?q=lantern")).body == whole.body


async def test_a_faulty_answer_may_have_status_200():
    async with simulated() as client:
        product = next(client.sim.world.products())
        detail, search = f"/api/products/{product.id}", "/search?q=lantern"
        honest = {path: await client.get(path, Accept_Encoding="identity") for path in (detail, search)}
        for path in (detail, search):
            tag = honest[path].headers["etag"]
            for kind in (FaultKind.CAPTCHA, FaultKind.WRONG, FaultKind.INVALID):
                client.sim.faults.inject_at(None, kind)
                got = await client.get(path, If_None_Match=tag)
                assert (got.status, "etag" in got.headers) == (200, False)
                assert got.body != honest[path].body
                if kind is FaultKind.CAPTCHA:
                    assert (got.headers["content-type"], "captcha" in got.text) == ("text/html; charset=utf-8", True)
                elif kind is FaultKind.INVALID:
                    assert honest[path].body.startswith(got.body)
                elif path == detail:
                    assert got.json.keys() != honest[path].json.keys()
                else:
                    assert got.cards == []
        client.sim.faults.inject_at(None, FaultKind.INVALID)
        with pytest.raises(json.JSONDecodeError):
            _ = (await client.get(detail)).json


async def test_a_redirect_leads_to_the_answer_and_a_loop_to_itself():
    async with simulated(behaviour=Behaviour(faults=parse_faults("redirect=1"))) as client:
        for path in ("/search?q=lantern", "/robots.txt"):
            sent = await client.get(path)
            assert sent.status == 302
            assert (await client.get(sent.headers["location"])).status == 200
        client.sim.faults.clear()
        client.sim.faults.inject_at(None, FaultKind.LOOP)
        looping = await client.get("/search?q=lantern")
        assert (looping.status, looping.headers["location"]) == (302, "/search?q=lantern")


async def test_a_fault_can_be_limited_to_one_route_and_robots_is_never_altered():
    async with simulated() as client:
        client.sim.faults.inject_at(Route.DETAIL, FaultKind.BAD_GATEWAY)
        assert (await client.get("/search?q=lantern")).status == 200
        assert (await client.get("/api/products/1")).status == 502
        assert (await client.get("/api/products/1")).status == 404

        assert (await client.post("/admin/faults", rules="captcha=1")).status == 200
        assert (await client.get("/robots.txt")).text.startswith("#")
        assert "captcha" in (await client.get("/api/products/1")).text
        assert (await client.post("/admin/faults", kind="500", route="search")).status == 200
        assert (await client.get("/search?q=rope")).status == 500
        for nonsense in ({"kind": "418"}, {}, {"rules": "captcha@moon=1"}, {"kind": "500", "times": 0}):
            assert (await client.post("/admin/faults", **nonsense)).status == 400
        assert (await client.get("/admin/faults", method="DELETE")).status == 200
        assert (await client.get("/search?q=rope")).status == 200


async def test_answers_have_a_latency():
    async with simulated(behaviour=Behaviour(latency_ms=30, jitter=0)) as client:
        with lasting_at_least(0.025):
            await client.get("/")
