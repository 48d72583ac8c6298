"""From the line into the room: never too many, never too fast, in order, and back to the old place if it fails."""

from datetime import timedelta

import pytest

from tests.systems.waiting_room.harness import ROOM, SETTLE_AFTER, RoomHarness, add_visitors, inside, line, steps
from tidegate.core.clock import ManualClock
from tidegate.core.errors import InvalidArgument
from tidegate.storage.sql import Transaction
from tidegate.systems.waiting_room import Entering, InLine, Inside, RoomPlan
from tidegate.systems.waiting_room.admission import AdmissionBatch
from tidegate.systems.waiting_room.model import AdmissionResults, EpochReplaced, UnknownRoom

USERS = [f"user-{n:02}" for n in range(20)]


@pytest.mark.every_server
async def test_visitors_are_admitted_in_order_up_to_the_capacity(harness_on_each_server: RoomHarness):
    room = await harness_on_each_server.open(capacity=7)
    await add_visitors(room, *USERS)

    assert await harness_on_each_server.run_worker() == 121_000, "nothing more to do until somebody can be gone"

    assert await inside(room, *USERS) == USERS[:7]
    assert await line(room, harness_on_each_server.valkey) == USERS[7:]
    assert await harness_on_each_server.states() == [(user, "active") for user in USERS[:7]]


async def test_a_visitor_who_leaves_frees_a_place_immediately(harness: RoomHarness):
    room = await harness.open(capacity=2)
    passes = await add_visitors(room, *USERS[:4])
    await harness.run_worker()
    await harness.valkey.execute("DEL", room.line.keys["wake"])

    await room.leave(passes[0])

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1, "whoever admits is woken"
    await harness.run_worker()
    assert await inside(room, *USERS[:4]) == USERS[1:3]
    assert (await harness.states())[0] == (USERS[0], "left")


async def test_a_visitor_who_joins_wakes_the_leader_only_if_there_is_capacity(harness: RoomHarness):
    room = await harness.open(capacity=1)
    await add_visitors(room, "ada")
    await harness.run_worker()
    await harness.valkey.execute("DEL", room.line.keys["wake"])
    await add_visitors(room, "bob")
    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 0

    await harness.rooms.replace_plan(ROOM, RoomPlan(capacity=2))
    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    await harness.run_worker()
    assert await inside(room, "ada", "bob") == ["ada", "bob"]


async def test_the_rate_holds_over_any_interval_and_gives_the_next_admission_time(harness: RoomHarness):
    room = await harness.open(capacity=100, admit_per_second=4)
    await add_visitors(room, *USERS)
    entered: list[int] = []
    for _ in range(12):
        next_in_ms = await harness.run_worker()
        entered.append(len(await inside(room, *USERS)))
        harness.clock.advance(timedelta(milliseconds=250))
        assert next_in_ms == 250
    assert entered == list(range(4, 16)), "a second's worth at once, then one every quarter of a second"


async def test_a_slow_rate_admits_one_visitor_at_a_time(harness: RoomHarness):
    room = await harness.open(capacity=100, admit_per_second=0.1)
    await add_visitors(room, *USERS)

    assert await harness.run_worker() == 10_000
    assert await inside(room, *USERS) == USERS[:1]
    await harness.valkey.execute("DEL", room.line.keys["wake"])
    await add_visitors(room, "late")
    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 0, "the rate does not allow anybody yet"


@pytest.mark.every_server
async def test_when_sql_fails_all_visitors_keep_their_places(harness_on_each_server: RoomHarness):
    room = await harness_on_each_server.open(capacity=5)
    await add_visitors(room, *USERS)
    await harness_on_each_server.database.transaction(_rename, "room_tokens", "hidden")

    with pytest.raises(Exception, match="room_tokens"):
        await room.admitter.admit()

    assert await line(room, harness_on_each_server.valkey) == USERS
    assert await room.line.standing(USERS[3]) == InLine(place=4, ahead=3)
    await harness_on_each_server.database.transaction(_rename, "hidden", "room_tokens")
    await harness_on_each_server.run_worker()
    assert await inside(room, *USERS) == USERS[:5]
    assert await harness_on_each_server.states() == [(user, "active") for user in USERS[:5]]


async def test_a_rollback_does_not_revive_expired_visitors(harness: RoomHarness):
    room = await harness.open(abandon_after=timedelta(seconds=60))
    await add_visitors(room, "ada", "bob")
    harness.clock.advance(timedelta(seconds=55))
    await room.admitter.take()
    harness.clock.advance(SETTLE_AFTER)
    await room.line.standing("bob")

    await harness.run_worker()

    assert await inside(room, "ada", "bob") == ["bob"]


async def test_an_admission_that_died_after_its_first_step_is_reverted_before_anyone_is_admitted(harness: RoomHarness):
    room = await harness.open(capacity=12)
    await add_visitors(room, *USERS[:5])
    await room.admitter.take()
    await add_visitors(room, *USERS[5:])
    assert isinstance(await room.line.standing(USERS[0]), Entering)
    with pytest.raises(UnknownRoom):
        await room.admitter.take()

    await harness.run_worker()

    assert await inside(room, *USERS) == USERS[:12]
    in_order = [(user, "rolled_back") for user in USERS[:5]] + [(user, "active") for user in USERS[:12]]
    assert await harness.states() == in_order


