"""Limits and bans as a crawler meets them: by identity, by host, and who it is that calls."""

from tests.simulators.marketplace.client import simulated
from tidegate_simulators.marketplace import LimitSettings, WorldShape

TWO = WorldShape(products=60, hosts=2)


async def test_an_identity_above_its_limit_is_told_how_long_to_wait():
    limits = LimitSettings(per_identity=2, identity_window_s=10, strikes_until_ban=None)
    async with simulated(limits=limits, world=TWO) as client:
        assert await client.statuses(2) == [200, 200]
        client.ticks.advance(4)
        refused = await client.get("/")
        assert (refused.status, refused.headers["retry-after"]) == (429, "6")
        assert refused.json["error"]["code"] == "identity_rate"
        assert await client.statuses(1, who=1) == [200], "others are served"
        assert await client.statuses(1, host=1) == [200], "and at another host it is too"

        client.ticks.advance(6)
        assert await client.statuses(3) == [200, 200, 429]
        assert client.sim.report().refused == {"identity_rate": 2}


async def test_an_identity_that_continues_is_banned_at_that_host_temporarily():
    limits = LimitSettings(per_identity=1, identity_window_s=1, strikes_until_ban=2, ban_s=30)
    async with simulated(limits=limits, world=TWO) as client:
        assert await client.statuses(4) == [200, 429, 429, 403]
        client.ticks.advance(10)
        banned = await client.get("/")
        assert (banned.status, banned.headers["retry-after"]) == (403, "20")
        assert banned.json["error"]["code"] == "identity_banned"
        assert (await client.get("/robots.txt")).status == 403
        assert await client.statuses(1, host=1) == [200]
        assert await client.statuses(1, who=1) == [200]

        client.ticks.advance(20)
        assert await client.statuses(2) == [200, 429]
        [identity, _] = client.sim.report().identities
        assert (identity.name, identity.bans, identity.refused) == ("identity-0", 1, 6)


async def test_an_overloaded_host_refuses_all_clients_and_then_bans_them():
    limits = LimitSettings(
        per_identity=None, per_host=3, host_window_s=1, host_strikes_until_ban=2, host_ban_s=60, ban_is_announced=False
    )
    async with simulated(limits=limits, world=TWO) as client:
        assert [(await client.get("/", who=who)).status for who in range(4)] == [200, 200, 200, 429]
        assert await client.statuses(1, host=1) == [200]
        assert await client.statuses(2, who=1) == [429, 403]
        client.ticks.advance(59)
        banned = await client.get("/", who=2)
        assert (banned.status, banned.json["error"]["code"]) == (403, "host_banned")
        assert "retry-after" not in banned.headers
        client.ticks.advance(1)
        assert await client.statuses(1, who=2) == [200]


async def test_bans_can_be_set_and_lifted_through_the_control_api():
    async with simulated(world=TWO) as client:
        assert (await client.post("/admin/ban", identity="identity-1", host=0, for_s=60)).status == 200
        assert await client.statuses(1, who=1) == [403]
        assert await client.statuses(1, who=1, host=1) == [200]
        assert (await client.post("/admin/pardon")).status == 200
        assert await client.statuses(1, who=1) == [200]
        assert (await client.post("/admin/ban", identity="nobody")).status == 404
        assert (await client.post("/admin/ban", identity="identity-1", host=2)).status == 400
        assert (await client.post("/admin/ban", identity="identity-1", for_s=0)).status == 400


async def test_an_identity_is_a_user_agent_and_a_cookie():
    limits = LimitSettings(per_identity=1, strikes_until_ban=None)
    async with simulated(limits=limits) as client:
        assert await client.statuses(2, who="Honest/1.0") == [200, 429]
        assert await client.statuses(1, who="Honest/2.0") == [200]
        assert (await client.get("/", who="Honest/1.0", Cookie="sid=own")).status == 200
        assert (await client.get("/", who="Honest/1.0", Cookie="theme=dark; sid=own")).status == 429
        names = [identity.name for identity in client.sim.report().identities]
        assert names == ["Honest/1.0", "Honest/2.0", "Honest/1.0 #2"]


async def test_a_client_without_an_identity_is_refused():
    async with simulated(only_known=True) as client:
        assert await client.statuses(1) == [200]
        for who in ("Honest/1.0", ""):
            refused = await client.get("/", who=who)
            assert (refused.status, refused.json["error"]["code"]) == (403, "unknown_identity")
    async with simulated() as client:
        assert [(await client.get("/", who=who)).status for who in ("Honest/1.0", "")] == [200, 403]
