"""What is answered to whom."""

import asyncio
from datetime import timedelta

import pytest

from tests.simulators.game.client import EPOCH, SMALL, restless, simulated
from tidegate_simulators.errors import InvalidArgument, NotFound
from tidegate_simulators.game import Behaviour, GameConfig, GameSimulator, WorldShape, extract_kept
from tidegate_simulators.game.world import World

SOME_MISSING = WorldShape(subjects=1_000, missing=0.3, body_bytes=30_000, kept_bytes=8_000, epoch=EPOCH)


async def test_a_character_is_returned_as_generated():
    async with simulated() as client:
        got = await client.character(17)
        truth = client.sim.truth(17)

        assert truth is not None
        assert (got.status, got.headers["content-type"]) == (200, "application/json")
        assert extract_kept(got.body) == truth.kept
        assert got.json["id"] == 17
        assert got.json["name"] == client.sim.name_of(17)
        assert truth.kept == client.sim.kept(17, got.json["version"])


async def test_a_body_is_compressed_for_clients_that_accept_it():
    async with simulated() as client:
        packed = await client.character(17, Accept_Encoding="br, gzip")
        plain = await client.character(17, Accept_Encoding="identity")

        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
        assert "content-encoding" not in plain.headers
        assert int(packed.headers["content-length"]) == len(packed.raw) < len(plain.raw) / 2
        assert packed.body == plain.body


@pytest.mark.parametrize(
    ("accepted", "packs"),
    [
        ("gzip", True),
        ("GZIP;q=0.5", True),
        ("*", True),
        ("deflate, *;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip; q=0, *", False),
        ("*;q=0", False),
        ("gzip;q=much", False),
        ("deflate", False),
        ("", False),
    ],
)
async def test_the_accept_encoding_header_is_interpreted(accepted: str, packs: bool):
    async with simulated() as client:
        got = await client.character(17, Accept_Encoding=accepted)

        assert ("content-encoding" in got.headers) == packs


async def test_nothing_is_compressed_when_disabled():
    async with simulated(behaviour=Behaviour(compress=False)) as client:
        assert "content-encoding" not in (await client.character(17, Accept_Encoding="gzip")).headers


async def test_some_characters_do_not_exist():
    async with simulated(world=SOME_MISSING) as client:
        statuses = {subject: (await client.character(subject)).status for subject in range(1, 60)}

        assert {subject for subject, status in statuses.items() if status == 404} == {
            subject for subject in range(1, 60) if not World(SOME_MISSING).exists(subject)
        }
        assert set(statuses.values()) == {200, 404}
        assert (await client.character(1_001)).status == 404
        assert (await client.character(0)).json["error"]["code"] == "not_found"
        assert client.sim.truth(1_001) is None
        with pytest.raises(NotFound):
            client.sim.kept(1_001, 1)


async def test_an_id_is_found_by_name():
    async with simulated(world=SOME_MISSING) as client:
        there = next(subject for subject in range(1, 60) if client.sim.world.exists(subject))
        missing = next(subject for subject in range(1, 60) if not client.sim.world.exists(subject))
        name = client.sim.name_of(there)

        assert (await client.get(f"/v1/ids?name={name.lower()}")).json == {"id": there, "name": name}
        for nobody in (client.sim.name_of(missing), client.sim.name_of(1_001), "Nobody", "%E2%82%AC"):
            assert (await client.get(f"/v1/ids?name={nobody}")).status == 404
        assert (await client.get("/v1/ids")).status == 400
        assert client.sim.report().by_route == {"ids": 6}


async def test_a_caller_without_a_key_gets_nothing_and_is_counted():
    async with simulated() as client:
        assert (await client.get("/v1/characters/1", key="")).status == 401
        assert (await client.get("/v1/characters/1", key="game_0")).status == 401

        report = client.sim.report()
        assert (report.by_outcome, report.broken, report.keys[0].calls) == ({"401": 2}, 0, 0)
        assert client.sim.calls_of(1) == 0


async def test_an_unknown_path_is_not_found():
    async with simulated() as client:
        for path in ("/", "/v1/characters/", "/v1/characters/one", "/v1/characters/12345678901", "/v2/characters/1"):
            assert (await client.get(path)).status == 404, path
        assert (await client.get("/v1/characters/%31%37")).json["id"] == 17


async def test_write_methods_are_refused():
    async with simulated() as client:
        got = await client.ask("POST", "/v1/characters/1", data=b"{}")

        assert (got.status, got.headers["allow"]) == (405, "GET, HEAD")


async def test_a_head_response_matches_the_full_response():
    async with simulated() as client:
        whole = await client.character(17)
        head = await client.ask("HEAD", "/v1/characters/17")

        assert (head.status, head.raw) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.raw))
        assert client.sim.calls_of(17) == 2


async def test_without_the_setting_no_etags_are_sent():
    async with simulated() as client:
        assert "etag" not in (await client.character(17)).headers
        assert (await client.character(17, If_None_Match="*")).status == 200


