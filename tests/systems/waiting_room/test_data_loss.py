"""Servers that go away, come back, and forget."""

import asyncio
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests.servers.migrated import migrated_database, migrated_file
from tests.servers.ports import free_ports
from tests.servers.proxy import Proxy
from tests.servers.sql import sql_server
from tests.servers.valkey import ValkeyServer
from tests.systems.waiting_room.harness import ROOM, SETTLE_AFTER, RoomHarness, add_visitors, harness_at, inside, line
from tests.waiting import patience
from tidegate.core.clock import ManualClock
from tidegate.core.errors import CommitUnknown, DatabaseUnavailable, ValkeyUnavailable
from tidegate.storage.valkey import Valkey
from tidegate.storage.valkey.connection import connected
from tidegate.storage.valkey.embedded import EmbeddedServer
from tidegate.systems.waiting_room import InLine, Inside, NotActive, require_active
from tidegate.systems.waiting_room.installation import _begin  # pyright: ignore[reportPrivateUsage]
from tidegate.systems.waiting_room.room_store import NUMBERS_AT_FIRST, NUMBERS_AT_ONCE, get
from tidegate.systems.waiting_room.scripts import pause

USERS = [f"user-{n:02}" for n in range(12)]


@pytest.mark.every_server
async def test_after_a_loss_of_data_sessions_are_restored_from_sql_before_any_admission(on_any_server: RoomHarness):
    harness = on_any_server
    room = await harness.open(capacity=3)
    passes = await add_visitors(room, *USERS)
    await harness.run_worker()
    await harness.valkey.execute("FLUSHALL")

    await room.join("new")  # whoever comes first has the room installed
    assert await inside(room, *USERS) == USERS[:3]
    for user, token in list(zip(USERS, passes, strict=True))[::-1]:
        await room.join(user, token)

    assert await line(room, harness.valkey) == [*USERS[3:], "new"]
    await harness.run_worker()
    assert await inside(room, *USERS, "new") == USERS[:3], "the room is full"


async def test_numbers_continue_above_all_numbers_given_before_the_loss(harness: RoomHarness):
    room = await harness.open(capacity=0)
    await add_visitors(room, "ada")
    await harness.valkey.execute("FLUSHALL")
    await harness.run_worker()

    places = [getattr((await room.join(user)).standing, "place", 0) for user in ("bob", "cem")]

    assert places == [NUMBERS_AT_FIRST + 1, NUMBERS_AT_FIRST + 2]


async def test_admission_ids_continue_above_those_in_sql(harness: RoomHarness):
    """Also where the clock stands still: two admissions of one number would be one."""
    room = await harness.open(capacity=5)
    await add_visitors(room, *USERS[:3])
    await harness.run_worker()
    await harness.valkey.execute("FLUSHALL")
    await add_visitors(room, *USERS[3:5])
    await harness.run_worker()

    assert await inside(room, *USERS) == USERS[:5]
    assert await harness.states() == [(user, "active") for user in USERS[:5]]


async def test_further_numbers_are_reserved_long_before_they_run_out(harness: RoomHarness):
    room = await harness.open(capacity=0)
    half = NUMBERS_AT_FIRST // 2
    await add_visitors(room, "the first, who always rings")
    await harness.valkey.execute("HSET", room.line.keys["book"], "arrivals", half - 1)
    await harness.valkey.execute("DEL", room.line.keys["wake"])

    await add_visitors(room, "ada")

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    await harness.run_worker()
    assert (
        int(await harness.valkey.execute("HGET", room.line.keys["book"], "reserved"))
        == NUMBERS_AT_FIRST + NUMBERS_AT_ONCE
    )
    assert int(await harness.valkey.execute("HGET", room.line.keys["book"], "arrivals")) == half


async def test_no_number_is_given_without_a_reservation_in_sql(harness: RoomHarness):
    """Whoever keeps the room was late: whoever comes has more of them set aside."""
    room = await harness.open(capacity=0)
    await harness.valkey.execute("HSET", room.line.keys["book"], "arrivals", NUMBERS_AT_FIRST - 1)

    places = [getattr((await room.join(user)).standing, "place", 0) for user in ("ada", "bob")]

    assert places == [NUMBERS_AT_FIRST, NUMBERS_AT_FIRST + 1]
    assert (await harness.database.read(get, ROOM)).reserved == NUMBERS_AT_FIRST + NUMBERS_AT_ONCE


async def test_a_pass_of_an_admitted_visitor_restores_no_old_place(harness: RoomHarness):
    """Neither after a loss nor at any other time; a visitor that was rolled back has not used the place."""
    room = await harness.open(capacity=1)
    ada, bob, _ = await add_visitors(room, "ada", "bob", "cem")
    await harness.run_worker()
    await room.leave((await room.status(ada)).token or "")
    await room.admitter.take()
    harness.clock.advance(SETTLE_AFTER)
    await room.admitter.settle((await room.admitter.due()).overdue)
    await harness.valkey.execute("FLUSHALL")

    assert isinstance((again := (await room.join("ada", ada)).standing), InLine)
    assert again.place > NUMBERS_AT_FIRST
    assert (await room.join("bob", bob)).standing == InLine(place=2, ahead=0, is_new=True)
    assert (await room.join("eve", bob)).standing == InLine(place=again.place + 1, ahead=2, is_new=True)


