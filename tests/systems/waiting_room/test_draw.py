"""Who comes before the opening takes part in a draw that anybody can check."""

import base64
import hashlib
import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.systems.waiting_room.harness import ROOM, RoomHarness, add_visitors, inside, line
from tidegate.core.errors import InvalidArgument
from tidegate.systems.waiting_room import (
    InLine,
    RoomPlan,
    VisitorStatus,
    WaitingRoom,
    commitment_of,
    drawn_place,
    number_of,
)
from tidegate.systems.waiting_room.model import DRAWN, LOWEST, new_seed

EARLY = [f"early-{n}" for n in range(1, 31)]


async def before_the_opening(harness: RoomHarness) -> WaitingRoom:
    await harness.rooms.create(ROOM, RoomPlan(capacity=3, log_length=1000))
    return await harness.rooms.open(ROOM, harness.clock.now() + timedelta(minutes=1))


@given(seed=st.text("0123456789abcdef", min_size=1, max_size=64), number=st.integers(1, DRAWN - 1))
def test_drawn_numbers_are_reversible_and_drawn_places_precede_later_ones(seed: str, number: int):
    place = drawn_place(seed, number)

    assert LOWEST <= place < 0
    assert number_of(place) == number
    assert float(place) == place, "the server keeps places as floats"


def test_the_draw_favours_no_number():
    """Among 4,000 numbers the places of the first and of the last thousand are spread alike."""
    seed = new_seed()
    order = sorted(range(1, 4001), key=lambda number: drawn_place(seed, number))
    ranks = {number: rank for rank, number in enumerate(order)}

    for first in (1, 3001):
        mean = sum(ranks[number] for number in range(first, first + 1000)) / 1000
        assert 1800 < mean < 2200  # five deviations


@pytest.mark.parametrize("number", [0, DRAWN, -1])
def test_the_number_of_lots_is_limited(number: int):
    with pytest.raises(InvalidArgument):
        drawn_place("seed", number)


async def test_before_the_start_visitors_have_no_position_and_none_is_admitted(harness: RoomHarness):
    room = await before_the_opening(harness)
    answers = [await room.join(user) for user in EARLY]

    next_in_ms = await harness.run_worker()

    assert next_in_ms == 60_000
    assert await inside(room, *EARLY) == []
    standings = [answer.standing for answer in answers]
    assert {each.ahead for each in standings if isinstance(each, InLine)} == {None}
    assert {each.opens_in_ms for each in standings if isinstance(each, InLine)} == {60_000}
    assert replace(await room.line.standing(EARLY[0]), is_new=True) == standings[0]


@pytest.mark.every_server
async def test_the_draw_follows_the_published_rule_and_the_seed_matches_its_commitment(on_any_server: RoomHarness):
    harness = on_any_server
    room = await before_the_opening(harness)
    promised = await harness.rooms.status(ROOM)
    await add_visitors(room, *EARLY)
    harness.clock.advance(timedelta(minutes=1))
    await add_visitors(room, "late")
    seed = (await harness.rooms.status(ROOM)).seed or ""

    assert promised.seed is None
    assert hashlib.sha256(seed.encode()).hexdigest() == commitment_of(seed) == promised.commitment
    drawn = sorted(range(1, 31), key=lambda number: drawn_place(seed, number))
    assert await line(room, harness.valkey) == [*(f"early-{number}" for number in drawn), "late"]
    assert drawn != sorted(drawn)

    await harness.run_worker()
    assert set(await inside(room, *EARLY, "late")) == {f"early-{number}" for number in drawn[:3]}


async def test_a_visitor_gone_before_the_start_is_removed_from_the_draw(harness: RoomHarness):
    room = await before_the_opening(harness)
    await add_visitors(room, *EARLY)
    harness.clock.advance(timedelta(seconds=50))
    await room.standings(EARLY[:20])
    harness.clock.advance(timedelta(seconds=80))

    await harness.run_worker()

    assert set(await line(room, harness.valkey)) | set(await inside(room, *EARLY)) == set(EARLY[:20])


