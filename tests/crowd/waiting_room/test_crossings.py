"""Two things at once: one leaves while he is let in, a room is installed while people come, a server forgets."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.crowd.waiting_room.venue import ROOM, SETTLE_AFTER, Venue, come, inside, line
from tidegate.crowd.waiting_room import Inside, Nowhere, Waiting
from tidegate.crowd.waiting_room.keys import room_keys
from tidegate.crowd.waiting_room.recovery import Recovery
from tidegate.crowd.waiting_room.rooms import get
from tidegate.crowd.waiting_room.tokens import Entry, leave

USERS = [f"user-{n:02}" for n in range(20)]


async def _dump(venue: Venue, keys: Any) -> dict[str, bytes | None]:
    return {key: await venue.valkey.execute("DUMP", key) for key in keys.values()}


async def _bring_back(venue: Venue, state: dict[str, bytes | None]) -> None:
    """The server was away, and has come back without what happened since."""
    for key, value in state.items():
        await venue.valkey.execute("DEL", key)
        if value is not None:
            await venue.valkey.execute("RESTORE", key, 0, value)
    await venue.valkey.execute("HSET", room_keys(venue.valkey, ROOM)["book"], "run", "an earlier one")
    venue.valkey.losses += 1


async def test_who_joins_an_empty_line_that_the_rate_holds_up_wakes_whoever_admits(venue: Venue):
    """The line was empty when he looked last, so nobody knows yet when to come back."""
    room = await venue.open(capacity=10, admit_per_second=1)
    await come(room, "ada")
    await venue.keep()
    await venue.valkey.execute("DEL", room.line.keys["wake"])

    await come(room, "bob")

    assert await venue.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    assert await venue.keep() == 1000
    venue.clock.advance(timedelta(seconds=1))
    await venue.keep()
    assert await inside(room, "ada", "bob") == ["ada", "bob"]


async def test_the_rate_goes_on_when_the_servers_clock_is_set_back(venue: Venue):
    room = await venue.open(capacity=10, admit_per_second=2)
    await come(room, *USERS)
    await venue.keep()
    venue.clock.advance(-timedelta(hours=1))

    next_in_ms = await venue.keep()

    assert next_in_ms is not None
    assert next_in_ms <= 1000, "no more than a second's worth was ever ahead"


async def test_who_leaves_while_his_token_is_written_does_not_find_himself_in_line_again(anywhere: Venue):
    """He is taken out of the line, leaves in SQL, the admission finds his row, and only then he tells the server."""
    room = await anywhere.open(capacity=2)
    await come(room, "ada", "bob")
    taken = await room.doors.take()
    gone = next(entry for entry in taken.entries if entry.user == "ada")
    await anywhere.database.transaction(leave, ROOM, gone)

    await room.doors.tell(await room.doors.write(taken))
    await room.doors.release([gone], "left")

    assert await room.line.look("ada") == Nowhere()
    assert await inside(room, "ada", "bob") == ["bob"]
    assert (await room.census()).entering == 0


async def test_who_left_and_could_not_tell_the_server_is_not_put_back_in_line(venue: Venue):
    """Whoever left for him died in between: at the deadline the row says that he is gone."""
    room = await venue.open(capacity=1)
    await come(room, "ada", "bob")
    taken = await room.doors.take()
    await venue.database.transaction(leave, ROOM, Entry("ada", taken.entries[0].admission, taken.entries[0].place))
    venue.clock.advance(SETTLE_AFTER)

    await venue.keep()

    assert await room.line.look("ada") == Nowhere()
    assert await inside(room, "ada", "bob") == ["bob"]


async def test_named_users_enter_also_while_the_room_is_installed_anew(venue: Venue, monkeypatch: pytest.MonkeyPatch):
    room = await venue.open(capacity=1)
    write, crossed = room.doors.write, 0

    async def install_first(taken: Any) -> Any:
        nonlocal crossed
        if not crossed:
            crossed += 1
            await room.recovery.install()
        return await write(taken)

    monkeypatch.setattr(room.doors, "write", install_first)

    assert await room.invite(["vip"]) == 1
    assert await inside(room, "vip") == ["vip"]


async def test_many_who_find_the_room_lost_install_it_once(venue: Venue):
    room = await venue.open(capacity=1)
    await venue.valkey.execute("FLUSHALL")
    before = (await venue.database.read(get, ROOM)).epoch

    answers = await asyncio.gather(*(room.join(user) for user in USERS))

    assert sorted(each.standing.place for each in answers if isinstance(each.standing, Waiting))[-1] > len(USERS)
    after = (await venue.database.read(get, ROOM)).epoch
    assert after - before <= 2, "once to find that everything is lost, once with new numbers"


async def test_who_left_in_the_moments_that_the_server_forgot_is_not_inside(venue: Venue):
    """Else his place were taken for nobody, and he could neither buy nor join, until the session's end."""
    room = await venue.open(capacity=2)
    passes = await come(room, *USERS[:4])
    await venue.keep()
    state = await _dump(venue, room.line.keys)
    await room.leave(passes[0])
    await venue.keep()
    assert await inside(room, *USERS[:4]) == USERS[1:3]
    await _bring_back(venue, state)

    await venue.keep()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, venue.valkey) == USERS[3:4]
    assert isinstance((await room.join(USERS[0])).standing, Waiting)