async def test_an_admission_that_died_after_its_second_step_is_completed_before_anyone_is_admitted(
    harness_on_each_server: RoomHarness,
):
    room = await harness_on_each_server.open(capacity=5)
    await add_visitors(room, *USERS)
    await room.admitter.write(await room.admitter.take())

    await harness_on_each_server.run_worker()

    assert await inside(room, *USERS) == USERS[:5]
    assert await harness_on_each_server.states() == [(user, "active") for user in USERS[:5]]


@pytest.mark.every_server
async def test_a_slow_process_admits_no_visitor_whose_admission_was_settled(harness_on_each_server: RoomHarness):
    """It took them, slept, and comes back when they have their places again, or are inside by another one."""
    room = await harness_on_each_server.open(capacity=5)
    await add_visitors(room, *USERS)
    slow = await room.admitter.take()
    harness_on_each_server.clock.advance(SETTLE_AFTER)
    due = await room.admitter.due()
    await room.admitter.settle(due.overdue)

    found = await room.admitter.write(slow)
    await room.admitter.confirm(found)

    assert found.active == []
    assert await line(room, harness_on_each_server.valkey) == USERS
    await harness_on_each_server.run_worker()
    await room.admitter.confirm(await room.admitter.write(slow))
    assert await inside(room, *USERS) == USERS[:5]
    assert await line(room, harness_on_each_server.valkey) == USERS[5:]


async def test_a_slow_process_does_not_disturb_the_next_admission_of_the_same_visitors(harness: RoomHarness):
    room = await harness.open(capacity=5)
    await add_visitors(room, *USERS)
    slow = await room.admitter.take()
    harness.clock.advance(SETTLE_AFTER)
    await room.admitter.settle((await room.admitter.due()).overdue)
    second = await room.admitter.take()
    assert [each.user for each in second.entries] == [each.user for each in slow.entries]

    await room.admitter.confirm(await room.admitter.write(slow))
    await room.admitter.release(slow.entries, "left")

    assert (await room.counts()).entering == 5
    await room.admitter.confirm(await room.admitter.write(second))
    await room.admitter.release(slow.entries, "left")
    assert await inside(room, *USERS) == USERS[:5]


async def test_an_admission_started_before_a_restoration_of_the_room_is_void(harness_on_each_server: RoomHarness):
    room = await harness_on_each_server.open(capacity=5)
    await add_visitors(room, *USERS)
    slow = await room.admitter.take()
    await room.installer.install()

    with pytest.raises(EpochReplaced):
        await room.admitter.write(slow)

    assert await line(room, harness_on_each_server.valkey) == USERS
    assert await harness_on_each_server.states() == [(user, "rolled_back") for user in USERS[:5]]


async def test_a_server_behind_sql_admits_no_visitor_and_is_updated(harness: RoomHarness):
    """A process changed the room in SQL, and died before it updated the server."""
    room = await harness.open(capacity=5)
    await add_visitors(room, *USERS)
    await harness.worker.fire()
    await room.line.leave(USERS[19])
    await harness.database.transaction(_begin_epoch, 12)
    await add_visitors(room, USERS[19])
    passes = (await room.join(USERS[0])).token or ""
    await room.leave(passes)

    await harness.run_worker()

    assert await inside(room, *USERS) == USERS[1:13]


async def test_named_users_are_admitted_immediately_beyond_the_capacity(harness: RoomHarness):
    room = await harness.open(capacity=2)
    await add_visitors(room, *USERS[:6])
    await harness.run_worker()

    assert await room.invite([USERS[5], "star", USERS[0]]) == 2

    assert await inside(room, *USERS, "star") == [USERS[0], USERS[1], USERS[5], "star"]
    counts = await room.counts()
    assert (counts.active, counts.guests, counts.waiting) == (4, 2, 3)
    star = (await room.join("star")).token or ""
    await room.leave(star)
    await harness.run_worker()
    assert await inside(room, *USERS) == [USERS[0], USERS[1], USERS[5]], "a guest's place is nobody else's"


async def test_a_named_user_whose_admission_fails_keeps_the_former_place(harness: RoomHarness):
    room = await harness.open(capacity=1)
    await add_visitors(room, "ada", "bob", "cem")
    await harness.run_worker()
    await harness.database.transaction(_rename, "room_tokens", "hidden")
    with pytest.raises(Exception, match="room_tokens"):
        await room.invite(["cem", "star"])
    await harness.database.transaction(_rename, "hidden", "room_tokens")

    assert await line(room, harness.valkey) == ["bob", "cem"]
    assert (await room.counts()).guests == 0


