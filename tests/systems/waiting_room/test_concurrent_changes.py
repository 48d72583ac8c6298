"""Concurrent changes: a visitor leaves while being admitted, a room is installed while visitors join, a server loses
data."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.systems.waiting_room.harness import ROOM, SETTLE_AFTER, RoomHarness, add_visitors, inside, line
from tidegate.core.clock import milliseconds
from tidegate.core.errors import CommitUnknown
from tidegate.systems.waiting_room import InLine, Inside, NotPresent, installation, scripts
from tidegate.systems.waiting_room.installation import RoomInstaller
from tidegate.systems.waiting_room.model import VisitorAdmission
from tidegate.systems.waiting_room.room_store import NUMBERS_AT_FIRST, get
from tidegate.systems.waiting_room.scripts import room_keys
from tidegate.systems.waiting_room.session_store import is_place_used, leave

USERS = [f"user-{n:02}" for n in range(20)]


async def _dump(harness: RoomHarness, keys: Any) -> dict[str, bytes | None]:
    return {key: await harness.valkey.execute("DUMP", key) for key in keys.values()}


async def _bring_back(harness: RoomHarness, state: dict[str, bytes | None]) -> None:
    """The server was away, and has come back without what happened since."""
    for key, value in state.items():
        await harness.valkey.execute("DEL", key)
        if value is not None:
            await harness.valkey.execute("RESTORE", key, 0, value)
    await harness.valkey.execute("HSET", room_keys(harness.valkey, ROOM)["book"], "run", "an earlier one")
    harness.clock.advance(timedelta(milliseconds=10))  # no server is back sooner than that
    harness.valkey.losses += 1


async def test_a_visitor_who_joins_a_line_held_back_by_the_rate_wakes_the_leader(harness: RoomHarness):
    """The line was empty at the last check, so the time of the next one is not known yet."""
    room = await harness.open(capacity=10, admit_per_second=1)
    await add_visitors(room, "ada")
    await harness.run_worker()
    await harness.valkey.execute("DEL", room.line.keys["wake"])

    await add_visitors(room, "bob")

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    assert await harness.run_worker() == 1000
    harness.clock.advance(timedelta(seconds=1))
    await harness.run_worker()
    assert await inside(room, "ada", "bob") == ["ada", "bob"]


async def test_the_rate_continues_when_the_clock_of_the_server_is_set_back(harness: RoomHarness):
    room = await harness.open(capacity=10, admit_per_second=2)
    await add_visitors(room, *USERS)
    await harness.run_worker()
    harness.clock.advance(-timedelta(hours=1))

    next_in_ms = await harness.run_worker()

    assert next_in_ms is not None
    assert next_in_ms <= 1000, "no more than a second's worth was ever ahead"


@pytest.mark.every_server
async def test_a_visitor_who_leaves_while_the_pass_is_written_is_not_in_line_again(harness_on_each_server: RoomHarness):
    """A visitor is taken out of the line, leaves in SQL, the admission finds the row, and only then the server is
    updated."""
    room = await harness_on_each_server.open(capacity=2)
    await add_visitors(room, "ada", "bob")
    taken = await room.admitter.take()
    gone = next(entry for entry in taken.entries if entry.user == "ada")
    await harness_on_each_server.database.transaction(leave, ROOM, gone)

    await room.admitter.confirm(await room.admitter.write(taken))
    await room.admitter.release([gone], "left")

    assert await room.line.standing("ada") == NotPresent()
    assert await inside(room, "ada", "bob") == ["bob"]
    assert (await room.counts()).entering == 0


async def test_a_visitor_whose_leaving_did_not_reach_the_server_is_not_restored(harness: RoomHarness):
    """The process that recorded the departure died in between: at the deadline the row says that the visitor left."""
    room = await harness.open(capacity=1)
    await add_visitors(room, "ada", "bob")
    taken = await room.admitter.take()
    await harness.database.transaction(
        leave, ROOM, VisitorAdmission("ada", taken.entries[0].admission, taken.entries[0].place)
    )
    harness.clock.advance(SETTLE_AFTER)

    await harness.run_worker()

    assert await room.line.standing("ada") == NotPresent()
    assert await inside(room, "ada", "bob") == ["bob"]


async def test_named_users_are_admitted_also_while_the_room_is_restored(
    harness: RoomHarness, monkeypatch: pytest.MonkeyPatch
):
    room = await harness.open(capacity=1)
    write, crossed = room.admitter.write, 0

    async def install_first(taken: Any) -> Any:
        nonlocal crossed
        if not crossed:
            crossed += 1
            await room.installer.install()
        return await write(taken)

    monkeypatch.setattr(room.admitter, "write", install_first)

    assert await room.invite(["vip"]) == 1
    assert await inside(room, "vip") == ["vip"]


async def test_the_leader_learns_of_an_unfinished_invitation(harness: RoomHarness, monkeypatch: pytest.MonkeyPatch):
    """The worker sleeps, and nothing else would wake it: the admission would not be settled."""
    room = await harness.open(capacity=1)
    await harness.valkey.execute("DEL", room.line.keys["wake"])

    async def breaks(taken: Any) -> Any:
        raise CommitUnknown(f"of {taken}")

    monkeypatch.setattr(room.admitter, "write", breaks)
    with pytest.raises(CommitUnknown):
        await room.invite(["vip"])

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    assert await harness.run_worker() == milliseconds(SETTLE_AFTER)
    harness.clock.advance(SETTLE_AFTER)
    await harness.run_worker()
    assert await room.line.standing("vip") == NotPresent()


async def test_concurrent_restorations_restore_the_room_once(harness: RoomHarness):
    room = await harness.open(capacity=1)
    await harness.valkey.execute("FLUSHALL")
    before = (await harness.database.read(get, ROOM)).epoch

    answers = await asyncio.gather(*(room.join(user) for user in USERS))

    assert sorted(each.standing.place for each in answers if isinstance(each.standing, InLine))[-1] > len(USERS)
    after = (await harness.database.read(get, ROOM)).epoch
    assert after - before <= 2, "once to find that everything is lost, once with new numbers"


async def test_a_visitor_who_left_during_the_lost_writes_has_no_session(harness: RoomHarness):
    """Otherwise the place would stay occupied, and the visitor could neither buy nor join until the session's end."""
    room = await harness.open(capacity=2)
    passes = await add_visitors(room, *USERS[:4])
    await harness.run_worker()
    state = await _dump(harness, room.line.keys)
    await room.leave(passes[0])
    await harness.run_worker()
    assert await inside(room, *USERS[:4]) == USERS[1:3]
    await _bring_back(harness, state)

    await harness.run_worker()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, harness.valkey) == USERS[3:4]
    assert isinstance((await room.join(USERS[0])).standing, InLine)