async def test_who_came_and_went_in_the_moments_that_the_server_forgot_is_not_let_in_again(venue: Venue):
    room = await venue.open(capacity=2)
    passes = await come(room, *USERS[:4])
    state = await _dump(venue, room.line.keys)
    await venue.keep()
    await room.leave(passes[0])
    await venue.keep()
    await _bring_back(venue, state)

    await venue.keep()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, venue.valkey) == USERS[3:4]
    assert [user for user, _ in await venue.states()].count(USERS[0]) == 1


async def test_who_was_on_the_way_in_the_moments_that_the_server_remembers_is_not_let_in_again(venue: Venue):
    room = await venue.open(capacity=2)
    passes = await come(room, *USERS[:4])
    taken = await room.doors.take()
    state = await _dump(venue, room.line.keys)
    await room.doors.tell(await room.doors.write(taken))
    await room.leave(passes[0])
    await venue.keep()
    await _bring_back(venue, state)

    await venue.keep()
    venue.clock.advance(SETTLE_AFTER)
    await venue.keep()

    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert await line(room, venue.valkey) == USERS[3:4]
    assert isinstance(await room.line.look(USERS[1]), Inside)


@pytest.mark.parametrize("by", ["admission", "invitation"])
async def test_a_server_that_forgot_and_whom_nobody_saw_go_away_overfills_no_room(venue: Venue, by: str):
    """It knows that the room was not installed on this run of it."""
    room = await venue.open(capacity=2)
    passes = await come(room, *USERS[:5])
    state = await _dump(venue, room.line.keys)
    await venue.keep()
    await room.leave(passes[0])
    await venue.keep()
    venue.clock.advance(timedelta(seconds=1))
    await _bring_back(venue, state)
    venue.valkey.losses -= 1

    if by == "invitation":
        assert await room.invite(["vip"]) == 1
    await venue.keep()

    assert await inside(room, *USERS[:5]) == USERS[1:3]
    assert await line(room, venue.valkey) == USERS[3:5]
    assert [user for user, _ in await venue.states()].count(USERS[0]) == 1


async def test_whose_arrival_the_server_forgot_has_his_place_to_himself(venue: Venue):
    """Numbers go on far above those that it may have given in the moments that it forgot."""
    room = await venue.open(capacity=0)
    await come(room, *USERS[:2])
    state = await _dump(venue, room.line.keys)
    passes = await come(room, *USERS[2:4])
    await _bring_back(venue, state)

    await venue.keep()
    await come(room, "new")
    for user, token in zip(USERS[2:4], passes, strict=True):
        await room.join(user, token)

    assert await line(room, venue.valkey) == [*USERS[:4], "new"]
    places = [at.place for at in (await room.look_at([*USERS[:4], "new"])).standings if isinstance(at, Waiting)]
    assert places[:4] == [1, 2, 3, 4]
    assert places[4] > 4


async def test_however_many_install_a_room_at_once_each_of_them_succeeds(venue: Venue):
    """Each takes the pause from the one before; whoever finds that leaves the others the time to come to an end."""
    room = await venue.open()
    others = [Recovery(venue.valkey, venue.database, room.doors) for _ in range(8)]

    found = await asyncio.gather(*(each.install() for each in others))

    assert len({each.epoch for each in found}) == 8
    assert (await room.join("ada")).token