async def test_a_known_version_is_not_sent_again():
    async with simulated(behaviour=Behaviour(etags=True)) as client:
        tag = (await client.character(17)).headers["etag"]
        same = await client.character(17, If_None_Match=f'"other", {tag}')
        strong = await client.character(17, If_None_Match=tag.removeprefix("W/"))
        assert (same.status, same.raw, same.headers["etag"]) == (304, b"", tag)
        assert strong.status == 304
        assert "content-length" not in same.headers

        client.sim.change(17)
        changed = await client.character(17, If_None_Match=tag)
        assert (changed.status, changed.headers["etag"] != tag) == (200, True)
        assert client.sim.report().by_outcome == {"200": 2, "304": 2}


async def test_characters_change_as_world_time_passes():
    async with simulated(world=restless(60)) as client:
        before = (await client.character(17)).json
        client.sim.clock.advance(3_600)
        after = (await client.character(17)).json
        assert after["version"] > before["version"]

        past = client.sim.truth(17, EPOCH)
        now = client.sim.truth(17, EPOCH + timedelta(hours=1))
        assert past is not None
        assert now is not None
        assert (past.version, now.version) == (before["version"], after["version"])
        assert now.changed_at is not None
        assert EPOCH < now.changed_at <= EPOCH + timedelta(hours=1)
        assert after["meta"]["changed_at_ms"] == now.changed_at.timestamp() * 1_000
        assert after["meta"]["served_at_ms"] == (EPOCH + timedelta(hours=1)).timestamp() * 1_000


async def test_world_time_can_pass_faster_than_the_clock():
    fast = WorldShape(
        subjects=1_000,
        missing=0,
        body_bytes=30_000,
        kept_bytes=8_000,
        epoch=EPOCH,
        speed=3_600,
        tempi=restless(60).tempi,
    )
    async with simulated(world=fast) as client:
        client.ticks.advance(1)

        assert client.sim.clock.read() == (1_000_000, (EPOCH + timedelta(hours=1)).timestamp() * 1_000)
        assert client.sim.truth(17) == client.sim.truth(17, EPOCH + timedelta(hours=1))


async def test_a_time_without_a_time_zone_is_refused():
    async with simulated() as client:
        with pytest.raises(InvalidArgument, match="must name its time zone"):
            client.sim.truth(17, EPOCH.replace(tzinfo=None))
    with pytest.raises(InvalidArgument, match="must name its time zone"):
        WorldShape(epoch=EPOCH.replace(tzinfo=None))


async def test_a_port_in_use_is_refused_by_name():
    async with simulated() as client:
        port = int(client.sim.url.rpartition(":")[2])
        with pytest.raises(InvalidArgument, match=f"port is {port}: cannot listen there"):
            await GameSimulator(GameConfig(world=SMALL, port=port)).start()


async def test_the_true_state_is_available_from_the_control_api():
    async with simulated(world=restless(60)) as client:
        now = (await client.get("/admin/truth/17")).json
        past = (await client.get("/admin/truth/17?at=2025-12-31T00:00:00Z")).json
        truth = client.sim.truth(17)

        assert truth is not None
        assert (now["version"], now["kept"]) == (truth.version, truth.kept)
        assert past["version"] < now["version"]
        assert (await client.get("/admin/truth/1001")).json is None
        assert (await client.get("/admin/truth/x")).status == 400
        assert (await client.get("/admin/truth/17?at=noon")).status == 400
        assert client.sim.report().calls == 0, "nothing behind the stage is counted"


async def test_the_world_can_be_advanced_through_the_control_api():
    async with simulated(world=restless(None)) as client:
        before = (await client.character(17)).json["version"]
        assert (await client.ask("POST", "/admin/change/17")).json == {"subject": 17, "version": before + 1}
        assert (await client.character(17)).json["version"] == before + 1
        assert (await client.ask("POST", "/admin/change/1001")).status == 404

        moved = (await client.ask("POST", "/admin/clock", json={"advance_s": 60})).json
        assert moved["now_ms"] == (EPOCH.timestamp() + 60) * 1_000
        assert (await client.ask("POST", "/admin/clock", json={"advance_s": -60})).status == 400
        assert (await client.ask("POST", "/admin/clock", json={"back": 60})).status == 400
        told = (await client.get("/admin/world")).json
        assert (told["shape"]["subjects"], told["now_ms"], told["kept_fields"][0]) == (1_000, moved["now_ms"], "id")
        assert (await client.get("/admin/nothing")).status == 404
        assert (await client.get("/admin/report/17")).status == 404


@pytest.mark.full
async def test_hundreds_of_concurrent_readers_are_all_answered():
    async with simulated() as client:
        answers = await asyncio.gather(*(client.character(subject) for subject in range(1, 401)))

        assert {answer.status for answer in answers} == {200}
        assert [answer.json["id"] for answer in answers] == list(range(1, 401))
        report = client.sim.report()
        assert (report.calls, report.subjects_called, report.broken) == (400, 400, 0)