async def test_a_visitor_who_came_and_went_during_the_lost_writes_is_not_admitted_again(harness: RoomHarness):
    room = await harness.open(capacity=2)
    passes = await add_visitors(room, *USERS[:4])
    state = await _dump(harness, room.line.keys)
    await harness.run_worker()
    await room.leave(passes[0])
    await harness.run_worker()
    await _bring_back(harness, state)

    await harness.run_worker()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, harness.valkey) == USERS[3:4]
    assert [user for user, _ in await harness.states()].count(USERS[0]) == 1


async def test_a_visitor_admitted_during_the_lost_writes_is_not_admitted_again(harness: RoomHarness):
    room = await harness.open(capacity=2)
    passes = await add_visitors(room, *USERS[:4])
    taken = await room.admitter.take()
    state = await _dump(harness, room.line.keys)
    await room.admitter.confirm(await room.admitter.write(taken))
    await room.leave(passes[0])
    await harness.run_worker()
    await _bring_back(harness, state)

    await harness.run_worker()
    harness.clock.advance(SETTLE_AFTER)
    await harness.run_worker()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, harness.valkey) == USERS[3:4]
    assert isinstance(await room.line.standing(USERS[1]), Inside)


@pytest.mark.parametrize("by", ["admission", "invitation"])
async def test_an_undetected_loss_of_data_does_not_overfill_a_room(harness: RoomHarness, by: str):
    """It knows that the room was not installed on this run of it."""
    room = await harness.open(capacity=2)
    passes = await add_visitors(room, *USERS[:5])
    state = await _dump(harness, room.line.keys)
    await harness.run_worker()
    await room.leave(passes[0])
    await harness.run_worker()
    harness.clock.advance(timedelta(seconds=1))
    await _bring_back(harness, state)
    harness.valkey.losses -= 1

    if by == "invitation":
        assert await room.invite(["vip"]) == 1
    await harness.run_worker()

    assert await inside(room, *USERS[:5]) == USERS[1:3]
    assert await line(room, harness.valkey) == USERS[3:5]
    assert [user for user, _ in await harness.states()].count(USERS[0]) == 1


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_visitor_whose_arrival_was_lost_shares_its_place_with_no_other(harness: RoomHarness, is_kept: bool):
    """Nobody is given a number of the moments that it forgot, though it comes back with the same state twice.

    Whoever keeps the room may not have seen yet that it was away.
    """
    room = await harness.open(capacity=0)
    await add_visitors(room, *USERS[:2])
    state = await _dump(harness, room.line.keys)
    passes = dict(zip(USERS[2:4], await add_visitors(room, *USERS[2:4]), strict=True))
    for user in ("new", "newer"):
        await _bring_back(harness, state)
        if is_kept:
            await harness.run_worker()
        [passes[user]] = await add_visitors(room, user)

    for user, token in passes.items():
        await room.join(user, token)

    everybody = [*USERS[:4], "new", "newer"]
    assert await line(room, harness.valkey) == everybody
    places = [at.place for at in (await room.standings(everybody)).standings if isinstance(at, InLine)]
    assert places == [1, 2, 3, 4, NUMBERS_AT_FIRST + 1, 2 * NUMBERS_AT_FIRST + 1]


