"""People come, wait, and go."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, inside, line
from tidegate.core.arguments import normalise_id
from tidegate.core.errors import InvalidArgument
from tidegate.systems.waiting_room import InLine, Inside, NotPresent, RoomClosed, require_active


@pytest.mark.every_server
async def test_the_line_is_in_order_of_arrival_also_within_one_millisecond(on_any_server: RoomHarness):
    harness = on_any_server
    room = await harness.open()
    users = [f"user-{n % 7}-{n}" for n in range(50)]

    answers = [await room.join(user) for user in users]

    assert await line(room, harness.valkey) == users
    assert [answer.standing.ahead for answer in answers if isinstance(answer.standing, InLine)] == list(range(50))


async def test_a_visitor_who_joins_again_keeps_the_place_or_the_session(harness: RoomHarness):
    room = await harness.open()
    await add_visitors(room, "ada", "bob", "cem")
    await harness.run_worker()

    again = (await room.join("cem")).standing

    assert isinstance((await room.join("ada")).standing, Inside)
    assert again == InLine(place=3, ahead=1)


async def test_a_closed_room_accepts_no_visitor_and_keeps_the_line(harness: RoomHarness):
    room = await harness.open()
    await add_visitors(room, "ada", "bob")
    await harness.rooms.close(ROOM)
    await harness.run_worker()

    with pytest.raises(RoomClosed):
        await room.join("cem")
    assert await line(room, harness.valkey) == ["ada", "bob"]
    assert isinstance((await room.join("bob")).standing, InLine)

    await harness.rooms.open(ROOM)
    await harness.run_worker()
    assert await inside(room, "ada", "bob") == ["ada"]


async def test_leaving_the_line_moves_all_later_visitors_up(harness: RoomHarness):
    room = await harness.open(capacity=0)
    _, passed, _ = await add_visitors(room, "ada", "bob", "cem")

    await room.leave(passed)

    assert (await room.line.standing("cem")) == InLine(place=3, ahead=1)
    assert (await room.status(passed)).standing == NotPresent()


@pytest.mark.every_server
async def test_a_visitor_without_heartbeat_is_removed_at_the_timeout_and_not_before(on_any_server: RoomHarness):
    harness = on_any_server
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=60))
    await add_visitors(room, "ada", "bob", "cem")
    await harness.run_worker()
    harness.clock.advance(timedelta(seconds=30))
    await room.line.standing("bob")
    await room.line.standing("cem")

    harness.clock.advance(timedelta(seconds=30, milliseconds=999))
    assert await harness.run_worker() == 1
    assert await line(room, harness.valkey) == ["ada", "bob", "cem"]
    harness.clock.advance(timedelta(milliseconds=1))
    next_in_ms = await harness.run_worker()

    assert await line(room, harness.valkey) == ["bob", "cem"]
    assert next_in_ms == 30_000
    harness.clock.advance(timedelta(seconds=30))
    assert await harness.run_worker() is None
    assert await line(room, harness.valkey) == []


async def test_an_expired_visitor_is_not_admitted_although_not_yet_removed(harness: RoomHarness):
    room = await harness.open(abandon_after=timedelta(seconds=60))
    await add_visitors(room, "ada", "bob")
    harness.clock.advance(timedelta(seconds=40))
    await room.line.standing("bob")
    harness.clock.advance(timedelta(seconds=40))

    await room.admitter.admit()

    assert await inside(room, "ada", "bob") == ["bob"]


async def test_a_heartbeat_does_not_restore_an_expired_visitor(harness: RoomHarness):
    room = await harness.open(capacity=0, abandon_after=timedelta(seconds=60))
    await add_visitors(room, "ada", "bob")
    await room.line.leave("ada")

    assert await room.line.standing("ada") == NotPresent()
    assert await line(room, harness.valkey) == ["bob"]


async def test_many_expired_visitors_are_removed_in_steps_that_do_not_block_the_server(harness: RoomHarness):
    room = await harness.open(capacity=0)
    crowd = [f"user-{n:04}" for n in range(700)]
    for user in crowd:
        await room.line.join(user)
    harness.clock.advance(timedelta(minutes=3))
    await room.line.standing(crowd[650])

    first, next_in_ms = await room.line.sweep()
    assert (first, next_in_ms) == (500, 0), "there is more, but others have their turn"
    await harness.run_worker()

    assert await line(room, harness.valkey) == [crowd[650]]


@pytest.mark.full
async def test_positions_of_many_visitors_are_read_in_steps_that_do_not_block_the_server(harness: RoomHarness):
    room = await harness.open(capacity=0)
    crowd = [f"user-{n:04}" for n in range(1100)]
    for user in crowd:
        await room.line.join(user)
    await harness.valkey.execute("CONFIG", "RESETSTAT")

    found = (await room.standings(crowd)).standings

    assert [each.ahead for each in found if isinstance(each, InLine)] == list(range(1100))
    assert (await harness.valkey.execute("INFO", "commandstats"))["cmdstat_evalsha"]["calls"] >= 3


async def test_heartbeats_restart_when_the_line_was_empty(harness: RoomHarness):
    """Else the memory of everybody who ever came would stay."""
    room = await harness.open(capacity=0)
    await harness.valkey.execute("HSET", room.line.keys["book"], "arrivals", 200_000)
    await add_visitors(room, "ada")

    assert await harness.valkey.execute("STRLEN", room.line.keys["seen"]) < 4 * 1024 * 2
    harness.clock.advance(timedelta(minutes=3))
    await harness.run_worker()
    assert await line(room, harness.valkey) == []


@pytest.mark.parametrize("user", ["", "x" * 129, "a|b", "a\nb"])
async def test_a_user_with_an_invalid_name_is_refused(harness: RoomHarness, user: str):
    room = await harness.open()
    with pytest.raises(InvalidArgument):
        await room.join(user)


async def test_two_unicode_forms_of_a_user_are_one_user(harness: RoomHarness):
    room = await harness.open(capacity=1)
    await add_visitors(room, " \uff21da\u00a0", "Ada", "bob")
    assert await line(room, harness.valkey) == ["Ada", "bob"]
    await harness.run_worker()

    assert (await harness.database.transaction(require_active, ROOM, "\uff21da")).user == "Ada"
    assert await room.invite(["Ada ", " bob"]) == 1
    assert isinstance((await room.join("Ada\u3000")).standing, Inside)
    for user in ("", "  ", "a\u200bda", "a\nda", "a\u202eda", "x" * 129, "\ufdfa" * 10):
        with pytest.raises(InvalidArgument):
            await room.join(user)
        with pytest.raises(InvalidArgument):
            await room.invite([user])


@given(st.text(max_size=40))
def test_a_normalised_id_is_unchanged(text: str):
    try:
        once = normalise_id("user", text, longest=128)
    except InvalidArgument:
        return
    assert normalise_id("user", once, longest=128) == once