async def test_no_one_is_admitted_ahead_of_a_visitor_whose_invitation_is_in_progress(
    harness: RoomHarness, monkeypatch: pytest.MonkeyPatch
):
    """The invitation may fail, and the old place is the visitor's again."""
    room = await harness.open(capacity=1)
    await add_visitors(room, *USERS[:4])
    await harness.run_worker()
    write = room.admitter.write

    async def fail_late(taken: AdmissionBatch) -> AdmissionResults:
        for user in USERS[:2]:
            await room.leave((await room.join(user)).token or "")
            await harness.run_worker()
        assert await inside(room, *USERS[:4]) == [], "the next in line is behind the one who is invited"
        await harness.valkey.execute("DEL", room.line.keys["wake"])
        await harness.database.transaction(_rename, "room_tokens", "hidden")
        return await write(taken)

    monkeypatch.setattr(room.admitter, "write", fail_late)
    with pytest.raises(Exception, match="room_tokens"):
        await room.invite([USERS[2]])
    await harness.database.transaction(_rename, "hidden", "room_tokens")

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1
    await harness.run_worker()
    assert await inside(room, *USERS[:4]) == [USERS[2]]


async def test_a_visitor_who_asks_while_an_admission_is_in_progress_is_not_dropped_when_it_is_reverted(
    harness: RoomHarness,
):
    room = await harness.open(abandon_after=timedelta(seconds=5))
    await add_visitors(room, "ada")
    await room.admitter.take()
    for _ in range(8):
        harness.clock.advance(timedelta(seconds=1))
        assert isinstance((await room.join("ada")).standing, Entering)
        assert isinstance(await room.line.standing("ada"), Entering)

    await harness.run_worker()

    assert await inside(room, "ada") == ["ada"]


async def test_a_visitor_who_leaves_during_an_admission_is_not_admitted(harness: RoomHarness):
    room = await harness.open(capacity=1)
    passes = await add_visitors(room, "ada", "bob")
    slow = await room.admitter.take()
    await room.leave(passes[0])

    await room.admitter.confirm(await room.admitter.write(slow))
    await harness.run_worker()

    assert await inside(room, "ada", "bob") == ["bob"]
    assert await harness.states() == [("ada", "left"), ("bob", "active")]


async def test_an_admission_by_another_process_wakes_the_leader(harness: RoomHarness):
    """Another process let somebody in; its keeper sleeps until something else is due."""
    room = await harness.open(capacity=1)
    await add_visitors(room, "ada")
    found = await room.admitter.write(await room.admitter.take())
    await harness.valkey.execute("DEL", room.line.keys["wake"])

    await room.admitter.confirm(found)

    assert await harness.valkey.execute("LLEN", room.line.keys["wake"]) == 1


async def test_every_step_is_logged(harness: RoomHarness):
    room = await harness.open(capacity=1)
    passes = await add_visitors(room, "ada", "bob", "cem")
    await harness.run_worker()
    await room.leave(passes[0])
    await room.leave(passes[2])
    await room.admitter.take()
    harness.clock.advance(SETTLE_AFTER)
    await harness.run_worker()

    assert await steps(room, harness.valkey) == [
        ("joined", ["ada"], 0, 1),
        ("joined", ["bob"], 0, 1),
        ("joined", ["cem"], 0, 1),
        ("entering", ["ada"], 1, 1),
        ("admitted", ["ada"], 1, 1),
        ("left", ["ada"], 0, 1),
        ("gave_up", ["cem"], 0, 1),
        ("entering", ["bob"], 1, 1),
        ("rolled_back", ["bob"], 0, 1),
        ("entering", ["bob"], 1, 1),
        ("admitted", ["bob"], 1, 1),
    ]


async def test_sessions_found_by_a_restoration_are_logged(harness: RoomHarness):
    room = await harness.open(capacity=1)
    await add_visitors(room, "ada")
    await room.admitter.write(await room.admitter.take())
    await room.installer.install()
    await room.installer.install()

    assert [step[:2] for step in await steps(room, harness.valkey)] == [
        ("joined", ["ada"]),
        ("entering", ["ada"]),
        ("admitted", ["ada"]),
    ]


async def test_admission_ids_increase_although_the_clock_was_set_back(harness: RoomHarness, clock: ManualClock):
    room = await harness.open(capacity=10)
    numbers: list[int] = []
    for user in USERS[:5]:
        await add_visitors(room, user)
        await harness.run_worker()
        standing = await room.line.standing(user)
        assert isinstance(standing, Inside)
        numbers.append(standing.admission)
        clock.advance(-timedelta(seconds=10))
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    "plan",
    [{"capacity": -1}, {"admit_per_second": 0}, {"session": timedelta(0)}, {"longest_session": timedelta(minutes=1)}],
)
def test_invalid_room_settings_are_refused(plan: dict[str, int]):
    values: dict[str, object] = {"capacity": 1, **plan}
    with pytest.raises(InvalidArgument):
        RoomPlan(**values)  # pyright: ignore[reportArgumentType]


def _rename(tx: Transaction, name: str, other: str) -> None:
    tx.execute_sql(f"ALTER TABLE {name} RENAME TO {other}")


def _begin_epoch(tx: Transaction, capacity: int) -> None:
    tx.execute_sql(f"UPDATE waiting_rooms SET epoch = epoch + 1, capacity = {capacity}")