@pytest.mark.parametrize("parts", [1, 2])
async def test_a_place_is_not_restored_for_a_visitor_who_came_and_went_since_sql_was_read(
    harness: RoomHarness, monkeypatch: pytest.MonkeyPatch, parts: int
):
    """The server lost the visitor and the admission, whose row is written after the query and ends soon.

    The server learns of it before the place is given, in one of the two parts of the installation, or in both.
    """
    room = await harness.open(capacity=2)
    state = await _dump(harness, room.line.keys)
    [token, _] = await add_visitors(room, "ada", "bob")
    taken = await room.admitter.take()
    await _bring_back(harness, state)
    read, tell, asked, told = harness.database.read, scripts.install, asyncio.Event(), asyncio.Event()

    async def ask(work: Any, *args: Any) -> Any:
        found = await read(work, *args)
        if work is is_place_used and not found:
            asked.set()
            await told.wait()
        return found

    async def tell_a_part(*args: Any, **rest: Any) -> Any:
        outcome = await tell(*args, **rest)
        if outcome == b"installed" and rest["is_last"] == parts - 1 and not told.is_set():
            told.set()
            await asyncio.wait([coming])
        return outcome

    monkeypatch.setattr(harness.database, "read", ask)
    monkeypatch.setattr(scripts, "install", tell_a_part)
    monkeypatch.setattr(installation, "_AT_ONCE", 1)
    coming = asyncio.create_task(room.join("ada", token))
    await asked.wait()
    await room.admitter.write(taken)
    for entry in taken.entries:
        await harness.database.transaction(leave, ROOM, entry)
    await RoomInstaller(harness.valkey, harness.database, room.admitter).install()

    again = (await coming).standing
    assert isinstance(again, InLine)
    assert again.place > 2, "from her old one she was let in"
    assert await line(room, harness.valkey) == ["ada"]


async def test_concurrent_restorations_of_a_room_all_succeed(harness: RoomHarness):
    """Each takes the pause from the one before; whoever finds that leaves the others the time to come to an end."""
    room = await harness.open()
    others = [RoomInstaller(harness.valkey, harness.database, room.admitter) for _ in range(8)]

    found = await asyncio.gather(*(each.install() for each in others))

    assert len({each.epoch for each in found}) == 8
    assert (await room.join("ada")).token