async def test_a_drawn_place_is_restored_unchanged(harness: RoomHarness):
    room = await harness.open(capacity=0)
    await harness.valkey.execute("HSET", room.line.keys["book"], "opens_ms", harness.clock.pinned_ms + 60_000)
    passes = await add_visitors(room, *USERS)
    before = await line(room, harness.valkey)
    await harness.valkey.execute("FLUSHALL")
    await add_visitors(room, "new")

    for user, token in zip(USERS, passes, strict=True):
        await room.join(user, token)

    assert await line(room, harness.valkey) == [*before, "new"]


async def test_a_server_that_lost_its_last_writes_gives_no_number_twice(harness: RoomHarness):
    room = await harness.open(capacity=0)
    passes = await add_visitors(room, *USERS)
    await harness.valkey.execute("HSET", room.line.keys["book"], "arrivals", 10)
    await harness.valkey.execute("ZREMRANGEBYRANK", room.line.keys["waiting"], 10, 11)

    await room.join(USERS[11], passes[11])

    assert await line(room, harness.valkey) == [*USERS[:10], USERS[11]]
    assert (await room.join("new")).standing == InLine(place=13, ahead=11, is_new=True)


async def test_a_server_with_restored_old_data_is_updated_with_the_sessions_of_sql(harness: RoomHarness):
    """Those who were admitted since are not let in a second time, and their places are not free."""
    room = await harness.open(capacity=2)
    await add_visitors(room, *USERS[:4])
    keys = room.line.keys
    kept = await harness.valkey.execute("DUMP", keys["waiting"])
    await harness.run_worker()
    await harness.valkey.execute("RESTORE", keys["waiting"], 0, kept, "REPLACE")
    await harness.valkey.execute("DEL", keys["active"], keys["admissions"])
    harness.valkey.losses += 1

    await harness.run_worker()

    assert await inside(room, *USERS[:4]) == USERS[:2]
    assert await line(room, harness.valkey) == USERS[2:4]
    assert await harness.states() == [(user, "active") for user in USERS[:2]]


async def test_during_a_server_outage_admitted_visitors_can_buy_and_none_is_admitted(
    tmp_path: Path, clock: ManualClock
):
    [port] = free_ports(1)
    with ValkeyServer(port=port) as server:
        assert server.url
        async with (
            Proxy(port) as wire,
            connected(f"redis://127.0.0.1:{wire.port}") as valkey,
            harness_at(await migrated_file(tmp_path / "rooms.db"), valkey, clock) as harness,
        ):
            room = await harness.open(capacity=2)
            await add_visitors(room, *USERS)
            await harness.run_worker()
            token = (await room.join(USERS[0])).token or ""
            clock.advance(timedelta(minutes=6))
            await wire.refuse()

            assert isinstance((await room.check(token)).standing, Inside)
            assert (await harness.database.transaction(require_active, ROOM, USERS[0])).user == USERS[0]
            assert isinstance((await room.renew(token)).standing, Inside)
            with pytest.raises(ValkeyUnavailable):
                await harness.run_worker()
            await wire.listen()
            await harness.run_worker()
            clock.advance(timedelta(minutes=4))
            await harness.run_worker()

            assert await inside(room, *USERS[:2]) == USERS[:1], "it was prolonged while the server was away"


async def test_a_killed_and_restarted_server_has_the_same_line(tmp_path: Path, clock: ManualClock):
    async with await EmbeddedServer.start(tmp_path) as server, connected(server.url) as valkey:
        valkey.on_unavailable = server.revive
        async with harness_at(await migrated_file(tmp_path / "rooms.db"), valkey, clock) as harness:
            room = await harness.open(capacity=2)
            await add_visitors(room, *USERS)
            await harness.run_worker()
            os.kill((await valkey.execute("INFO", "server"))["process_id"], signal.SIGKILL)

            with suppress(ValkeyUnavailable):
                await valkey.execute("PING")
            async with patience():
                while True:
                    with suppress(ValkeyUnavailable):
                        await harness.run_worker()
                        break

            assert await inside(room, *USERS) == USERS[:2]
            assert await line(room, valkey) == USERS[2:]