async def test_a_past_start_cannot_be_moved_and_no_visitor_is_drawn_with_a_known_seed(harness: RoomHarness):
    room = await before_the_opening(harness)
    harness.clock.advance(timedelta(minutes=1))
    with pytest.raises(InvalidArgument):
        await harness.rooms.open(ROOM, harness.clock.now() + timedelta(hours=1))
    await harness.rooms.close(ROOM)
    await harness.rooms.open(ROOM)

    harness.clock.advance(-timedelta(seconds=30))  # a process whose clock is behind
    await room.installer.install()

    assert (await room.join("ada")).standing == InLine(place=1, ahead=0, is_new=True)


async def test_a_past_start_stays_past_when_the_clock_is_set_back(harness: RoomHarness):
    room = await before_the_opening(harness)
    harness.clock.advance(timedelta(minutes=1))
    await room.admitter.admit()
    harness.clock.advance(-timedelta(seconds=30))

    assert (await room.join("ada")).standing == InLine(place=1, ahead=0, is_new=True)


async def test_a_visitor_who_arrived_after_the_start_is_not_overtaken_by_a_draw_when_the_clock_is_set_back(
    harness: RoomHarness,
):
    room = await before_the_opening(harness)
    harness.clock.advance(timedelta(minutes=1))
    await add_visitors(room, "ada")
    harness.clock.advance(-timedelta(seconds=30))

    await add_visitors(room, "bob")

    assert await line(room, harness.valkey) == ["ada", "bob"]
    assert (await room.join("bob")).standing == InLine(place=2, ahead=1)


async def test_a_future_start_can_be_moved(harness: RoomHarness):
    room = await before_the_opening(harness)
    await add_visitors(room, *EARLY)
    await harness.rooms.open(ROOM, harness.clock.now() + timedelta(seconds=10))

    assert await harness.run_worker() == 10_000
    harness.clock.advance(timedelta(seconds=10))
    await harness.run_worker()
    assert len(await inside(room, *EARLY)) == 3


async def test_a_pass_hides_the_lot_before_the_start_and_restores_the_place(harness: RoomHarness):
    """A visitor that knew the lot would leave and join again until it is a good one."""
    room = await before_the_opening(harness)
    answers = [await room.join(user) for user in EARLY]
    places = [each.standing.place for each in answers if isinstance(each.standing, InLine)]
    tokens = [each.token or "" for each in answers]

    said = [json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "==")) for token in tokens]

    assert [each[5] for each in said] == [-number for number in range(1, 31)]
    assert [room.read(token).place for token in tokens] == places
    await harness.valkey.execute("FLUSHALL")
    back = (await room.join(EARLY[7], tokens[7])).standing
    assert isinstance(back, InLine)
    assert back.place == places[7]


async def test_a_visitor_who_leaves_and_joins_again_before_the_start_gets_no_second_lot(on_any_server: RoomHarness):
    """Otherwise a visitor would hold a pass for each, and take the best place when the seed is known."""
    harness = on_any_server
    room = await before_the_opening(harness)
    await add_visitors(room, *EARLY)
    answers: list[VisitorStatus] = []
    for _ in range(5):
        answers.append(await room.join("eve"))
        await room.leave(answers[-1].token or "")
    harness.clock.advance(timedelta(seconds=1))
    again = await room.join("eve")
    assert isinstance(again.standing, InLine)

    assert {each.standing.place for each in answers if isinstance(each.standing, InLine)} == {again.standing.place}
    assert number_of(again.standing.place) == 31

    # From the start on there are no lots: who leaves then, and has no pass any more, is the last.
    await room.leave(again.token or "")
    harness.clock.advance(timedelta(minutes=1))
    late = (await room.join("eve")).standing
    assert isinstance(late, InLine)
    assert late.place == 32