async def test_during_a_database_outage_no_visitor_is_admitted_and_all_keep_their_places(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with migrated_database("postgres", tmp_path) as url:
        port = sql_server("postgres").port
        async with (
            Proxy(port) as wire,
            harness_at(url.replace(f":{port}/", f":{wire.port}/"), embedded, clock) as harness,
        ):
            room = await harness.open(capacity=2)
            await add_visitors(room, *USERS[:1])
            await harness.run_worker()
            await add_visitors(room, *USERS)
            await wire.refuse()

            for _ in range(2):
                with pytest.raises(DatabaseUnavailable):
                    await harness.run_worker()
                assert await line(room, embedded) == USERS[1:]
            assert isinstance((await room.join("new")).standing, InLine), "people can come"
            await wire.listen()
            await harness.run_worker()

            assert await inside(room, *USERS) == USERS[:2]
            clock.advance(timedelta(minutes=10))
            await wire.refuse()
            with pytest.raises(DatabaseUnavailable):
                await harness.run_worker()
            assert (await room.counts()).active == 2, "SQL has not said that they are gone"
            with pytest.raises(NotActive):
                await room.check((await room.join(USERS[0])).token or "")
            await wire.listen()
            await asyncio.gather(*(room.join(user) for user in USERS))
            await harness.run_worker()
            assert (await room.counts()).active == 2


async def test_a_commit_with_unknown_outcome_is_settled_by_the_state_in_sql(
    tmp_path: Path, embedded: Valkey, clock: ManualClock
):
    async with migrated_database("postgres", tmp_path) as url:
        port = sql_server("postgres").port
        async with (
            Proxy(port) as wire,
            harness_at(url.replace(f":{port}/", f":{wire.port}/"), embedded, clock) as harness,
        ):
            room = await harness.open(capacity=2)
            await add_visitors(room, *USERS)
            wire.cut_after(b"COMMIT;")

            with pytest.raises(CommitUnknown):
                await harness.run_worker()

            assert (await room.counts()).entering == 2, "nobody knows whether they are inside"
            await harness.run_worker()
            assert await inside(room, *USERS) == USERS[:2]
            assert await harness.states() == [(user, "active") for user in USERS[:2]]


async def test_between_reading_sql_and_restoring_no_visitor_is_admitted(harness: RoomHarness):
    """A visitor that was inside at the read may have left by then, and counts until that is known: the place is not
    free."""
    room = await harness.open(capacity=2)
    await add_visitors(room, *USERS)
    await harness.run_worker()
    paused = await room.installer._pause("of whoever installs it")  # pyright: ignore[reportPrivateUsage]
    truth = await harness.database.transaction(_begin, ROOM, paused)
    await room.leave((await room.join(USERS[0])).token or "")

    taken = await room.admitter.take()
    await room.installer._send(truth, paused)  # pyright: ignore[reportPrivateUsage]

    assert (taken.entries, taken.next_in_ms) == ([], 5000)
    assert (await room.counts()).active == 2
    await harness.run_worker()
    harness.clock.advance(timedelta(minutes=10))
    await room.standings(USERS)
    await harness.run_worker()
    assert (await room.counts()).active == 2


async def test_an_outdated_restoration_has_no_effect(harness: RoomHarness):
    """It was slow; another one was quicker, and people were let in since. It has to look at SQL again."""
    room = await harness.open(capacity=2)
    await add_visitors(room, *USERS)
    await harness.run_worker()
    paused = await room.installer._pause("slow")  # pyright: ignore[reportPrivateUsage]
    await room.installer.install()
    truth = await harness.database.transaction(_begin, ROOM, paused)
    await room.leave((await room.join(USERS[0])).token or "")
    taken = await room.admitter.take()

    assert await room.installer._send(truth, paused) == b"late"  # pyright: ignore[reportPrivateUsage]

    counts = await room.counts()
    assert (len(taken.entries), counts.active + counts.entering) == (1, 2)


@pytest.mark.parametrize("loses_all", [True, False])
async def test_numbers_reserved_for_one_run_of_the_server_are_used_in_no_other(harness: RoomHarness, loses_all: bool):
    """They were given there, which this run does not know: the install is sent again where its reply was lost."""
    room = await harness.open(capacity=0)
    book = room.line.keys["book"]
    await harness.valkey.execute("HSET", book, "run", "the one before")
    paused = await room.installer._pause("first here, then there")  # pyright: ignore[reportPrivateUsage]
    truth = await harness.database.transaction(_begin, ROOM, paused)
    if loses_all:
        await harness.valkey.execute("DEL", book)
    else:
        paused = paused._replace(run="the one between")

    assert await room.installer._send(truth, paused) == b"late"  # pyright: ignore[reportPrivateUsage]

    await room.installer.install()
    assert (await room.join("ada")).standing == InLine(place=2 * NUMBERS_AT_FIRST + 1, ahead=0, is_new=True)


async def test_a_process_that_died_during_a_restoration_is_not_waited_for(harness: RoomHarness):
    room = await harness.open(capacity=2)
    await add_visitors(room, *USERS)
    await pause(harness.valkey, token="dead", fence=0, lasts_ms=5000, now_ms=harness.clock.pinned_ms, **room.line.keys)

    assert await harness.run_worker() == 5000
    assert await inside(room, *USERS) == []
    harness.clock.advance(timedelta(seconds=5))
    await harness.run_worker()

    assert await inside(room, *USERS) == USERS[:2]
